// SPDX-License-Identifier: MIT
// How the guest wants its flows hashed and spread over queues: what it has set on the control ring,
// and the way from there to the queues, which look at it and never wait for it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "../protocol/netif_control.hpp"
#include "flow_hash.hpp"
#include "packet.hpp"
#include "toeplitz.hpp"

namespace pvring::net {

/// Entries of the longest table from hashes to queues. Linux has as many.
inline constexpr std::uint32_t most_hash_mappings = 128;

/// What a guest has set. The defaults are those of a connection: no hash, and the queue is ours to
/// choose.
struct steering {
  std::uint32_t algorithm = protocol::netif::hash_algorithm::none;
  std::uint32_t flags = 0;  ///< see protocol::netif::hash_flag
  hash_key key{};
  std::uint32_t mappings = 0;  ///< entries of the table; 0: the hash modulo the number of queues
  std::array<std::uint32_t, most_hash_mappings> mapping{};

  friend bool operator==(const steering&, const steering&) = default;

  [[nodiscard]] bool hashes() const noexcept {
    return algorithm != protocol::netif::hash_algorithm::none && flags != 0;
  }

  /// The queue of a packet; nothing where it is ours to choose. \pre `queues` is not 0
  [[nodiscard]] std::optional<std::uint32_t> queue_of(const flow_hash& hash,
                                                      std::uint32_t queues) const noexcept {
    assert(queues != 0);
    if (!hashes() || hash.algorithm == protocol::netif::hash_algorithm::none) {
      return std::nullopt;
    }
    return mappings == 0 ? hash.value % queues : mapping[hash.value % mappings] % queues;
  }
};

/// One per device. One thread publishes, any thread reads; none waits for another.
///
/// A sequence lock without fences: a reader that sees a word of a newer publication also sees the
/// odd version that was stored before it, as the word's store releases and its load acquires. So
/// what was read between two looks at the same even version is of one publication.
class shared_steering {
 public:
  /// One thread at a time.
  void publish(const steering& value) noexcept {
    const std::uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    const auto words = to_words(value);
    for (std::size_t i = 0; i < words.size(); ++i) {
      words_[i].store(words[i], std::memory_order_release);
    }
    version_.store(version + 2, std::memory_order_release);
  }

  /// Changes with each publication; 0 before the first. What a reader compares before it reads.
  [[nodiscard]] std::uint32_t version() const noexcept {
    return version_.load(std::memory_order_relaxed);
  }

  /// The last publication, and its version. Nothing while one is under way: the reader keeps what
  /// it has, and looks again in its next pass.
  [[nodiscard]] std::optional<std::uint32_t> read(steering& into) const noexcept {
    const std::uint32_t version = version_.load(std::memory_order_acquire);
    if (version % 2 != 0) {
      return std::nullopt;
    }
    word_array words;
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = words_[i].load(std::memory_order_acquire);
    }
    if (version_.load(std::memory_order_relaxed) != version) {
      return std::nullopt;
    }
    into = from_words(words);
    return version;
  }

 private:
  static constexpr std::size_t key_words = longest_hash_key / sizeof(std::uint32_t);
  static constexpr std::size_t head_words = 3;
  using word_array = std::array<std::uint32_t, head_words + key_words + most_hash_mappings>;

  static word_array to_words(const steering& from) noexcept {
    word_array out{from.algorithm, from.flags, from.mappings};
    for (std::size_t i = 0; i < from.key.size(); ++i) {
      out[head_words + i / 4] |= std::uint32_t{from.key[i]} << (i % 4 * 8);
    }
    std::copy(from.mapping.begin(), from.mapping.end(), out.begin() + head_words + key_words);
    return out;
  }
  static steering from_words(const word_array& words) noexcept {
    steering out;
    out.algorithm = words[0];
    out.flags = words[1];
    out.mappings = words[2];
    for (std::size_t i = 0; i < out.key.size(); ++i) {
      out.key[i] = static_cast<std::uint8_t>(words[head_words + i / 4] >> (i % 4 * 8));
    }
    std::copy(words.begin() + head_words + key_words, words.end(), out.mapping.begin());
    return out;
  }

  std::atomic<std::uint32_t> version_{0};
  std::array<std::atomic<std::uint32_t>, std::tuple_size_v<word_array>> words_{};
};

/// A queue's own view of it. One thread uses it.
class flow_hasher {
 public:
  /// `shared` outlives it.
  explicit flow_hasher(const shared_steering& shared) noexcept : shared_(shared) {}

  /// Takes over what the guest has set since. Once in a pass: one load where nothing changed.
  void refresh() noexcept {
    if (shared_.version() == version_) [[likely]] {
      return;
    }
    const hash_key before = steering_.key;
    if (const auto version = shared_.read(steering_)) {
      version_ = *version;
      if (steering_.key != before) {
        table_.set(steering_.key);
      }
    }
  }

  /// Whether packets have hashes at all.
  [[nodiscard]] bool active() const noexcept { return steering_.hashes(); }
  /// \param head the frame's first bytes, 128 of them or all  \param length of the whole frame
  [[nodiscard]] flow_hash operator()(std::span<const std::byte> head,
                                     std::size_t length) const noexcept {
    return active() ? hash_of(head, length, steering_.flags, table_) : flow_hash{};
  }
  [[nodiscard]] const steering& current() const noexcept { return steering_; }

 private:
  const shared_steering& shared_;
  std::uint32_t version_ = 0;
  steering steering_;
  toeplitz_table table_;
};

}  // namespace pvring::net
