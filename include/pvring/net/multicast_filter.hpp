// SPDX-License-Identifier: MIT
// The multicast groups that a guest has joined. One per device: any queue may carry the request,
// and any may get a frame for a group.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pvring::net {

/// Any thread uses it, without a lock. A frame that races with its group's request may go either
/// way, as it may on a wire.
class multicast_filter {
 public:
  using address = std::array<std::uint8_t, 6>;
  /// Groups at a time, as Linux has it.
  static constexpr std::size_t capacity = 64;

  /// True when the group is there: also when it was before. False: there is no room, or the address
  /// is none of a group.
  bool add(const address& group) noexcept {
    if ((group[0] & 1U) == 0) {
      return false;
    }
    const std::uint64_t key = key_of(group);
    if (find(key)) {
      return true;
    }
    // Two queues that add the same group at once may put it in twice; `remove` takes both.
    for (std::atomic<std::uint64_t>& place : places_) {
      std::uint64_t nothing = 0;
      if (place.compare_exchange_strong(nothing, key, std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  /// True when the group was there.
  bool remove(const address& group) noexcept {
    bool found = false;
    for (std::atomic<std::uint64_t>& place : places_) {
      std::uint64_t key = key_of(group);
      found |= place.compare_exchange_strong(key, 0, std::memory_order_relaxed);
    }
    return found;
  }

  /// Whether a frame for this group is to be delivered.
  [[nodiscard]] bool wants(const address& group) const noexcept { return find(key_of(group)); }

  /// Of the guest that was there before. \pre no queue runs
  void clear() noexcept {
    for (std::atomic<std::uint64_t>& place : places_) {
      place.store(0, std::memory_order_relaxed);
    }
  }

 private:
  // Never 0: a group's address has a bit set.
  static std::uint64_t key_of(const address& group) noexcept {
    std::uint64_t key = 0;
    for (const std::uint8_t byte : group) {
      key = key << 8U | byte;
    }
    return key;
  }
  [[nodiscard]] bool find(std::uint64_t key) const noexcept {
    for (const std::atomic<std::uint64_t>& place : places_) {
      if (place.load(std::memory_order_relaxed) == key) {
        return true;
      }
    }
    return false;
  }

  std::array<std::atomic<std::uint64_t>, capacity> places_{};
};

}  // namespace pvring::net
