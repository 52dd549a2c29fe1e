// SPDX-License-Identifier: MIT
// What is known of a packet beyond its bytes, as rings and uplinks hand it to each other: whether
// its checksum stands, whether it is still to be cut into segments, and its flow's hash.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pvring::net {

/// How a super-frame is to be segmented, by the wire's numbers.
enum class gso : std::uint8_t { none = 0, tcpv4 = 1, tcpv6 = 2 };

enum class checksum : std::uint8_t {
  none,       ///< nothing is known: whoever cares looks at it
  blank,      ///< the transport checksum is to be filled in by whoever puts it on a real wire
  validated,  ///< was checked, or never left the host
};

/// A flow's hash, by the numbers of the hash extra info (protocol/netif.hpp).
struct flow_hash {
  std::uint8_t algorithm = 0;  ///< 0: there is no hash
  std::uint8_t type = 0;
  std::uint32_t value = 0;
};

struct packet_info {
  net::checksum checksum = net::checksum::none;
  net::gso gso = net::gso::none;
  std::uint16_t gso_size = 0;  ///< payload bytes of a segment; not 0 where `gso` is not none
  net::flow_hash hash;
};

/// Bytes of the longest frame, a super-frame included: what the wire's sizes can say.
inline constexpr std::size_t max_frame_bytes = 65535;
/// Bytes of an Ethernet header: no frame is shorter.
inline constexpr std::size_t min_frame_bytes = 14;

}  // namespace pvring::net
