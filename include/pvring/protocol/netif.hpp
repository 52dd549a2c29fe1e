// SPDX-License-Identifier: MIT
// The network protocol on the wire (xen/io/netif.h): flags, statuses and the layouts of both rings'
// slots. Plain structs and numbers; netif_abi.hpp reads and writes them in a ring.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pvring::protocol::netif {

/// Bits of a transmit request's `flags`. The first request of a packet uses all of them, the
/// others only `more_data`.
namespace tx_flag {
inline constexpr std::uint16_t csum_blank = 1;
inline constexpr std::uint16_t data_validated = 2;
inline constexpr std::uint16_t more_data = 4;
inline constexpr std::uint16_t extra_info = 8;
}  // namespace tx_flag

/// Bits of a receive response's `flags`. The first two are the other way round than in tx_flag.
namespace rx_flag {
inline constexpr std::uint16_t data_validated = 1;
inline constexpr std::uint16_t csum_blank = 2;
inline constexpr std::uint16_t more_data = 4;
inline constexpr std::uint16_t extra_info = 8;
inline constexpr std::uint16_t gso_prefix = 16;  ///< given up long ago
}  // namespace rx_flag

namespace extra_type {
inline constexpr std::uint8_t none = 0;  ///< never valid
inline constexpr std::uint8_t gso = 1;
inline constexpr std::uint8_t multicast_add = 2;
inline constexpr std::uint8_t multicast_delete = 3;
inline constexpr std::uint8_t hash = 4;
inline constexpr std::uint8_t end = 5;  ///< the first number without a meaning
}  // namespace extra_type

/// Bit of an extra info's `flags`: another one follows.
inline constexpr std::uint8_t extra_more = 1;

namespace gso_type {
inline constexpr std::uint8_t none = 0;
inline constexpr std::uint8_t tcpv4 = 1;
inline constexpr std::uint8_t tcpv6 = 2;
}  // namespace gso_type

/// How a packet's hash was calculated, by the numbers of the extra info.
namespace hash_algorithm {
inline constexpr std::uint8_t none = 0;
inline constexpr std::uint8_t toeplitz = 1;
}  // namespace hash_algorithm

/// What a hash was calculated from, by the numbers of the extra info: these count, where the
/// control ring's flags are the bits with these numbers.
namespace hash_type {
inline constexpr std::uint8_t ipv4 = 0;
inline constexpr std::uint8_t ipv4_tcp = 1;
inline constexpr std::uint8_t ipv6 = 2;
inline constexpr std::uint8_t ipv6_tcp = 3;
inline constexpr std::uint8_t end = 4;  ///< the first number without a meaning
}  // namespace hash_type

/// Of a transmit response. Of a receive response only the negative ones: else it is the number of
/// bytes.
enum class status : std::int16_t { okay = 0, error = -1, dropped = -2, null = 1 };

/// Requests after a packet's first that every backend takes.
inline constexpr std::size_t slots_min = 18;
/// Bytes of a packet: all that a request's `size` can say.
inline constexpr std::size_t max_packet_bytes = 65535;
/// Rings are always one page.
inline constexpr std::size_t ring_pages = 1;

/// A part of a packet that the guest sends; in the first request `size` is that of the packet.
struct tx_request_layout {
  std::uint32_t gref;
  std::uint16_t offset;
  std::uint16_t flags;
  std::uint16_t id;
  std::uint16_t size;
};
struct tx_response_layout {
  std::uint16_t id;
  std::int16_t status;
};
/// A page of the guest to put a part of a packet into.
struct rx_request_layout {
  std::uint16_t id;
  std::uint16_t pad;
  std::uint32_t gref;
};
struct rx_response_layout {
  std::uint16_t id;
  std::uint16_t offset;
  std::uint16_t flags;
  std::int16_t status;
};
/// In a slot of its own, in place of a transmit request or a receive response. The six bytes are
/// `gso`, `hash` or a multicast address.
struct extra_info_layout {
  std::uint8_t type;
  std::uint8_t flags;
  std::uint8_t data[6];
};
/// In the bytes `data` of an extra info.
struct gso_layout {
  std::uint16_t size;
  std::uint8_t type;
  std::uint8_t pad;
  std::uint16_t features;
};
struct hash_layout {
  std::uint8_t type;
  std::uint8_t algorithm;
  std::uint8_t value[4];  ///< the lowest byte first
};

}  // namespace pvring::protocol::netif
