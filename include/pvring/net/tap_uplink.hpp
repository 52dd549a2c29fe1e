// SPDX-License-Identifier: MIT
// A TAP device as uplink: the kernel's network stack, and whatever bridge the device is put on, see
// the guest's packets. Super-frames and blank checksums pass whole in both directions.
#pragma once

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "../base/error.hpp"
#include "../base/unique_fd.hpp"
#include "frame.hpp"
#include "packet.hpp"
#include "uplink.hpp"

namespace pvring::net {

namespace detail {
// What goes before each frame, in the order of its bytes that was asked for; the kernel's own
// header for it is no C++.
struct vnet_header {
  std::uint8_t flags;
  std::uint8_t gso_type;
  std::uint16_t header_length;
  std::uint16_t gso_size;
  std::uint16_t checksum_start;
  std::uint16_t checksum_offset;
};
static_assert(sizeof(vnet_header) == 10);
namespace vnet {
inline constexpr std::uint8_t needs_checksum = 1;
inline constexpr std::uint8_t data_valid = 2;
inline constexpr std::uint8_t tcpv4 = 1;
inline constexpr std::uint8_t tcpv6 = 4;
inline constexpr std::uint8_t ecn = 0x80;
}  // namespace vnet
}  // namespace detail

/// The device is there as long as the uplink, or for longer where somebody made it persistent.
/// Queue i is the device's queue i: the kernel sends a flow's packets where it saw the flow's last
/// one.
class tap_uplink {
 public:
  static constexpr bool keeps_flows = true;

  class port {
   public:
    explicit port(unique_fd fd) noexcept : fd_(std::move(fd)) {}

    /// -EINVAL: its checksum is blank, and it is neither TCP nor UDP.
    [[nodiscard]] int transmit(std::span<const iovec> bytes, const packet_info& info) noexcept {
      detail::vnet_header header{};
      if (!describe(bytes, info, header)) {
        return -EINVAL;
      }
      std::array<iovec, most_parts + 1> parts{};
      if (bytes.size() > most_parts) {
        return -EINVAL;
      }
      parts[0] = {&header, sizeof header};
      std::copy(bytes.begin(), bytes.end(), parts.begin() + 1);
      ssize_t written = 0;
      do {
        written = ::writev(fd_.get(), parts.data(), static_cast<int>(bytes.size() + 1));
      } while (written < 0 && errno == EINTR);
      return written >= 0 ? 0 : -errno;
    }

    [[nodiscard]] std::ptrdiff_t receive(std::span<std::byte> into, packet_info& info) noexcept {
      detail::vnet_header header{};
      const std::array<iovec, 2> parts{{{&header, sizeof header}, {into.data(), into.size()}}};
      ssize_t got = 0;
      do {
        got = ::readv(fd_.get(), parts.data(), static_cast<int>(parts.size()));
      } while (got < 0 && errno == EINTR);
      if (got < 0) {
        return errno == EAGAIN ? 0 : -errno;
      }
      if (static_cast<std::size_t>(got) <= sizeof header) {
        return -EMSGSIZE;
      }
      if (static_cast<std::size_t>(got) == sizeof header + into.size()) {
        return -EMSGSIZE;  // it was longer, as far as anybody can tell
      }
      interpret(header, info);
      return got - static_cast<ssize_t>(sizeof header);
    }

    // The descriptor is readable as long as there is a frame: arming needs nothing.
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    [[nodiscard]] bool arm() noexcept { return false; }
    void disarm() noexcept {}

   private:
    static constexpr std::size_t most_parts = 64;

    static bool describe(std::span<const iovec> bytes, const packet_info& info,
                         detail::vnet_header& header) noexcept {
      if (info.checksum == checksum::validated) {
        header.flags = detail::vnet::data_valid;
      }
      if (info.checksum != checksum::blank) {
        return info.gso == gso::none;  // its segments' checksums are to be made, or it is none
      }
      std::size_t length = 0;
      for (const iovec& part : bytes) {
        length += part.iov_len;
      }
      const iovec& first = bytes.front();
      const auto where =
          find_transport({static_cast<const std::byte*>(first.iov_base), first.iov_len}, length);
      if (!where) {
        return false;
      }
      header.flags = detail::vnet::needs_checksum;
      header.checksum_start = where->start;
      header.checksum_offset = static_cast<std::uint16_t>(where->checksum - where->start);
      if (info.gso != gso::none) {
        if (where->protocol != detail::tcp || where->ipv6 != (info.gso == gso::tcpv6)) {
          return false;
        }
        header.gso_type = info.gso == gso::tcpv4 ? detail::vnet::tcpv4 : detail::vnet::tcpv6;
        header.gso_size = info.gso_size;
        header.header_length = where->payload;
      }
      return true;
    }

    static void interpret(const detail::vnet_header& header, packet_info& info) noexcept {
      if ((header.flags & detail::vnet::needs_checksum) != 0) {
        info.checksum = checksum::blank;
      } else if ((header.flags & detail::vnet::data_valid) != 0) {
        info.checksum = checksum::validated;
      }
      switch (header.gso_type & ~unsigned{detail::vnet::ecn}) {
        case detail::vnet::tcpv4:
          info.gso = gso::tcpv4;
          info.gso_size = header.gso_size;
          break;
        case detail::vnet::tcpv6:
          info.gso = gso::tcpv6;
          info.gso_size = header.gso_size;
          break;
        default:
          break;
      }
    }

    unique_fd fd_;
  };

  /// Attaches to the device, and makes it where there is none. \param queues 1 to 256
  /// \throws std::system_error naming the device and the remedy
  explicit tap_uplink(std::string name, std::uint32_t queues = 1)
      : name_(std::move(name)), queues_(queues) {
    if (name_.empty() || name_.size() >= IFNAMSIZ || queues == 0 || queues > 256) {
      throw configuration_error("TAP device '" + name_ + "' with " + std::to_string(queues) +
                                " queues: a name has 1 to 15 characters, a device 1 to 256 queues");
    }
    control_ = attach();
    mtu_ = read_mtu();
  }

  [[nodiscard]] std::uint32_t queues() const noexcept { return queues_; }
  [[nodiscard]] port open(std::uint32_t queue) {
    // The descriptor that made the device is the first queue's: every one that is attached is a
    // queue, and the kernel sends to all of them.
    if (queue == 0 && control_) {
      unique_fd duplicate(::fcntl(control_.get(), F_DUPFD_CLOEXEC, 0));
      if (!duplicate) {
        fail("duplicating a descriptor of");
      }
      return port(std::move(duplicate));
    }
    return port(attach());
  }
  void set_offloads(offloads with) {
    unsigned flags = 0;
    if (with.checksum_v4) {
      flags |= TUN_F_CSUM;
      flags |= with.gso_tcpv4 && with.scatter_gather ? TUN_F_TSO4 | TUN_F_TSO_ECN : 0U;
      flags |= with.gso_tcpv6 && with.checksum_v6 && with.scatter_gather ? TUN_F_TSO6 : 0U;
    }
    if (::ioctl(control_.get(), TUNSETOFFLOAD, static_cast<unsigned long>(flags)) != 0) {
      fail("setting offloads of");
    }
  }
  void set_carrier(bool up) noexcept {
    int value = up ? 1 : 0;
    (void)::ioctl(control_.get(), TUNSETCARRIER, &value);  // a kernel before 5.0 has none
  }
  [[nodiscard]] std::uint32_t mtu() const noexcept { return mtu_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const int error = errno;
    std::string remedy;
    if (error == ENOENT || error == ENODEV || error == ENXIO) {
      remedy = "; load the kernel's module tun (modprobe tun)";
    } else if (error == EPERM || error == EACCES) {
      remedy = "; CAP_NET_ADMIN is needed, or a device that is yours (ip tuntap add user)";
    } else if (error == EBUSY) {
      remedy = "; somebody else has it, or it was made without multi_queue";
    } else if (error == EINVAL) {
      remedy = "; it is there, and no TAP device with multi_queue and vnet_hdr";
    }
    throw std::system_error(error, std::generic_category(), what + " TAP device " + name_ + remedy);
  }

  [[nodiscard]] ifreq request() const noexcept {
    ifreq out{};
    std::memcpy(out.ifr_name, name_.data(), name_.size());
    return out;
  }

  [[nodiscard]] unique_fd attach() const {
    unique_fd fd(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!fd) {
      fail("opening /dev/net/tun for");
    }
    ifreq wanted = request();
    // One kind for one queue too: a device that was made for several stays so.
    wanted.ifr_flags = static_cast<short>(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE);
    if (::ioctl(fd.get(), TUNSETIFF, &wanted) != 0) {
      fail("attaching to");
    }
    int header = sizeof(detail::vnet_header);
    int little = 1;
    if (::ioctl(fd.get(), TUNSETVNETHDRSZ, &header) != 0 ||
        ::ioctl(fd.get(), TUNSETVNETLE, &little) != 0) {
      fail("setting the header of");
    }
    return fd;
  }

  [[nodiscard]] std::uint32_t read_mtu() const {
    const unique_fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq wanted = request();
    if (!any || ::ioctl(any.get(), SIOCGIFMTU, &wanted) != 0) {
      fail("reading the MTU of");
    }
    return static_cast<std::uint32_t>(wanted.ifr_mtu);
  }

  std::string name_;
  std::uint32_t queues_;
  unique_fd control_;
  std::uint32_t mtu_ = 0;
};

static_assert(uplink<tap_uplink>);

}  // namespace pvring::net
