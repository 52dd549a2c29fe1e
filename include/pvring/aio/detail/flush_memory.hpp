// SPDX-License-Identifier: MIT
// What an image remembers of flushes that failed, for all of its queues: the storage may have
// dropped the data with the first failure, so a later success means nothing.
#pragma once

#include <atomic>

namespace pvring::aio::detail {

/// Any thread.
class flush_memory {
 public:
  /// 0, or what every flush has to report until the image is opened again.
  [[nodiscard]] int failure() const noexcept { return failure_.load(std::memory_order_acquire); }

  /// Remembers a failure, and returns what this flush has to report.
  [[nodiscard]] int flushed(int error) noexcept {
    int remembered = 0;
    if (error != 0) {
      // The first failure stays. acq_rel and acquire: whoever sees it sees what led to it; nothing
      // depends on more.
      failure_.compare_exchange_strong(remembered, error, std::memory_order_acq_rel,
                                       std::memory_order_acquire);
      return remembered != 0 ? remembered : error;
    }
    return failure();
  }

 private:
  std::atomic<int> failure_{0};
};

}  // namespace pvring::aio::detail
