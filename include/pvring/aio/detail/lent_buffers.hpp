// SPDX-License-Identifier: MIT
// Whether anything between a file and its storage may still hold a buffer when the transfer was
// reported complete: a network that sends a page again, another process that a page is lent to.
// What cannot be found out counts as yes.
#pragma once

#include <limits.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sysfs.hpp"

namespace pvring::aio::detail {

/// Whether a file system of this statfs type may itself hold on to a buffer.
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

/// Whether a file system of this statfs type has nothing below it but memory.
[[nodiscard]] constexpr bool is_in_memory(std::uint64_t magic) noexcept {
  constexpr std::array<std::uint32_t, 2> kinds = {
      0x01021994,  // tmpfs
      0x858458F6,  // ramfs
  };
  return std::ranges::find(kinds, static_cast<std::uint32_t>(magic)) != kinds.end();
}

/// Whether the resolved sysfs path of a block device shows that its data goes through a network, or
/// to a target that may be anything.
[[nodiscard]] constexpr bool is_network_device(std::string_view sysfs_path) noexcept {
  constexpr std::array<std::string_view, 10> signs = {
      "/block/nbd",     "/block/rbd", "/block/drbd",
      "/session",        // iSCSI
      "/nvme-fabrics/",  //
      "/net/",           // FCoE below a network interface
      "/ctlr_",          // and below its own bus
      "/tcm_loop",       // a target of this machine
      "/vhci_hcd",       // USB over IP
      "/block/rnbd",
  };
  return std::ranges::any_of(signs, [&](std::string_view sign) {
    return sysfs_path.find(sign) != std::string_view::npos;
  });
}

/// Where a file lies.
struct file_place {
  std::uint64_t file_system = 0;  ///< statfs's type
  dev_t device = 0;  ///< the block device of its file system; major 0: there is no such one
  std::optional<dev_t> block;  ///< of a block device's node: the device
};

[[nodiscard]] inline file_place place_of(const struct ::stat& what, const struct ::statfs& fs) {
  file_place place{static_cast<std::uint64_t>(fs.f_type), what.st_dev, {}};
  if (S_ISBLK(what.st_mode)) {
    place.block = what.st_rdev;
  }
  return place;
}

[[nodiscard]] inline std::optional<file_place> place_of_path(const std::string& path) {
  struct ::stat what {};
  struct ::statfs fs {};
  if (::stat(path.c_str(), &what) != 0 || ::statfs(path.c_str(), &fs) != 0) {
    return std::nullopt;
  }
  return place_of(what, fs);
}

/// Looks at the devices as they are now: who puts other storage below a device in use (a table of
/// device mapper, a move of a volume) has to see to this himself.
class lent_buffers {
 public:
  using place_function = std::function<std::optional<file_place>(const std::string& path)>;

  /// \param sysfs, place tests put a tree and a table of their own here
  explicit lent_buffers(std::string sysfs = "/sys", place_function place = &place_of_path)
      : sysfs_(std::move(sysfs)), place_of_(std::move(place)) {}

  /// Whether buffers of a file may be held on to.
  /// \param direct whether they go past the page cache; what goes through it is copied there
  [[nodiscard]] bool below_file(const file_place& at, bool direct) const {
    return below_file(at, direct, 0);
  }

  /// Whether buffers of a block device may be held on to.
  [[nodiscard]] bool below_device(dev_t device) const { return below_device(device, 0); }

 private:
  static constexpr int deepest = 8;

  [[nodiscard]] bool below_file(const file_place& at, bool direct, int depth) const {
    if (at.block) {
      return below_device(*at.block, depth);
    }
    if (keeps_buffers(at.file_system)) {
      return true;
    }
    if (!direct || is_in_memory(at.file_system)) {
      return false;
    }
    // Without a device of its own a file system has several, or another file system, below it.
    return major(at.device) == 0 || below_device(at.device, depth);
  }

  [[nodiscard]] bool below_device(dev_t device, int depth) const {
    std::array<char, PATH_MAX> root{};
    std::array<char, PATH_MAX> resolved{};
    if (depth == deepest || ::realpath(sysfs_.c_str(), root.data()) == nullptr ||
        ::realpath(sysfs_of(device, sysfs_).c_str(), resolved.data()) == nullptr) {
      return true;
    }
    std::string disk = resolved.data();
    const std::string top = root.data();
    if (!disk.starts_with(top)) {
      return true;
    }
    // What a partition lies on is said of its disk only.
    if (!first_line(disk + "/partition").empty()) {
      disk = parent_of(disk);
    }
    const std::string_view path = std::string_view(disk).substr(top.size());
    if (is_network_device(path)) {
      return true;
    }
    const std::string_view name = path.substr(path.rfind('/') + 1);
    if (name.starts_with("nvme")) {
      return !is_local_nvme(parent_of(disk));
    }
    return (path.starts_with("/devices/virtual/") && !is_known_virtual(name)) ||
           below_loop(disk, name, depth) || below_members(disk, name, depth);
  }

  static std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

  // Kinds of devices that show what is below them, or have only memory there. Many others without
  // hardware (AoE, ublk, zvol) do not show it.
  static bool is_known_virtual(std::string_view name) {
    return has_members(name) || name.starts_with("loop") || name.starts_with("ram") ||
           name.starts_with("zram");
  }
  static bool has_members(std::string_view name) {
    return name.starts_with("dm-") || name.starts_with("md") || name.starts_with("bcache");
  }

  // `above` is the directory of the controller, or with native multipath that of the subsystem,
  // which holds all its controllers.
  static bool is_local_nvme(const std::string& above) {
    if (const std::string transport = first_line(above + "/transport"); !transport.empty()) {
      return is_local_transport(transport);
    }
    std::size_t controllers = 0;
    for (const std::string& name : names_in(above).value_or(std::vector<std::string>())) {
      if (is_nvme_controller(name)) {
        ++controllers;
        std::string transport = above;
        transport.append("/").append(name).append("/transport");
        if (!is_local_transport(first_line(transport))) {
          return false;
        }
      }
    }
    return controllers != 0;
  }
  static bool is_local_transport(std::string_view transport) {
    return transport == "pcie" || transport == "apple-nvme";
  }
  // nvme0, not nvme0n1 nor nvme0c0n1.
  static bool is_nvme_controller(std::string_view name) {
    constexpr std::string_view kind = "nvme";
    return name.starts_with(kind) && name.size() > kind.size() &&
           name.find_first_not_of("0123456789", kind.size()) == std::string_view::npos;
  }

  [[nodiscard]] bool below_loop(const std::string& disk, std::string_view name, int depth) const {
    const std::string backing = first_line(disk + "/loop/backing_file");
    if (backing.empty()) {
      return name.starts_with("loop");  // one without a file, or one that is not shown to us
    }
    const std::optional<file_place> place = place_of_(backing);
    // As if it was direct: that can be switched on while the device is in use.
    return !place || below_file(*place, true, depth + 1);
  }

  [[nodiscard]] bool below_members(const std::string& disk, std::string_view name,
                                   int depth) const {
    const auto members = names_in(disk + "/slaves");
    if (!members) {
      return has_members(name);
    }
    return std::ranges::any_of(*members, [&](const std::string& member) {
      unsigned high = 0;
      unsigned low = 0;
      const std::string number = first_line(disk + "/slaves/" + member + "/dev");
      return std::sscanf(number.c_str(), "%u:%u", &high, &low) != 2 ||
             below_device(makedev(high, low), depth + 1);
    });
  }

  std::string sysfs_;
  place_function place_of_;
};

/// Whether an open file may keep buffers beyond completion; true when it cannot be found out.
[[nodiscard]] inline bool file_keeps_buffers(int fd, const struct ::stat& what, bool direct) {
  struct ::statfs fs {};
  return ::fstatfs(fd, &fs) != 0 || lent_buffers().below_file(place_of(what, fs), direct);
}

}  // namespace pvring::aio::detail
