// SPDX-License-Identifier: MIT
// What a strict network queue is set up with, what it counts, and what it hands out. Values that
// its users see without the queue itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "../base/counter.hpp"
#include "../net/packet.hpp"

namespace pvring::testing {

/// Counted by a strict_net_queue; any thread may read.
struct strict_net_counters {
  counter sent;        ///< packets put into the transmit ring
  counter sent_slots;  ///< of those
  counter refused;     ///< packets that were answered with anything but `okay`
  counter received;    ///< packets
  counter received_slots;
  counter broken;  ///< packets received with a failed slot: thrown away
  counter posted;  ///< pages
  counter kicks_sent;
  counter interrupts;           ///< events received
  counter spurious_interrupts;  ///< of those, the ones without a response
};

/// How a queue is made.
struct strict_net_setup {
  bool split_channels = true;  ///< a channel for each ring
  std::uint32_t tx_start = 0;  ///< where the rings' indices begin
  std::uint32_t rx_start = 0;
  bool guard_pages = true;  ///< notice what is written outside a packet's bytes
  /// Transmit responses come in ring order. The protocol does not ask for it, but a backend that
  /// can be restarted has to keep it, and so does one for FreeBSD.
  bool answers_in_order = true;
};

/// A packet that came.
struct received_packet {
  std::span<const std::byte> bytes;
  net::packet_info info;
  std::size_t slots = 0;
};

}  // namespace pvring::testing
