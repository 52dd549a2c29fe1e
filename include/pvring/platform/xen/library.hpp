// SPDX-License-Identifier: MIT
// The only place where Xen's libraries are included. Their headers do not say that they are C, so
// it is said here.
#pragma once

// What the C headers include themselves must not be read for the first time as C.
#include <sys/types.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" {
#include <xenevtchn.h>
#include <xengnttab.h>
#include <xenstore.h>
#include <xentoollog.h>
}
