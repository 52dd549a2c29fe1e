// SPDX-License-Identifier: MIT
// A strict_net_queue and a backend that is played by hand: it looks at requests and writes whatever
// responses a test wants, also such as no ring of ours would write.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "pvring/platform/emulated.hpp"
#include "pvring/protocol/netif_abi.hpp"
#include "pvring/protocol/ring_page.hpp"
#include "pvring/ring/shared_access.hpp"
#include "pvring/testing/strict_net_queue.hpp"

namespace pvring::testing {

class rogue_net_backend {
 public:
  using tx_wire = protocol::netif::tx_wire;
  using rx_wire = protocol::netif::rx_wire;
  static constexpr domain_id guest_id = 3;

  explicit rogue_net_backend(const strict_net_setup& setup = {})
      : host(platform::emulated_host::create()),
        guest(host.create_domain(guest_id)),
        queue(guest, 0, 0, log),
        dom0(host),
        grants(dom0.open_grants(1000)),
        events(dom0.open_events()),
        tx_produced(setup.tx_start),
        rx_produced(setup.rx_start) {
    queue.prepare(setup);
    tx_ring = map(queue.tx_reference(), platform::access::read_write);
    rx_ring = map(queue.rx_reference(), platform::access::read_write);
    tx_port = events.bind(guest_id, queue.tx_port());
    rx_port = setup.split_channels ? events.bind(guest_id, queue.rx_port()) : tx_port;
  }
  rogue_net_backend(const rogue_net_backend&) = delete;
  rogue_net_backend& operator=(const rogue_net_backend&) = delete;
  ~rogue_net_backend() { let_go(); }

  /// Unmaps the rings, as a backend does that closes.
  void let_go() {
    for (platform::mapping* ring : {&tx_ring, &rx_ring}) {
      if (*ring) {
        EXPECT_EQ(grants.unmap(*ring), 0);
        *ring = {};
      }
    }
  }

  // ---- transmit
  protocol::netif::tx_slot tx_request(std::uint32_t at) {
    protocol::netif::tx_slot from;
    tx_wire::fetch(ring::slot_source(slot(tx_ring, at, tx_wire::slot_bytes)), from);
    return from;
  }
  [[nodiscard]] std::uint32_t tx_requests() { return index(tx_ring, 0); }
  /// Writes a response and shows it.
  void answer(std::uint16_t id, std::int16_t status = 0) {
    tx_wire::store(ring::slot_sink(slot(tx_ring, tx_produced, tx_wire::slot_bytes)), {id},
                   static_cast<protocol::netif::status>(status));
    show(tx_ring, ++tx_produced);
  }

  // ---- receive
  rx_wire::request rx_request(std::uint32_t at) {
    rx_wire::request from;
    rx_wire::fetch(ring::slot_source(slot(rx_ring, at, rx_wire::slot_bytes)), from);
    return from;
  }
  [[nodiscard]] std::uint32_t rx_requests() { return index(rx_ring, 0); }
  /// Copies bytes into the page that was posted at this position of the ring.
  void fill(std::uint32_t at, std::span<const std::byte> bytes, std::size_t offset = 0) {
    platform::mapping page = map(rx_request(at).gref, platform::access::read_write);
    ASSERT_TRUE(page);
    std::memcpy(page.address + offset, bytes.data(), bytes.size());
    ASSERT_EQ(grants.unmap(page), 0);
  }
  /// Writes the next response, with the id of its request; it is seen after `show_received`.
  void respond(protocol::netif::rx_outcome what) { respond(rx_request(rx_produced).id, what); }
  void respond(std::uint16_t id, const protocol::netif::rx_outcome& what) {
    rx_wire::store(ring::slot_sink(slot(rx_ring, rx_produced++, rx_wire::slot_bytes)), {id}, what);
  }
  void show_received() { show(rx_ring, rx_produced); }
  void show_received(std::uint32_t producer) { show(rx_ring, producer); }
  void show_answered(std::uint32_t producer) { show(tx_ring, producer); }

  platform::mapping map(platform::grant_reference reference, platform::access how) {
    return grants.map(guest_id, {&reference, 1}, how).pages;
  }

  struct packet {
    std::vector<std::byte> bytes;
    net::packet_info info;
    std::size_t slots = 0;
  };
  /// All that the queue has to say now.
  std::vector<packet> take() {
    std::vector<packet> packets;
    queue.poll([&packets](const received_packet& p) {
      packets.push_back({{p.bytes.begin(), p.bytes.end()}, p.info, p.slots});
    });
    return packets;
  }
  [[nodiscard]] std::string violations() const { return log.text(); }

  platform::emulated_host host;
  platform::emulated_guest guest;
  violation_log log;
  strict_net_queue queue;
  platform::emulated dom0;
  platform::emulated_grants grants;
  platform::emulated_events events;
  platform::mapping tx_ring;
  platform::mapping rx_ring;
  platform::port tx_port = 0;
  platform::port rx_port = 0;
  std::uint32_t tx_produced;
  std::uint32_t rx_produced;

 private:
  static std::byte* slot(const platform::mapping& ring, std::uint32_t at, std::size_t bytes) {
    return ring.address + protocol::ring_header_bytes +
           at % protocol::ring_slots(platform::page_size, bytes) * bytes;
  }
  static std::uint32_t index(const platform::mapping& ring, std::size_t offset) {
    return ring::shared_index<std::uint32_t>(ring.address + offset).load(std::memory_order_acquire);
  }
  static void show(const platform::mapping& ring, std::uint32_t producer) {
    ring::shared_index<std::uint32_t>(ring.address + 8).store(producer, std::memory_order_seq_cst);
  }
};

}  // namespace pvring::testing
