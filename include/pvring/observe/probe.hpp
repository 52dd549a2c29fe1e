// SPDX-License-Identifier: MIT
// Static probes of provider `pvring`, for bpftrace, perf and SystemTap. A probe is one nop where
// <sys/sdt.h> was present, and nothing elsewhere; its arguments are not evaluated there.
#pragma once

// PVRING_PROBE1(name, a) to PVRING_PROBE4(name, a, b, c, d): a point `pvring:name` with integer or
// pointer arguments. Arguments must be cheap: where probes are compiled in, they are computed
// whether somebody traces or not.
#if defined(__has_include)
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#endif
#endif

#ifdef STAP_PROBE4
#define PVRING_PROBE(name) STAP_PROBE(pvring, name)
#define PVRING_PROBE1(name, a) STAP_PROBE1(pvring, name, a)
#define PVRING_PROBE2(name, a, b) STAP_PROBE2(pvring, name, a, b)
#define PVRING_PROBE3(name, a, b, c) STAP_PROBE3(pvring, name, a, b, c)
#define PVRING_PROBE4(name, a, b, c, d) STAP_PROBE4(pvring, name, a, b, c, d)
#else
// sizeof, so that a variable made for a probe only counts as used.
#define PVRING_PROBE(name) static_cast<void>(0)
#define PVRING_PROBE1(name, a) static_cast<void>(sizeof(a))
#define PVRING_PROBE2(name, a, b) (PVRING_PROBE1(name, a), PVRING_PROBE1(name, b))
#define PVRING_PROBE3(name, a, b, c) (PVRING_PROBE2(name, a, b), PVRING_PROBE1(name, c))
#define PVRING_PROBE4(name, a, b, c, d) (PVRING_PROBE3(name, a, b, c), PVRING_PROBE1(name, d))
#endif
