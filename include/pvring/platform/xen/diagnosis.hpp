// SPDX-License-Identifier: MIT
// Says why Xen's devices cannot be opened, and what helps. An errno alone cannot tell a machine
// without Xen from one whose module is not loaded.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

#include "../../base/unique_fd.hpp"

namespace pvring::platform::detail {

/// A device of Xen's, as Linux has it.
struct device_node {
  std::string_view path;
  std::string_view purpose;
  std::string_view module;
};

inline constexpr device_node grant_node{"/dev/xen/gntdev", "to map and copy granted pages",
                                        "xen-gntdev"};
inline constexpr device_node event_node{"/dev/xen/evtchn", "for event channels", "xen-evtchn"};
inline constexpr device_node share_node{"/dev/xen/gntalloc", "to grant pages", "xen-gntalloc"};

/// Whether the kernel runs on Xen, as far as an unprivileged process can see.
[[nodiscard]] inline bool is_xen_host() noexcept {
  if (::access("/proc/xen", F_OK) == 0) {
    return true;
  }
  const unique_fd type(::open("/sys/hypervisor/type", O_RDONLY | O_CLOEXEC));
  char text[3];
  return type && ::read(type.get(), text, sizeof text) == 3 &&
         std::string_view(text, sizeof text) == "xen";
}

inline constexpr std::string_view no_xen =
    "this is not a Xen host: /proc/xen is missing, and so is /sys/hypervisor/type or it names "
    "another hypervisor; use the emulated platform here";

/// What to do about a device that could not be opened.
[[nodiscard]] inline std::string remedy_for(const device_node& node, int error, bool on_xen) {
  if (!on_xen) {
    return std::string(no_xen);
  }
  switch (error) {
    case ENOENT:
    case ENODEV:
    case ENXIO:
      return "load the kernel module " + std::string(node.module) + " (modprobe " +
             std::string(node.module) + ")";
    case EACCES:
    case EPERM:
      return "this user needs the right to read and write the node: run as root, or change the "
             "node's owner or mode";
    case EMFILE:
    case ENFILE:
      return "no descriptor is left: raise the limit (ulimit -n)";
    default:
      return "see the kernel's log";
  }
}

[[noreturn]] inline void refuse_open(const device_node& node, int error, bool on_xen) {
  throw std::system_error(error, std::generic_category(),
                          "xen: cannot open " + std::string(node.path) + ", needed " +
                              std::string(node.purpose) + ": " + remedy_for(node, error, on_xen));
}

/// What to do about a store that could not be opened; `socket` is where xenstored listens.
[[nodiscard]] inline std::string store_remedy_for(std::string_view socket, int error, bool on_xen) {
  if (!on_xen) {
    return std::string(no_xen);
  }
  if (error == EACCES || error == EPERM) {
    return "this user needs the right to connect to " + std::string(socket) +
           " or to read and write /dev/xen/xenbus: run as root, or change owner or mode";
  }
  return "neither xenstored's socket " + std::string(socket) +
         " nor /dev/xen/xenbus can be used: start xenstored, or in a guest load the kernel module "
         "xenfs";
}

[[noreturn]] inline void refuse_store(std::string_view socket, int error, bool on_xen) {
  throw std::system_error(
      error, std::generic_category(),
      "xen: cannot connect to the store: " + store_remedy_for(socket, error, on_xen));
}

/// The errno of a library call that failed; one that forgot to set it did not succeed.
[[nodiscard]] inline int failure() noexcept { return errno != 0 ? errno : EIO; }

}  // namespace pvring::platform::detail
