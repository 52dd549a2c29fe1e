// SPDX-License-Identifier: MIT
// What a strict frontend holds against its backend: the texts, and whether the device was disabled
// for it. Shared by the queues of one device.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace pvring::testing {

/// Any thread may use it.
class violation_log {
 public:
  /// Records a violation; the device is disabled from now on, as a real frontend would do it.
  void record(std::string what) {
    {
      const std::lock_guard lock(mutex_);
      violations_.push_back(std::move(what));
    }
    disabled_.store(true, std::memory_order_release);
  }

  [[nodiscard]] std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return violations_;
  }
  /// All of them as one text, for messages.
  [[nodiscard]] std::string text() const {
    std::string text;
    for (const std::string& one : all()) {
      text += (text.empty() ? "" : "; ") + one;
    }
    return text;
  }
  [[nodiscard]] bool disabled() const noexcept { return disabled_.load(std::memory_order_acquire); }

  /// Lets a new connection begin with an enabled device; what was recorded stays.
  void enable() noexcept { disabled_.store(false, std::memory_order_release); }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> violations_;
  std::atomic<bool> disabled_{false};
};

}  // namespace pvring::testing
