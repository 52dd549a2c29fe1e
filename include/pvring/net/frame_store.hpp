// SPDX-License-Identifier: MIT
// Frames on their way to the guest: read from the uplink right into where they stay until they are
// in the guest's pages. Its bytes are its limit, so nobody can make it grow.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../grant/arena.hpp"
#include "../platform/grant_mapper.hpp"
#include "packet.hpp"

namespace pvring::net {

/// First in, first out, in a circle. One thread uses it; nothing allocates after construction.
///
/// A frame is put (`room`, `keep`), then passed (`passed`: it was given to the mover, its bytes are
/// still needed), then dropped from the front (`forget_passed`, `drop_front`).
class frame_store {
 public:
  struct frame {
    std::uint32_t position = 0;  ///< bytes into the store
    std::uint32_t length = 0;    ///< bytes
    packet_info info;
    std::uint64_t since = 0;  ///< milliseconds of the caller's clock
  };

  /// \param bytes as much as is kept at most; another `max_frame_bytes` are there to read into
  /// \throws std::system_error when there is no memory for it
  explicit frame_store(std::size_t bytes)
      : pages_(pages_for(bytes)), arena_(pages_for(bytes)), frames_(most_frames) {}

  /// Where the next frame goes: `max_frame_bytes`, or nothing where there is no room for one.
  [[nodiscard]] std::span<std::byte> room() noexcept {
    if (count_ == most_frames) {
      return {};
    }
    if (count_ == 0) {
      tail_ = 0;  // the same lines again and again: they are warm
    } else {
      const std::uint32_t head = front().position;
      if (tail_ > head && bytes() - tail_ < max_frame_bytes) {
        tail_ = 0;
      }
      if (tail_ <= head && head - tail_ <= max_frame_bytes) {
        return {};
      }
    }
    return {arena_.page(0) + tail_, max_frame_bytes};
  }

  /// The frame that was read into `room()`.
  void keep(std::size_t length, const packet_info& info, std::uint64_t since) noexcept {
    assert(count_ < most_frames && length <= max_frame_bytes);
    frames_[(first_ + count_) % most_frames] = {tail_, static_cast<std::uint32_t>(length), info,
                                                since};
    ++count_;
    // Small ones share a page, and none of those crosses its end: an operation of a copy would
    // have to be cut there. Behind a larger one a page begins, so that its pages and the guest's
    // begin at the same bytes.
    const auto end = static_cast<std::uint32_t>(tail_ + length);
    const std::uint32_t line = (end + 63) & ~std::uint32_t{63};
    const std::uint32_t page = (end + page_mask) & ~page_mask;
    tail_ = length < small && page - line >= small ? line : page;
  }

  /// The time of `next()`, for a frame that has come to wait.
  void stamp_next(std::uint64_t since) noexcept {
    assert(has_next());
    frames_[(first_ + passed_) % most_frames].since = since;
  }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] bool has_passed() const noexcept { return passed_ != 0; }
  /// Whether there is a frame that was not passed yet; `next` is the first of them.
  [[nodiscard]] bool has_next() const noexcept { return passed_ != count_; }
  [[nodiscard]] const frame& next() const noexcept {
    assert(has_next());
    return frames_[(first_ + passed_) % most_frames];
  }
  [[nodiscard]] const std::byte* bytes_of(const frame& f) const noexcept {
    return arena_.page(0) + f.position;
  }
  void pass() noexcept {
    assert(has_next());
    ++passed_;
  }
  /// Those that were passed are in the guest.
  void forget_passed() noexcept {
    first_ = (first_ + passed_) % most_frames;
    count_ -= passed_;
    passed_ = 0;
  }
  /// The first of those that were not passed is given up. \pre none is passed
  void drop_next() noexcept {
    assert(passed_ == 0 && count_ != 0);
    pass();
    forget_passed();
  }

  /// Bytes of memory that it ever has.
  [[nodiscard]] std::size_t bytes() const noexcept { return pages_ * platform::page_size; }

 private:
  static constexpr std::uint32_t most_frames = 1024;
  static constexpr std::uint32_t page_mask = platform::page_size - 1;
  static constexpr std::uint32_t small = platform::page_size / 2;

  // Two frames fit at the least: a store that could hold only one would wait for itself at its end.
  static std::uint32_t pages_for(std::size_t bytes) noexcept {
    constexpr std::size_t frame_pages =
        (max_frame_bytes + platform::page_size - 1) / platform::page_size;
    return static_cast<std::uint32_t>(bytes / platform::page_size + 2 * frame_pages + 1);
  }

  [[nodiscard]] const frame& front() const noexcept { return frames_[first_]; }

  std::size_t pages_;
  grant::arena arena_;
  std::vector<frame> frames_;
  std::uint32_t first_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t passed_ = 0;
  std::uint32_t tail_ = 0;
};

}  // namespace pvring::net
