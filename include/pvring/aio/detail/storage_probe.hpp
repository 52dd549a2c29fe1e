// SPDX-License-Identifier: MIT
// What can be learnt about the storage below an open file without changing it: which alignment
// direct I/O wants, what a discard can free, below which size the storage reads in order to modify.
#pragma once

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/stat.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include "sysfs.hpp"

namespace pvring::aio::detail {

/// The sector that is exported to the frontend; no image may need larger units.
inline constexpr std::uint32_t sector_size = 512;

/// The alignment that direct I/O on `fd` wants of buffers, offsets and lengths; 0 when it cannot be
/// done in units of one sector. Precondition: O_DIRECT is set on `fd`.
[[nodiscard]] inline std::uint32_t direct_alignment(int fd, const struct ::stat& what) {
  if (S_ISBLK(what.st_mode)) {
    int logical = 0;
    return ::ioctl(fd, BLKSSZGET, &logical) == 0 && logical > 0 &&
                   static_cast<std::uint32_t>(logical) <= sector_size
               ? sector_size
               : 0;
  }
#ifdef STATX_DIOALIGN
  // By number, since the C library's own declarations are older than this field.
  struct statx wide {};
  if (::syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &wide) == 0 &&
      (wide.stx_mask & STATX_DIOALIGN) != 0) {
    const std::uint32_t most = std::max(wide.stx_dio_mem_align, wide.stx_dio_offset_align);
    return wide.stx_dio_mem_align != 0 && wide.stx_dio_offset_align != 0 && most <= sector_size
               ? sector_size
               : 0;
  }
#endif
  // One sector at an address that is no better aligned than a sector.
  alignas(2 * sector_size) std::array<std::byte, 2 * sector_size> room{};
  ssize_t got = 0;
  do {
    got = ::pread(fd, room.data() + sector_size, sector_size, 0);
  } while (got < 0 && errno == EINTR);
  return got >= 0 ? sector_size : 0;
}

/// The unit in which a discard frees storage, 0 when it cannot. Precondition: `fd` is writable.
[[nodiscard]] inline std::uint32_t discard_unit(int fd, const struct ::stat& what,
                                                std::uint64_t bytes) {
  constexpr std::uint64_t most = 1U << 30U;
  if (S_ISBLK(what.st_mode)) {
    // A partition's queue is its disk's.
    for (const char* queue : {"/queue/", "/../queue/"}) {
      const std::string at = sysfs_of(what.st_rdev) + queue;
      if (number_in(at + "discard_max_bytes", 0) != 0) {
        const std::uint64_t unit = number_in(at + "discard_granularity", sector_size);
        return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(unit, sector_size, most));
      }
    }
    return 0;
  }
  struct ::statfs fs {};
  if (::fstatfs(fd, &fs) != 0) {
    return 0;
  }
  const std::uint64_t unit =
      std::clamp<std::uint64_t>(static_cast<std::uint64_t>(fs.f_bsize), sector_size, most);
  // A hole beyond the end that keeps the size: it changes no byte, and says whether holes can be
  // punched.
  const std::uint64_t beyond = (bytes + unit - 1) / unit * unit;
  return ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(beyond),
                     static_cast<off_t>(unit)) == 0
             ? static_cast<std::uint32_t>(unit)
             : 0;
}

/// Whether the device below an open file has queues whose completions the kernel can poll for.
[[nodiscard]] inline bool can_be_polled(const struct ::stat& what) {
  const std::string at = sysfs_of(S_ISBLK(what.st_mode) ? what.st_rdev : what.st_dev);
  // A partition's queue is its disk's.
  return number_in(at + "/queue/io_poll", 0) != 0 || number_in(at + "/../queue/io_poll", 0) != 0;
}

/// The size below which the storage reads in order to modify.
[[nodiscard]] inline std::uint32_t modify_unit(int fd, const struct ::stat& what) {
  constexpr std::uint32_t page = 4096;  // what a page cache or an ordinary file system works in
  std::uint64_t unit = sector_size;
  if (S_ISBLK(what.st_mode)) {
    unsigned physical = 0;
    unit = ::ioctl(fd, BLKPBSZGET, &physical) == 0 ? physical : sector_size;
  } else if (struct ::statfs fs{}; ::fstatfs(fd, &fs) == 0) {
    unit = static_cast<std::uint64_t>(fs.f_bsize);
  }
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(unit, sector_size, page));
}

}  // namespace pvring::aio::detail
