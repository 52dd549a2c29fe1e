// SPDX-License-Identifier: MIT
// When the transfers of a test kit engine complete: after so many reaps, after a time, in an order,
// with a result, or one by one at a test's word.
#pragma once

#include <sys/timerfd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "../aio/engine.hpp"
#include "../platform/emulated/in_flight_registry.hpp"

namespace pvring::testing {

enum class completion_order : std::uint8_t { oldest_first, newest_first, shuffled };

/// A transfer completes as soon as nothing of this holds it back.
struct completion_script {
  completion_order order = completion_order::oldest_first;
  std::uint32_t seed = 1;                 ///< of the shuffling
  std::uint32_t held_for = 0;             ///< reaps that do not find a transfer yet
  std::chrono::microseconds latency{0};   ///< from submission to completion
  std::size_t at_most = ~std::size_t{0};  ///< completions per reap
  bool by_hand = false;                   ///< each waits for the image's release()
  std::function<int(const aio::transfer&)>
      result{};  ///< 0: perform it; else its error, and nothing is done
  platform::in_flight_registry* watch = nullptr;  ///< is told of every buffer in flight
};

/// What the contexts of one image share: the script, the permits of a test that completes by hand,
/// and whether a flush has failed. Any thread.
class completion_control {
 public:
  explicit completion_control(completion_script script) : script_(std::move(script)) {}

  /// To be changed only while nothing is in flight.
  [[nodiscard]] completion_script& script() noexcept { return script_; }

  /// `n` more transfers may complete; wakes the contexts that sleep for it.
  void release(std::size_t n = 1) noexcept {
    const std::lock_guard lock(mutex_);
    permits_ += n;
    for (const int timer : timers_) {
      const itimerspec at_once{{}, {0, 1}};
      (void)::timerfd_settime(timer, 0, &at_once, nullptr);
    }
  }

  // --- for contexts ---

  /// Whether a transfer may complete.
  [[nodiscard]] bool is_open() noexcept {
    const std::lock_guard lock(mutex_);
    return !script_.by_hand || permits_ != 0;
  }
  /// As is_open(), and then one more has completed.
  [[nodiscard]] bool pass() noexcept {
    const std::lock_guard lock(mutex_);
    if (script_.by_hand && permits_ == 0) {
      return false;
    }
    permits_ -= script_.by_hand ? 1 : 0;
    return true;
  }

  /// The scripted result of a transfer. A flush that failed is remembered for the image, as engines
  /// must.
  [[nodiscard]] int result_of(const aio::transfer& work) {
    int error = script_.result ? script_.result(work) : 0;
    if (work.kind == aio::operation::flush) {
      const std::lock_guard lock(mutex_);
      flush_failure_ = flush_failure_ != 0 ? flush_failure_ : error;
      error = flush_failure_;
    }
    return error;
  }

  /// A timer to set off on release, and its end.
  void add(int timer) {
    const std::lock_guard lock(mutex_);
    timers_.push_back(timer);
  }
  void remove(int timer) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase(timers_, timer);
  }

 private:
  completion_script script_;
  std::mutex mutex_;
  std::vector<int> timers_;
  std::size_t permits_ = 0;
  int flush_failure_ = 0;
};

}  // namespace pvring::testing
