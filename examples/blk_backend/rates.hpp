// SPDX-License-Identifier: MIT
// What a device did per second since the last look.
#pragma once

#include <chrono>
#include <cstdint>

#include "platform_access.hpp"

namespace tool {

class rates {
 public:
  std::uint64_t requests = 0;  ///< per second
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;

  void look(const device_numbers& now) {
    const auto at = std::chrono::steady_clock::now();
    const auto per_second = [&](std::uint64_t to, std::uint64_t from) {
      // With a new connection everything begins at 0 again.
      const std::uint64_t done = to >= from ? to - from : to;
      const double seconds = std::chrono::duration<double>(at - last_look_).count();
      return seconds > 0 ? static_cast<std::uint64_t>(static_cast<double>(done) / seconds) : 0;
    };
    requests = per_second(now.requests, last_.requests);
    bytes_read = per_second(now.bytes_read, last_.bytes_read);
    bytes_written = per_second(now.bytes_written, last_.bytes_written);
    last_ = now;
    last_look_ = at;
  }

 private:
  device_numbers last_;
  std::chrono::steady_clock::time_point last_look_ = std::chrono::steady_clock::now();
};

}  // namespace tool
