// SPDX-License-Identifier: MIT
// A number that one thread counts up and any thread may read. It costs the writer an ordinary
// addition.
#pragma once

#include <atomic>
#include <cstdint>

namespace pvring {

class counter {
 public:
  // Relaxed load and store rather than fetch_add: there is one writer, so nothing can be lost
  // between them, and no bus lock is taken. Readers see some recent value; counters order nothing.
  void add(std::uint64_t n = 1) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  void set(std::uint64_t n) noexcept { value_.store(n, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace pvring
