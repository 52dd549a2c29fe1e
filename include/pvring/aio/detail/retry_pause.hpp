// SPDX-License-Identifier: MIT
// When to try again what the kernel had no room for, if nothing of ours will complete and make
// room: after a pause that doubles up to a bound.
#pragma once

#include <algorithm>
#include <chrono>

namespace pvring::aio::detail {

class retry_pause {
 public:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds shortest{1};
  static constexpr std::chrono::milliseconds longest{16};

  void begin() noexcept {
    until_ = clock::now() + length_;
    length_ = std::min(2 * length_, longest);
  }

  [[nodiscard]] clock::time_point until() const noexcept { return until_; }
  [[nodiscard]] bool is_over() const noexcept { return clock::now() >= until_; }

  /// There was room again.
  void reset() noexcept { length_ = shortest; }

 private:
  clock::time_point until_{};
  std::chrono::milliseconds length_ = shortest;
};

}  // namespace pvring::aio::detail
