// SPDX-License-Identifier: MIT
// A double of a ring slot that counts how often each byte is loaded or stored, and can change under
// its reader: after every load, all its bytes become something else.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>

class counting_slot {
 public:
  static constexpr std::size_t capacity = 112;

  explicit counting_slot(std::size_t alignment) : alignment_(alignment) {
    bytes.fill(std::byte{0xee});
  }

  /// What a protocol is handed in place of ring::slot_source and ring::slot_sink.
  class handle {
   public:
    explicit handle(counting_slot& slot) noexcept : slot_(&slot) {}
    template <std::integral T>
    [[nodiscard]] T load(std::size_t offset) const noexcept {
      slot_->touch(slot_->loads, offset, sizeof(T));
      T value;
      std::memcpy(&value, slot_->bytes.data() + offset, sizeof value);
      if (slot_->hostile) {
        for (std::byte& b : slot_->bytes) {
          b = ~b;
        }
      }
      return value;
    }
    template <std::integral T>
    void store(std::size_t offset, T value) const noexcept {
      slot_->touch(slot_->stores, offset, sizeof(T));
      std::memcpy(slot_->bytes.data() + offset, &value, sizeof value);
    }

   private:
    counting_slot* slot_;
  };

  [[nodiscard]] handle access() noexcept { return handle(*this); }

  template <std::integral T>
  void put(std::size_t offset, T value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
  }

  [[nodiscard]] static std::set<std::size_t> touched(const std::array<int, capacity>& counts) {
    std::set<std::size_t> offsets;
    for (std::size_t i = 0; i < capacity; ++i) {
      if (counts[i] != 0) {
        offsets.insert(i);
      }
    }
    return offsets;
  }
  [[nodiscard]] int most_loads_of_a_byte() const {
    int most = 0;
    for (const int n : loads) {
      most = n > most ? n : most;
    }
    return most;
  }

  std::array<std::byte, capacity> bytes{};
  std::array<int, capacity> loads{};
  std::array<int, capacity> stores{};
  bool hostile = false;

 private:
  void touch(std::array<int, capacity>& counts, std::size_t offset,
             std::size_t size) const noexcept {
    // A word of the ring is only atomic where it is aligned; slots of the 32-bit ABI are to 4
    // bytes.
    EXPECT_EQ(offset % size, 0U);
    EXPECT_LE(size, alignment_);
    ASSERT_LE(offset + size, capacity);
    for (std::size_t i = offset; i < offset + size; ++i) {
      ++counts[i];
    }
  }

  std::size_t alignment_;
};
