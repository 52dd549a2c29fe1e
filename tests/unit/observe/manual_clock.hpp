// SPDX-License-Identifier: MIT
// A clock that a test moves by hand, so that what a recorder measures is known exactly. One per
// test program: tests of a program run one after the other.
#pragma once

#include <chrono>

struct manual_clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<manual_clock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept { return time_point(nanoseconds); }
  static void advance(long long by) noexcept { nanoseconds += duration(by); }

  static inline duration nanoseconds{1'000'000};
};
