// SPDX-License-Identifier: MIT
// The library's version. The build system and the packages read it from here; nothing else states
// it.
#pragma once

#define PVRING_VERSION_MAJOR 0
#define PVRING_VERSION_MINOR 1
#define PVRING_VERSION_PATCH 0

/// The version as one number that can be compared: 1002003 for 1.2.3.
#define PVRING_VERSION \
  (PVRING_VERSION_MAJOR * 1000000 + PVRING_VERSION_MINOR * 1000 + PVRING_VERSION_PATCH)
