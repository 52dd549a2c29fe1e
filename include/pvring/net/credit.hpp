// SPDX-License-Identifier: MIT
// How much a guest may transmit: one bucket per device, whatever number of queues it has. A queue
// takes a slice of it by one atomic operation, and pays its packets from that.
#pragma once

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "../base/error.hpp"

namespace pvring::net {

/// `bytes` in every `microseconds`; 0 bytes: unlimited.
struct credit_rate {
  std::uint64_t bytes = 0;
  std::uint32_t microseconds = 0;

  friend bool operator==(const credit_rate&, const credit_rate&) = default;
};

/// The node `rate` of a network device: "bytes,microseconds".
/// \throws configuration_error that says what is wrong with it
[[nodiscard]] inline credit_rate parse_credit_rate(std::string_view text) {
  const auto refuse = [&] {
    throw configuration_error("'" + std::string(text) +
                              "' is no rate: it takes two numbers above 0, bytes and microseconds, "
                              "as in 20000,50000");
  };
  credit_rate rate;
  const char* const end = text.data() + text.size();
  const auto bytes = std::from_chars(text.data(), end, rate.bytes);
  if (bytes.ec != std::errc() || bytes.ptr == end || *bytes.ptr != ',') {
    refuse();
  }
  const auto time = std::from_chars(bytes.ptr + 1, end, rate.microseconds);
  if (time.ec != std::errc() || time.ptr != end || rate.bytes == 0 || rate.microseconds == 0) {
    refuse();
  }
  return rate;
}

/// Any thread uses it. What all queues together have taken by a time t is at most the rate times t
/// and `burst` bytes.
class credit_bucket {
 public:
  /// Bytes that may have been saved up: the longest packet always fits. Linux saves as much.
  static constexpr std::uint64_t least_burst = 131'072;

  /// From now on; what was saved up is kept.
  void set(const credit_rate& rate) noexcept {
    // Whoever sees one of the two only pays one packet at a wrong price.
    microseconds_.store(rate.microseconds, std::memory_order_relaxed);
    bytes_.store(rate.bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] bool unlimited() const noexcept {
    return bytes_.load(std::memory_order_relaxed) == 0;
  }

  /// Takes `bytes` and, where there are more, up to a sixteenth of a window with them. Returns what
  /// it took; 0: not yet, and `again` is when, in microseconds of the clock.
  [[nodiscard]] std::uint64_t take(std::uint64_t bytes, std::uint64_t now,
                                   std::uint64_t& again) noexcept {
    const std::uint64_t per_window = bytes_.load(std::memory_order_relaxed);
    const std::uint64_t window = microseconds_.load(std::memory_order_relaxed);
    if (per_window == 0 || window == 0) {
      return ~std::uint64_t{0};
    }
    const std::uint64_t slice = std::max(bytes, per_window / 16);
    const double price = static_cast<double>(window) * 1000 / static_cast<double>(per_window);
    const auto cost = static_cast<std::uint64_t>(static_cast<double>(slice) * price);
    const auto saved =
        static_cast<std::uint64_t>(static_cast<double>(std::max(least_burst, per_window)) * price);
    const std::uint64_t time = now * 1000;
    // The bucket is a time: the one at which all that was taken has been earned. It runs behind the
    // clock while credit is saved up, and ahead of it never. Relaxed: nothing but the number itself
    // is passed on.
    std::uint64_t earned = earned_.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint64_t from = std::max(earned, time > saved ? time - saved : 0);
      if (from + cost > time) {
        again = (from + cost + 999) / 1000;
        return 0;
      }
      if (earned_.compare_exchange_weak(earned, from + cost, std::memory_order_relaxed)) {
        return slice;
      }
    }
  }

 private:
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> microseconds_{0};
  std::atomic<std::uint64_t> earned_{0};  // nanoseconds
};

/// What a queue has taken and not spent. One thread uses it.
class credit_slice {
 public:
  /// Spends `bytes`. False: not yet; see `again_at_us`. \param now microseconds
  [[nodiscard]] bool take(credit_bucket& bucket, std::uint32_t bytes, std::uint64_t now) noexcept {
    if (left_ < bytes) {
      const std::uint64_t more = bucket.take(bytes - left_, now, again_);
      if (more == 0) {
        return false;
      }
      if (more == ~std::uint64_t{0}) {  // unlimited meanwhile
        left_ = 0;
        return true;
      }
      left_ += more;
    }
    left_ -= bytes;
    return true;
  }
  [[nodiscard]] std::uint64_t again_at_us() const noexcept { return again_; }

 private:
  std::uint64_t left_ = 0;
  std::uint64_t again_ = 0;
};

}  // namespace pvring::net
