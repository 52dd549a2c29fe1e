// SPDX-License-Identifier: MIT
// The only file that touches peer-writable ring memory. Every access is one relaxed or stronger
// atomic operation on a naturally aligned word: the compiler can neither repeat it nor tear it, and
// a racing peer is not undefined behaviour.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pvring::ring {

namespace detail {
// A peer's page has no declared type in this program, and std::atomic_ref of a const type is not to
// be had in C++20.
template <std::integral T>
[[nodiscard]] std::atomic_ref<T> word_at(std::byte* address) noexcept {
  static_assert(std::atomic_ref<T>::is_always_lock_free);
  return std::atomic_ref<T>(*reinterpret_cast<T*>(address));  // NOLINT(*-reinterpret-cast)
}
}  // namespace detail

/// A slot to read from.
class slot_source {
 public:
  explicit slot_source(std::byte* slot) noexcept : slot_(slot) {}

  /// One load. \pre `offset` is a multiple of sizeof(T), counted from an address that is one too
  // Relaxed: the acquire load of the producer index came before, and orders this after the peer's
  // writes.
  template <std::integral T>
  [[nodiscard]] T load(std::size_t offset) const noexcept {
    return detail::word_at<T>(slot_ + offset).load(std::memory_order_relaxed);
  }

 private:
  std::byte* slot_;
};

/// A slot to write to.
class slot_sink {
 public:
  explicit slot_sink(std::byte* slot) noexcept : slot_(slot) {}

  // Relaxed: publishing the producer index comes after, and releases this.
  template <std::integral T>
  void store(std::size_t offset, T value) const noexcept {
    detail::word_at<T>(slot_ + offset).store(value, std::memory_order_relaxed);
  }

 private:
  std::byte* slot_;
};

/// One of the four indices in the ring page.
template <std::unsigned_integral Index>
class shared_index {
 public:
  explicit shared_index(std::byte* address) noexcept : address_(address) {}

  [[nodiscard]] Index load(std::memory_order order) const noexcept {
    return detail::word_at<Index>(address_).load(order);
  }
  void store(Index value, std::memory_order order) const noexcept {
    detail::word_at<Index>(address_).store(value, order);
  }

 private:
  std::byte* address_;
};

/// Copies `bytes` bytes out of memory that a peer may be writing, each byte loaded once, 8 at a
/// time. \pre `from` is aligned to 8 bytes and `bytes` is a multiple of 8
inline void copy_once(void* to, std::byte* from, std::size_t bytes) noexcept {
  auto* out = static_cast<std::byte*>(to);
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word =
        detail::word_at<std::uint64_t>(from + at).load(std::memory_order_relaxed);
    std::memcpy(out + at, &word, sizeof word);
  }
}

}  // namespace pvring::ring
