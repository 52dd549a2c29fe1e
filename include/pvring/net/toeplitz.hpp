// SPDX-License-Identifier: MIT
// The Toeplitz hash by which receive-side scaling spreads flows over queues: what it is, bit by
// bit, and a table that calculates the same for every packet.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pvring::net {

/// Bytes of the longest input: two IPv6 addresses and two ports.
inline constexpr std::size_t longest_hash_input = 36;
/// Bytes of the longest key: those that the longest input meets. Linux takes no longer one either.
inline constexpr std::size_t longest_hash_key = longest_hash_input + sizeof(std::uint32_t);

using hash_key = std::array<std::uint8_t, longest_hash_key>;

namespace detail {
// The 32 bits of the key that begin at a bit of the input. \pre bit < longest_hash_input * 8
[[nodiscard]] constexpr std::uint32_t key_window(const hash_key& key, std::size_t bit) noexcept {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    bits = bits << 8U | key[bit / 8 + i];
  }
  return static_cast<std::uint32_t>(bits >> (8 - bit % 8));
}
}  // namespace detail

/// The sum, without carry, of the 32 bits of the key that begin at each bit of `data` that is set.
/// The definition, as xen/io/netif.h has it; slow. \pre `data` is at most `longest_hash_input`
[[nodiscard]] constexpr std::uint32_t toeplitz(const hash_key& key,
                                               std::span<const std::uint8_t> data) noexcept {
  assert(data.size() <= longest_hash_input);
  std::uint32_t hash = 0;
  for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
    if ((data[bit / 8] >> (7 - bit % 8) & 1U) != 0) {
      hash ^= detail::key_window(key, bit);
    }
  }
  return hash;
}

/// The same of one key, four bits of the input at a time: 4.5 KiB, which stay in the cache where a
/// table of whole bytes would fill it.
class toeplitz_table {
 public:
  toeplitz_table() = default;  ///< of the key of zeros: every hash is 0
  explicit toeplitz_table(const hash_key& key) noexcept { set(key); }

  /// Costs about as much as a few dozen hashes.
  void set(const hash_key& key) noexcept {
    for (std::size_t half = 0; half < halves_.size(); ++half) {
      std::array<std::uint32_t, 16>& sums = halves_[half];
      sums[0] = 0;
      // Each value is its highest bit and a smaller value, whose sum is there already.
      for (std::size_t bit = 0; bit < 4; ++bit) {
        const std::uint32_t window = detail::key_window(key, half * 4 + (3 - bit));
        const std::size_t first = std::size_t{1} << bit;
        for (std::size_t value = 0; value < first; ++value) {
          sums[first + value] = sums[value] ^ window;
        }
      }
    }
  }

  /// \pre `data` is at most `longest_hash_input`
  [[nodiscard]] std::uint32_t operator()(std::span<const std::uint8_t> data) const noexcept {
    assert(data.size() <= longest_hash_input);
    std::uint32_t hash = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      hash ^= halves_[2 * i][data[i] >> 4U] ^ halves_[2 * i + 1][data[i] & 0xfU];
    }
    return hash;
  }

 private:
  std::array<std::array<std::uint32_t, 16>, longest_hash_input * 2> halves_{};
};

}  // namespace pvring::net
