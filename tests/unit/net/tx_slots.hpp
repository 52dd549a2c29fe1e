// SPDX-License-Identifier: MIT
// Slots of a transmit ring as a guest would write them, for tests.
#pragma once

#include <cstdint>
#include <vector>

#include "pvring/protocol/netif_abi.hpp"

namespace pvring::test {

/// A part of a packet: a page's reference, and where in the page it lies.
struct tx_part {
  std::uint32_t gref = 1;
  std::uint16_t offset = 0;
  std::uint16_t size = 0;
};

/// The slots of a packet. `size` is what the first request says of the whole; ids count from `id`.
inline std::vector<protocol::netif::tx_slot> tx_packet(
    std::uint16_t size, const std::vector<tx_part>& parts,
    std::vector<protocol::netif::extra_info> extras = {}, std::uint16_t flags = 0,
    std::uint16_t id = 0) {
  namespace netif = protocol::netif;
  std::vector<netif::tx_slot> slots;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    netif::tx_request r{.gref = parts[i].gref,
                        .offset = untrusted(parts[i].offset),
                        .flags = i == 0 ? flags : std::uint16_t{0},
                        .id = static_cast<std::uint16_t>(id + i),
                        .size = untrusted(i == 0 ? size : parts[i].size)};
    if (i + 1 < parts.size()) {
      r.flags |= netif::tx_flag::more_data;
    }
    if (i == 0 && !extras.empty()) {
      r.flags |= netif::tx_flag::extra_info;
    }
    slots.emplace_back(r);
    for (std::size_t e = 0; i == 0 && e < extras.size(); ++e) {
      if (e + 1 < extras.size()) {
        extras[e].flags |= netif::extra_more;
      }
      slots.emplace_back(extras[e]);
    }
  }
  return slots;
}

/// The same, where the packet is as long as its parts.
inline std::vector<protocol::netif::tx_slot> whole_packet(
    const std::vector<tx_part>& parts, std::vector<protocol::netif::extra_info> extras = {},
    std::uint16_t flags = 0, std::uint16_t id = 0) {
  std::size_t size = 0;
  for (const tx_part& part : parts) {
    size += part.size;
  }
  return tx_packet(static_cast<std::uint16_t>(size), parts, std::move(extras), flags, id);
}

}  // namespace pvring::test
