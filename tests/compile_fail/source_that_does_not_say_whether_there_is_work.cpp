// expect: static assertion failed
// SPDX-License-Identifier: MIT
// Arming that does not look again is how wake-ups are lost.
#include "pvring/base/source.hpp"

struct deaf {
  int fd() noexcept { return -1; }
#ifdef PVRING_CONTROL
  bool arm() noexcept { return false; }
#else
  void arm() noexcept {}
#endif
  void disarm() noexcept {}
};
static_assert(pvring::source<deaf>);
