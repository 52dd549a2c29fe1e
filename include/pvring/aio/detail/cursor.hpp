// SPDX-License-Identifier: MIT
// How far a read or write has come in its buffers, and which piece of it one system call can take
// next. The caller's array of buffers is never changed: a piece is either one (part of a) buffer,
// or whole entries of that array.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace pvring::aio::detail {

class cursor {
 public:
  /// What the kernel takes in one call: entries (UIO_MAXIOV) and bytes (MAX_RW_COUNT with 64 KiB
  /// pages, the least).
  static constexpr std::size_t most_entries = 1024;
  static constexpr std::uint64_t most_bytes = 0x7fff0000;

  struct piece {
    std::span<const iovec>
        entries;              ///< whole entries of the caller's array; empty when it is one run
    void* address = nullptr;  ///< the run
    std::uint64_t bytes = 0;  ///< what the piece transfers when it is not cut short
  };

  [[nodiscard]] static std::uint64_t sum(std::span<const iovec> buffers) noexcept {
    std::uint64_t bytes = 0;
    for (const iovec& buffer : buffers) {
      bytes += buffer.iov_len;
    }
    return bytes;
  }

  cursor() = default;
  explicit cursor(std::span<const iovec> buffers) noexcept : buffers_(buffers) { settle(); }

  [[nodiscard]] bool at_end() const noexcept { return buffers_.empty(); }

  /// The next piece. Precondition: !at_end().
  [[nodiscard]] piece next() const noexcept {
    if (within_ != 0 || buffers_.size() == 1 || buffers_.front().iov_len > most_bytes) {
      const iovec& first = buffers_.front();
      return {{},
              static_cast<std::byte*>(first.iov_base) + within_,
              std::min<std::uint64_t>(first.iov_len - within_, most_bytes)};
    }
    std::uint64_t bytes = 0;
    std::size_t n = 0;
    const std::size_t most = std::min(buffers_.size(), most_entries);
    while (n < most && buffers_[n].iov_len <= most_bytes - bytes) {
      bytes += buffers_[n].iov_len;
      ++n;
    }
    return {buffers_.first(n), nullptr, bytes};
  }

  /// Moves on by `bytes`, at most to the end.
  void advance(std::uint64_t bytes) noexcept {
    within_ += bytes;
    settle();
  }

  /// Fills `bytes` bytes with zeroes from `skip` bytes further on, and stays where it is.
  void zero_from(std::uint64_t skip, std::uint64_t bytes) const noexcept {
    std::uint64_t start = within_ + skip;
    for (const iovec& buffer : buffers_) {
      if (start < buffer.iov_len) {
        const std::uint64_t n = std::min<std::uint64_t>(bytes, buffer.iov_len - start);
        std::memset(static_cast<std::byte*>(buffer.iov_base) + start, 0, n);
        bytes -= n;
        start = 0;
      } else {
        start -= buffer.iov_len;
      }
      if (bytes == 0) {
        return;
      }
    }
  }

 private:
  // Invariant: within_ is inside the first buffer, or there is no buffer left. Empty buffers are
  // skipped.
  void settle() noexcept {
    while (!buffers_.empty() && within_ >= buffers_.front().iov_len) {
      within_ -= buffers_.front().iov_len;
      buffers_ = buffers_.subspan(1);
    }
  }

  std::span<const iovec> buffers_;
  std::uint64_t within_ = 0;
};

}  // namespace pvring::aio::detail
