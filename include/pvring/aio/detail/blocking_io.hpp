// SPDX-License-Identifier: MIT
// What has no asynchronous form: discard, write zeroes and, on old kernels, flush. Each blocks, so
// only the helper thread calls it.
#pragma once

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "../engine.hpp"

namespace pvring::aio::detail {

/// Repeats `call` while a signal interrupts it; 0 or a negative errno.
template <class Call>
int uninterrupted(Call call) noexcept {
  int result = 0;
  do {
    result = static_cast<int>(call());
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : -errno;
}

/// Calls `f(offset, length)` for pieces of a range, so that no single call occupies the device for
/// long.
template <class F>
int in_pieces(std::uint64_t offset, std::uint64_t length, F f) noexcept {
  constexpr std::uint64_t most = std::uint64_t{1} << 30U;
  while (length != 0) {
    const std::uint64_t n = std::min(length, most);
    if (const int error = f(offset, n)) {
      return error;
    }
    offset += n;
    length -= n;
  }
  return 0;
}

/// What the kernel answers where an operation does not exist differs by layer; callers see one
/// errno.
[[nodiscard]] constexpr int unified(int error) noexcept {
  return error == -ENOTTY || error == -ENODEV || error == -ENOSYS ? -EOPNOTSUPP : error;
}

[[nodiscard]] inline int flush_file(int fd) noexcept {
  return uninterrupted([=] { return ::fdatasync(fd); });
}

[[nodiscard]] inline int discard_file(int fd, bool block_device, std::uint64_t offset,
                                      std::uint64_t length) noexcept {
  return in_pieces(offset, length, [=](std::uint64_t at, std::uint64_t n) {
    return unified(uninterrupted([=] {
      if (block_device) {
        std::array<std::uint64_t, 2> range = {at, n};
        return ::ioctl(fd, BLKDISCARD, range.data());
      }
      return ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
                         static_cast<off_t>(n));
    }));
  });
}

/// Aligned and sized for any direct I/O that the library does.
alignas(4096) inline constinit std::array<std::byte, 65536> zeroes{};

[[nodiscard]] inline int write_zeroes_by_hand(int fd, std::uint64_t offset,
                                              std::uint64_t length) noexcept {
  while (length != 0) {
    const ssize_t put = ::pwrite(fd, zeroes.data(), std::min<std::uint64_t>(length, zeroes.size()),
                                 static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      return put == 0 ? -ENOSPC : -errno;
    }
    offset += static_cast<std::uint64_t>(put);
    length -= static_cast<std::uint64_t>(put);
  }
  return 0;
}

[[nodiscard]] inline int zero_file(int fd, bool block_device, std::uint64_t offset,
                                   std::uint64_t length) noexcept {
  return in_pieces(offset, length, [=](std::uint64_t at, std::uint64_t n) {
    const int error = unified(uninterrupted([=] {
      if (block_device) {
        std::array<std::uint64_t, 2> range = {at, n};
        return ::ioctl(fd, BLKZEROOUT, range.data());
      }
      return ::fallocate(fd, FALLOC_FL_ZERO_RANGE, static_cast<off_t>(at), static_cast<off_t>(n));
    }));
    return error == -EOPNOTSUPP ? write_zeroes_by_hand(fd, at, n) : error;
  });
}

/// Performs a flush, discard or write_zeroes; 0 or a negative errno.
[[nodiscard]] inline int perform_blocking(const transfer& work, int fd,
                                          bool block_device) noexcept {
  switch (work.kind) {
    case operation::flush:
      return flush_file(fd);
    case operation::discard:
      return discard_file(fd, block_device, work.offset, work.length);
    case operation::write_zeroes:
      return zero_file(fd, block_device, work.offset, work.length);
    case operation::read:
    case operation::write:
      break;
  }
  return -EOPNOTSUPP;
}

}  // namespace pvring::aio::detail
