// SPDX-License-Identifier: MIT
// A packet's flow hash as the guest asked for it: which of its headers go into it, and the hash.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "../protocol/netif_control.hpp"
#include "frame.hpp"
#include "packet.hpp"
#include "toeplitz.hpp"

namespace pvring::net {

namespace detail {

/// What of a packet is hashed.
struct hash_input {
  std::uint8_t type = 0;  ///< protocol::netif::hash_type
  std::uint8_t length = 0;
  std::array<std::uint8_t, longest_hash_input> bytes{};
};

// The richest kind of those wanted that the packet has: the ports count for TCP only, and a
// fragment has none that could be relied on.
[[nodiscard]] inline std::optional<hash_input> find_hash_input(std::span<const std::byte> head,
                                                               std::size_t length,
                                                               std::uint32_t flags) noexcept {
  namespace type = protocol::netif::hash_type;
  const frame_reader r(head);
  const auto network = find_network(r);
  if (!network) {
    return std::nullopt;
  }
  const auto [ip, ethernet] = *network;
  const bool ipv4 = ethernet == 0x0800 && r.has(ip, 20) && r.u8(ip) >> 4U == 4;
  const bool ipv6 = ethernet == 0x86dd && r.has(ip, 40) && r.u8(ip) >> 4U == 6;
  if (!ipv4 && !ipv6) {
    return std::nullopt;
  }
  hash_input out;
  const auto append = [&](std::size_t at, std::uint8_t count) {
    for (std::uint8_t i = 0; i < count; ++i) {
      out.bytes[out.length++] = r.u8(at + i);
    }
  };
  append(ip + (ipv4 ? 12 : 8), ipv4 ? 8 : 32);  // both addresses, source first
  const std::uint8_t with_ports = ipv4 ? type::ipv4_tcp : type::ipv6_tcp;
  const std::uint8_t without = ipv4 ? type::ipv4 : type::ipv6;
  if ((flags & protocol::netif::hash_flag(with_ports)) != 0) {
    const auto transport = find_transport(head, length);
    if (transport && transport->protocol == tcp) {
      out.type = with_ports;
      append(transport->start, 4);
      return out;
    }
  }
  if ((flags & protocol::netif::hash_flag(without)) == 0) {
    return std::nullopt;
  }
  out.type = without;
  return out;
}

}  // namespace detail

/// The Toeplitz hash of a frame's flow; algorithm 0 where the frame has none of the wanted kinds.
/// \param head the frame's first bytes, 128 of them or all
/// \param length bytes of the whole frame
/// \param flags the wanted kinds: see protocol::netif::hash_flag
[[nodiscard]] inline flow_hash hash_of(std::span<const std::byte> head, std::size_t length,
                                       std::uint32_t flags, const toeplitz_table& table) noexcept {
  const auto input = detail::find_hash_input(head, length, flags);
  if (!input) {
    return {};
  }
  return {protocol::netif::hash_algorithm::toeplitz, input->type,
          table(std::span(input->bytes).first(input->length))};
}

}  // namespace pvring::net
