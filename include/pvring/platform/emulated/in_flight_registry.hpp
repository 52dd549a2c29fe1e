// SPDX-License-Identifier: MIT
// Which addresses are being read or written by an engine at the moment. A test's engine marks them,
// and the emulated platform refuses and records an unmap of a marked page, which a real kernel
// would let pass and corrupt memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace pvring::platform {

/// Any thread may call these. Nothing allocates after construction.
class in_flight_registry {
 public:
  /// \param capacity ranges in flight at most; what goes beyond is counted in `dropped` and not watched
  explicit in_flight_registry(std::size_t capacity = 4096) { ranges_.reserve(capacity); }

  /// I/O on the range begins.
  void begin(const void* address, std::size_t length) noexcept {
    const std::lock_guard lock(mutex_);
    if (ranges_.size() == ranges_.capacity()) {
      ++dropped_;
      return;
    }
    ranges_.push_back({reinterpret_cast<std::uintptr_t>(address), length});
  }

  /// I/O on the range ended; the same range may be in flight more than once, and one of them ends.
  void end(const void* address, std::size_t length) noexcept {
    const std::lock_guard lock(mutex_);
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (range& r : ranges_) {
      if (r.address == at && r.length == length) {
        r = ranges_.back();
        ranges_.pop_back();
        return;
      }
    }
  }

  /// Called by the platform before it unmaps: true, and a recorded violation, when the pages are in
  /// flight.
  [[nodiscard]] bool unmapping(const void* address, std::size_t length) noexcept {
    const std::lock_guard lock(mutex_);
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    for (const range& r : ranges_) {
      if (r.address < at + length && at < r.address + r.length) {
        ++violations_;
        return true;
      }
    }
    return false;
  }

  /// Unmaps of pages that were in flight: 0 in a correct backend.
  [[nodiscard]] std::uint64_t violations() const noexcept { return locked(violations_); }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return locked(dropped_); }
  [[nodiscard]] std::size_t in_flight() const noexcept {
    const std::lock_guard lock(mutex_);
    return ranges_.size();
  }

 private:
  struct range {
    std::uintptr_t address;
    std::size_t length;
  };

  [[nodiscard]] std::uint64_t locked(const std::uint64_t& value) const noexcept {
    const std::lock_guard lock(mutex_);
    return value;
  }

  mutable std::mutex mutex_;
  std::vector<range> ranges_;
  std::uint64_t violations_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace pvring::platform
