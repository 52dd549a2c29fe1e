// SPDX-License-Identifier: MIT
// What shall go wrong on an emulated platform, written down beforehand. A handle without a plan
// pays one comparison with null for the possibility.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "../grant_mapper.hpp"

namespace pvring::platform {

/// A script of failures. Give it to a platform (all handles opened afterwards follow it and count
/// together) or to one handle. Calls and operations are numbered from 1, in the order in which the
/// plan's handles make them. Rules may be added at any time from any thread; the plan outlives the
/// handles that follow it.
class fault_plan {
 public:
  static constexpr std::uint32_t for_ever = std::numeric_limits<std::uint32_t>::max();

  /// The `nth` map call, and the `times - 1` after it, fail with `error` (a positive errno).
  void fail_map(std::uint64_t nth, int error, std::uint32_t times = 1) {
    add(maps_, nth, error, times);
  }
  /// The next `times` map calls fail with EAGAIN: the peer's page is paged out.
  void busy(std::uint32_t times = 1);
  /// The `nth` unmap call fails with `error`, and unmaps nothing.
  void fail_unmap(std::uint64_t nth, int error, std::uint32_t times = 1) {
    add(unmaps_, nth, error, times);
  }
  /// The `nth` copy call fails as a whole with `error`, and copies nothing.
  void fail_copy(std::uint64_t nth, int error, std::uint32_t times = 1) {
    add(copies_, nth, error, times);
  }
  /// The `nth` copy call copies only its first `operations`, and then fails as a whole with
  /// `error`.
  void fail_copy_after(std::uint64_t nth, std::uint32_t operations, int error) {
    const std::lock_guard lock(mutex_);
    copies_.rules.push_back({nth, error, 1, operations});
  }
  /// Copy operations that name `reference` get `status` and copy nothing, `times` times.
  void fail_reference(grant_reference reference, std::int16_t status,
                      std::uint32_t times = for_ever) {
    const std::lock_guard lock(mutex_);
    references_.push_back({reference, status, times});
  }
  /// The `nth` copy operation gets `status` and copies nothing.
  void fail_operation(std::uint64_t nth, std::int16_t status, std::uint32_t times = 1) {
    add(operations_, nth, status, times);
  }
  /// The next `times` attempts of copy operations find the page not there (`try_again`).
  void try_again(std::uint32_t times) {
    const std::lock_guard lock(mutex_);
    try_again_ = times;
  }
  /// Each map, unmap and copy call takes at least this much longer, asleep.
  void delay(std::chrono::nanoseconds by) {
    const std::lock_guard lock(mutex_);
    delay_ = by;
  }
  /// The `nth` bind fails with `error`.
  void fail_bind(std::uint64_t nth, int error, std::uint32_t times = 1) {
    add(binds_, nth, error, times);
  }
  /// The next `times` commits of transactions find a conflict.
  void conflict(std::uint32_t times = 1) {
    const std::lock_guard lock(mutex_);
    conflicts_ = times;
  }

  /// How a call ends, as the plan has it.
  struct call_fate {
    int error = 0;            ///< 0: as it would without a plan
    std::uint32_t after = 0;  ///< operations to perform before failing (copy calls only)
  };

  // What follows is called by handles.
  [[nodiscard]] int next_map() noexcept {
    wait();
    return next(maps_).error;
  }
  [[nodiscard]] int next_unmap() noexcept {
    wait();
    return next(unmaps_).error;
  }
  [[nodiscard]] call_fate next_copy() noexcept {
    wait();
    return next(copies_);
  }
  [[nodiscard]] int next_bind() noexcept { return next(binds_).error; }
  [[nodiscard]] bool next_commit_conflicts() noexcept {
    const std::lock_guard lock(mutex_);
    return use(conflicts_);
  }
  /// The status that an attempt of a copy operation gets; `first` on its first attempt.
  [[nodiscard]] std::int16_t next_operation(grant_reference reference, bool first) noexcept;

 private:
  struct rule {
    std::uint64_t nth;
    int error;
    std::uint32_t times;
    std::uint32_t after;
  };
  struct script {
    std::uint64_t made = 0;
    std::vector<rule> rules;
  };
  struct reference_rule {
    grant_reference reference;
    std::int16_t status;
    std::uint32_t times;
  };

  void add(script& to, std::uint64_t nth, int error, std::uint32_t times) {
    const std::lock_guard lock(mutex_);
    to.rules.push_back({nth, error, times, 0});
  }

  static call_fate advance(script& of) noexcept {
    ++of.made;
    for (const rule& r : of.rules) {
      if (of.made >= r.nth && of.made - r.nth < r.times) {
        return {r.error, r.after};
      }
    }
    return {};
  }

  [[nodiscard]] call_fate next(script& of) noexcept {
    const std::lock_guard lock(mutex_);
    return advance(of);
  }

  static bool use(std::uint32_t& times) noexcept {
    if (times == 0) {
      return false;
    }
    times -= times != for_ever ? 1 : 0;
    return true;
  }

  void wait() const noexcept {
    std::chrono::nanoseconds by{};
    {
      const std::lock_guard lock(mutex_);
      by = delay_;
    }
    if (by.count() > 0) {
      std::this_thread::sleep_for(by);
    }
  }

  mutable std::mutex mutex_;
  script maps_;
  script unmaps_;
  script copies_;
  script operations_;
  script binds_;
  std::vector<reference_rule> references_;
  std::uint32_t try_again_ = 0;
  std::uint32_t conflicts_ = 0;
  std::chrono::nanoseconds delay_{0};
};

inline void fault_plan::busy(std::uint32_t times) {
  const std::lock_guard lock(mutex_);
  maps_.rules.push_back({maps_.made + 1, EAGAIN, times, 0});
}

inline std::int16_t fault_plan::next_operation(grant_reference reference, bool first) noexcept {
  const std::lock_guard lock(mutex_);
  if (first) {
    if (const call_fate fate = advance(operations_); fate.error != 0) {
      return static_cast<std::int16_t>(fate.error);
    }
  }
  if (use(try_again_)) {
    return grant_status::try_again;
  }
  const auto named = std::find_if(
      references_.begin(), references_.end(),
      [&](const reference_rule& r) { return r.reference == reference && r.times != 0; });
  if (named != references_.end()) {
    (void)use(named->times);
    return named->status;
  }
  return grant_status::okay;
}

}  // namespace pvring::platform
