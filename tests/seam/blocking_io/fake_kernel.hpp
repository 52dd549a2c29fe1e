// SPDX-License-Identifier: MIT
// The system calls that change ranges of a file, scripted: fallocate, and the ioctls for it on
// block devices. What the script does not know is done by the real kernel.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace fake {

struct range_call {
  unsigned long what = 0;  ///< fallocate's mode, or the ioctl's number
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  bool operator==(const range_call&) const = default;
};

class kernel {
 public:
  /// Begins anew: each call of a range gets the next of `results` (0 or an errno), and those after
  /// it 0. Nothing is done to any file.
  void script(std::deque<int> results) {
    const std::lock_guard lock(mutex_);
    results_ = std::move(results);
    calls_.clear();
    scripted_ = true;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    scripted_ = false;
  }
  [[nodiscard]] std::vector<range_call> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

  /// The scripted errno of a call; nothing where there is no script.
  [[nodiscard]] std::optional<int> answer(const range_call& call) {
    const std::lock_guard lock(mutex_);
    if (!scripted_) {
      return std::nullopt;
    }
    calls_.push_back(call);
    if (results_.empty()) {
      return 0;
    }
    const int result = results_.front();
    results_.pop_front();
    return result;
  }

 private:
  mutable std::mutex mutex_;
  bool scripted_ = false;
  std::deque<int> results_;
  std::vector<range_call> calls_;
};

/// The one kernel.
kernel& the_kernel();

}  // namespace fake
