// SPDX-License-Identifier: MIT
// The clocks that benchmarks read: what passes, and what a thread or the process really used of a
// CPU. On a machine that others use too, the second kind is the one to trust for work that does not
// wait.
#pragma once

#include <cstdint>
#include <ctime>

namespace bench {

namespace detail {
inline std::int64_t read_clock(clockid_t which) noexcept {
  timespec now{};
  (void)::clock_gettime(which, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
}  // namespace detail

/// Nanoseconds of a clock that only moves forward; read without a system call.
inline std::int64_t wall_ns() noexcept { return detail::read_clock(CLOCK_MONOTONIC); }

/// CPU time of the calling thread: user and system.
inline std::int64_t thread_cpu_ns() noexcept { return detail::read_clock(CLOCK_THREAD_CPUTIME_ID); }

/// CPU time of the whole process.
inline std::int64_t process_cpu_ns() noexcept {
  return detail::read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

/// What two readings of wall_ns() one after the other are apart; to be taken off short intervals.
inline std::int64_t wall_overhead_ns() noexcept {
  std::int64_t least = 1'000'000;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t start = wall_ns();
    const std::int64_t apart = wall_ns() - start;
    least = apart < least ? apart : least;
  }
  return least;
}

}  // namespace bench
