// SPDX-License-Identifier: MIT
// What can be learnt about the storage below an open file without changing it: whether a network
// lies in between, which alignment direct I/O wants, what a discard can free.
#pragma once

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/stat.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <dirent.h>
#include <limits.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace pvring::aio::detail {

/// The sector that is exported to the frontend; no image may need larger units.
inline constexpr std::uint32_t sector_size = 512;

/// Whether a file system of this statfs type may hold on to a buffer after its write was reported
/// complete (a retransmission, a page lent to another process).
[[nodiscard]] constexpr bool keeps_buffers(std::uint64_t magic) noexcept {
  constexpr std::array<std::uint32_t, 17> kinds = {
      0x00006969,  // NFS
      0x0000517B,  // SMB
      0xFF534D42,  // CIFS
      0xFE534D42,  // SMB2 and later
      0x00C36400,  // Ceph
      0x65735546,  // FUSE
      0x01021997,  // 9P
      0x5346414F,  // OpenAFS
      0x6B414653,  // AFS of the kernel
      0x73757245,  // Coda
      0x0000564C,  // NCP
      0x0BD00BD0,  // Lustre
      0x47504653,  // GPFS
      0x20030528,  // OrangeFS
      0x19830326,  // BeeGFS
      0x786F4256,  // VirtualBox shared folders
      0xBACBACBC,  // VMware shared folders
  };
  // Some kernels sign-extend the 32-bit type.
  return std::ranges::find(kinds, static_cast<std::uint32_t>(magic)) != kinds.end();
}

/// Whether a block device with this resolved sysfs path reaches its data through a network.
[[nodiscard]] constexpr bool is_network_device(std::string_view sysfs_path) noexcept {
  constexpr std::array<std::string_view, 5> signs = {"/block/nbd", "/block/rbd", "/block/drbd",
                                                     "/session", "/nvme-fabrics/"};
  return std::ranges::any_of(signs, [&](std::string_view sign) {
    return sysfs_path.find(sign) != std::string_view::npos;
  });
}

/// The first line of a small file, empty when it cannot be read.
[[nodiscard]] inline std::string first_line(const std::string& path) {
  std::string line;
  if (std::FILE* file = std::fopen(path.c_str(), "re")) {
    std::array<char, PATH_MAX> text{};
    if (std::fgets(text.data(), static_cast<int>(text.size()), file) != nullptr) {
      line = text.data();
      line.erase(std::min(line.find('\n'), line.size()));
    }
    std::fclose(file);
  }
  return line;
}

/// The number in a file of /proc or /sys, `otherwise` when it is not there.
[[nodiscard]] inline std::uint64_t number_in(const std::string& path, std::uint64_t otherwise) {
  const std::string line = first_line(path);
  return line.empty() ? otherwise : std::strtoull(line.c_str(), nullptr, 10);
}

/// Where sysfs describes a block device.
[[nodiscard]] inline std::string sysfs_of(dev_t device) {
  return "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
}

/// Whether buffers of a block device are free when its transfers are complete: not where a network
/// lies below it, directly, below a loop device's file, or below a member of a mapped device.
[[nodiscard]] inline bool device_keeps_buffers(dev_t device, int depth = 0) {
  constexpr int deepest = 8;
  if (depth == deepest) {
    return true;  // too deep to know
  }
  const std::string sysfs = sysfs_of(device);
  std::array<char, PATH_MAX> resolved{};
  if (::realpath(sysfs.c_str(), resolved.data()) == nullptr) {
    return true;  // nothing known: assume the worst
  }
  if (is_network_device(resolved.data())) {
    return true;
  }
  const std::string backing = first_line(sysfs + "/loop/backing_file");
  if (!backing.empty()) {
    struct ::statfs fs {};
    struct ::stat what {};
    if (::statfs(backing.c_str(), &fs) != 0 || ::stat(backing.c_str(), &what) != 0 ||
        keeps_buffers(static_cast<std::uint64_t>(fs.f_type)) ||
        (S_ISBLK(what.st_mode) && device_keeps_buffers(what.st_rdev, depth + 1))) {
      return true;
    }
  }
  bool found = false;
  if (DIR* members = ::opendir((sysfs + "/slaves").c_str())) {
    while (const dirent* member = ::readdir(members)) {
      if (member->d_name[0] == '.') {
        continue;  // the folder itself and its parent, which is this device
      }
      unsigned high = 0;
      unsigned low = 0;
      const std::string number = first_line(sysfs + "/slaves/" + member->d_name + "/dev");
      if (std::sscanf(number.c_str(), "%u:%u", &high, &low) == 2) {
        found = found || device_keeps_buffers(makedev(high, low), depth + 1);
      }
    }
    ::closedir(members);
  }
  return found;
}

/// Whether an open file may keep buffers beyond completion; true when it cannot be found out.
[[nodiscard]] inline bool file_keeps_buffers(int fd, const struct ::stat& what) {
  if (S_ISBLK(what.st_mode)) {
    return device_keeps_buffers(what.st_rdev);
  }
  struct ::statfs fs {};
  return ::fstatfs(fd, &fs) != 0 || keeps_buffers(static_cast<std::uint64_t>(fs.f_type));
}

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
