// SPDX-License-Identifier: MIT
// Reads the headers of an Ethernet frame as far as a checksum needs them: the network protocol
// hands over packets whose transport checksum is blank, and says nothing of where it lies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "packet.hpp"

namespace pvring::net {

/// Where a TCP or UDP header lies, in bytes from the frame's start.
struct transport_header {
  bool ipv6 = false;
  std::uint8_t protocol = 0;    ///< 6: TCP, 17: UDP
  std::uint16_t network = 0;    ///< of the IP header
  std::uint16_t start = 0;      ///< of the transport header: what the checksum covers begins here
  std::uint16_t checksum = 0;   ///< of the checksum's field
  std::uint16_t payload = 0;    ///< behind the transport header; its start for UDP fragments
  std::uint16_t end = 0;        ///< of the packet, as the IP header says; what follows is padding
  bool is_super_frame = false;  ///< the IP header's length is 0 or cut off: it is the frame's
};

namespace detail {
inline constexpr std::uint8_t tcp = 6;
inline constexpr std::uint8_t udp = 17;

class frame_reader {
 public:
  explicit frame_reader(std::span<const std::byte> frame) noexcept : frame_(frame) {}
  [[nodiscard]] bool has(std::size_t at, std::size_t bytes) const noexcept {
    return at <= frame_.size() && frame_.size() - at >= bytes;
  }
  [[nodiscard]] std::uint8_t u8(std::size_t at) const noexcept {
    return std::to_integer<std::uint8_t>(frame_[at]);
  }
  [[nodiscard]] std::uint16_t u16(std::size_t at) const noexcept {
    return static_cast<std::uint16_t>(u8(at) << 8U | u8(at + 1));
  }

 private:
  std::span<const std::byte> frame_;
};

// The offset of the network header, behind up to two VLAN tags, and its Ethernet type, or nothing.
inline std::optional<std::pair<std::size_t, std::uint16_t>> find_network(
    const frame_reader& r) noexcept {
  std::size_t at = 12;
  for (int tags = 0; tags < 2 && r.has(at, 4) && (r.u16(at) == 0x8100 || r.u16(at) == 0x88a8);
       ++tags) {
    at += 4;
  }
  if (!r.has(at, 2)) {
    return std::nullopt;
  }
  return std::pair(at + 2, r.u16(at));
}

// The offset and number of the header behind the IPv6 header and its extensions, or nothing.
inline std::optional<std::pair<std::size_t, std::uint8_t>> behind_ipv6(const frame_reader& r,
                                                                       std::size_t ip) noexcept {
  std::size_t at = ip + 40;
  std::uint8_t next = r.u8(ip + 6);
  for (int i = 0; i < 8; ++i) {
    switch (next) {
      case 0:     // hop by hop
      case 43:    // routing
      case 60: {  // destination
        if (!r.has(at, 2)) {
          return std::nullopt;
        }
        next = r.u8(at);
        at += (std::size_t{r.u8(at + 1)} + 1) * 8;
        break;
      }
      default:
        return std::pair(at, next);
    }
  }
  return std::nullopt;
}
}  // namespace detail

/// The transport header of a frame over IPv4 or IPv6, behind up to two VLAN tags. Nothing where
/// there is none of TCP or UDP, a fragment of one, or where the headers reach past `head`.
/// \param head the frame's first bytes, 128 of them or all
/// \param length bytes of the whole frame
[[nodiscard]] inline std::optional<transport_header> find_transport(std::span<const std::byte> head,
                                                                    std::size_t length) noexcept {
  const detail::frame_reader r(head);
  const auto network = detail::find_network(r);
  if (!network) {
    return std::nullopt;
  }
  const auto [ip, type] = *network;
  transport_header out;
  out.network = static_cast<std::uint16_t>(ip);
  std::size_t start = 0;
  std::size_t end = 0;
  if (type == 0x0800) {
    if (!r.has(ip, 20) || r.u8(ip) >> 4U != 4) {
      return std::nullopt;
    }
    const std::size_t header = (r.u8(ip) & 0xfU) * std::size_t{4};
    if (header < 20 || (r.u16(ip + 6) & 0x3fffU) != 0) {  // fragments have no checksum of their own
      return std::nullopt;
    }
    out.protocol = r.u8(ip + 9);
    start = ip + header;
    end = ip + r.u16(ip + 2);
  } else if (type == 0x86dd) {
    if (!r.has(ip, 40) || r.u8(ip) >> 4U != 6) {
      return std::nullopt;
    }
    const auto behind = detail::behind_ipv6(r, ip);
    if (!behind) {
      return std::nullopt;
    }
    out.ipv6 = true;
    start = behind->first;
    out.protocol = behind->second;
    end = ip + 40 + r.u16(ip + 4);
    out.is_super_frame = r.u16(ip + 4) == 0;
  } else {
    return std::nullopt;
  }
  const bool tcp = out.protocol == detail::tcp;
  if (!tcp && out.protocol != detail::udp) {
    return std::nullopt;
  }
  if (!r.has(start, tcp ? 20 : 8)) {
    return std::nullopt;
  }
  const std::size_t own = tcp ? (r.u8(start + 12) >> 4U) * std::size_t{4} : 8;
  if (out.is_super_frame || end <= ip) {
    out.is_super_frame = true;
    end = length;
  }
  if (own < (tcp ? 20U : 8U) || end > length || start + own > end) {
    return std::nullopt;
  }
  out.start = static_cast<std::uint16_t>(start);
  out.checksum = static_cast<std::uint16_t>(start + (tcp ? 16 : 6));
  out.payload = static_cast<std::uint16_t>(start + own);
  out.end = static_cast<std::uint16_t>(end);
  return out;
}

namespace detail {
inline std::uint64_t sum_of(std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = 0;
  std::size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) {
    sum += std::to_integer<unsigned>(bytes[i]) << 8U | std::to_integer<unsigned>(bytes[i + 1]);
  }
  return i < bytes.size() ? sum + (std::to_integer<unsigned>(bytes[i]) << 8U) : sum;
}
inline std::uint16_t fold(std::uint64_t sum) noexcept {
  while (sum >> 16U != 0) {
    sum = (sum & 0xffffU) + (sum >> 16U);
  }
  return static_cast<std::uint16_t>(sum);
}
}  // namespace detail

/// Fills in the transport checksum of a whole frame, for a frontend or a wire that wants it. False
/// where there is none to fill in. A super-frame's would be its segments' own.
inline bool fill_checksum(std::span<std::byte> frame) noexcept {
  const auto where = find_transport(frame, frame.size());
  if (!where) {
    return false;
  }
  frame[where->checksum] = std::byte{0};
  frame[where->checksum + 1U] = std::byte{0};
  const std::size_t length = std::size_t{where->end} - where->start;
  const std::size_t addresses = where->network + (where->ipv6 ? 8U : 12U);
  std::uint64_t sum = where->protocol + length;
  sum += detail::sum_of(frame.subspan(addresses, where->ipv6 ? 32 : 8));
  sum += detail::sum_of(frame.subspan(where->start, length));
  auto value = static_cast<std::uint16_t>(~detail::fold(sum));
  if (value == 0 && where->protocol == detail::udp) {
    value = 0xffff;  // 0 says that there is none
  }
  frame[where->checksum] = static_cast<std::byte>(value >> 8U);
  frame[where->checksum + 1U] = static_cast<std::byte>(value & 0xffU);
  return true;
}

}  // namespace pvring::net
