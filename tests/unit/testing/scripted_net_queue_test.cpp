// SPDX-License-Identifier: MIT
// Rings written by hand: a backend's ring finds exactly what was written. And the hostile queue:
// what is called survivable keeps to the indices, and the rest does not.
#include "pvring/testing/scripted_net_queue.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "pvring/net/tx_chain.hpp"
#include "pvring/ring/back_ring.hpp"
#include "rogue_net_backend.hpp"

namespace pvring::testing {
namespace {

namespace netif = protocol::netif;

TEST(ScriptedNetQueue, AnHonestRingReadsWhatWasWritten) {
  rogue_net_backend b;
  scripted_tx_ring raw(b.queue.tx_page());
  ring::back_ring<netif::tx_wire> back({b.tx_ring.address, platform::page_size});
  netif::tx_request request;
  request.gref = 77;
  request.id = 5;
  request.size = untrusted(std::uint16_t{60});
  raw.put(netif::tx_slot(request));
  raw.put(netif::tx_slot(netif::extra_info::of_gso(netif::gso_type::tcpv4, 1448)));
  raw.write_word(1, 2, 0xabcdef01U);  // the word that an extra info leaves alone
  EXPECT_EQ(raw.request_producer(), 2U);
  std::vector<netif::tx_slot> seen;
  EXPECT_EQ(back.consume_all([&](ring::taken<netif::tx_wire>& taken) {
    netif::tx_slot slot;
    taken.fetch(slot);
    seen.push_back(slot);
    back.respond(taken.owe({slot.as_request().id}).settle(netif::status::error));
  }),
            2U);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].as_request().gref, 77U);
  EXPECT_EQ(seen[1].as_extra().gso_size(), 1448);
  EXPECT_EQ(seen[1].as_request().size.echo(), 0xabcdU);
  EXPECT_EQ(raw.response_producer(), 0U);
  EXPECT_TRUE(back.publish());
  EXPECT_EQ(raw.response_producer(), 2U);
  EXPECT_EQ(raw.response(0).id, 5U);
  EXPECT_EQ(raw.response(0).status, -1);
}

TEST(ScriptedNetQueue, WritesAnyIndexOfEitherRing) {
  rogue_net_backend b;
  scripted_tx_ring tx(b.queue.tx_page());
  scripted_rx_ring rx(b.queue.rx_page());
  ring::back_ring<netif::tx_wire> back_tx({b.tx_ring.address, platform::page_size});
  ring::back_ring<netif::rx_wire> back_rx({b.rx_ring.address, platform::page_size});
  EXPECT_EQ(tx.slots(), 256U);
  EXPECT_EQ(rx.slots(), 256U);
  tx.set_request_producer(257);
  EXPECT_FALSE(back_tx.has_requests());
  EXPECT_EQ(back_tx.broken(), protocol_error::request_producer_overrun);
  rx.set_request_producer(0xffffffffU);
  EXPECT_FALSE(back_rx.has_requests());
  EXPECT_EQ(back_rx.broken(), protocol_error::request_producer_overrun);
  EXPECT_EQ(rx.request_event(), 1U);
  rx.set_request_event(9);
  EXPECT_EQ(rx.request_event(), 9U);
  rx.set_response_producer(4);
  EXPECT_EQ(rx.response_producer(), 4U);
}

// Runs a hostile queue against rings whose backend answers everything at once, and joins what it
// sends.
struct met {
  std::set<net::tx_drop> drops;
  std::set<protocol_error> errors;
  std::size_t posted = 0;
  bool broken = false;
};
met meet(net_misdeeds worst, std::uint32_t seed) {
  rogue_net_backend b;
  hostile_net_queue bad(b.guest, 0, b.queue.tx_page(), b.queue.rx_page(), seed, worst);
  ring::back_ring<netif::tx_wire> tx({b.tx_ring.address, platform::page_size});
  ring::back_ring<netif::rx_wire> rx({b.rx_ring.address, platform::page_size});
  met out;
  net::tx_chain chain;
  chain.begin();
  for (int i = 0; i < 2000 && !out.broken; ++i) {
    bad.step();
    tx.consume_all([&](ring::taken<netif::tx_wire>& taken) {
      netif::tx_slot slot;
      taken.fetch(slot);
      tx.respond(taken.owe({slot.as_request().id}).settle(netif::status::error));
      if (!chain.add(slot)) {
        out.errors.insert(chain.error());
        out.drops.insert(chain.drop());
        chain.begin();
      }
    });
    out.posted += rx.consume_all([&](ring::taken<netif::rx_wire>& taken) {
      rx.respond(taken.owe({0}).settle({.status = -1}));
    });
    (void)tx.publish();
    (void)rx.publish();
    out.broken = tx.broken() != protocol_error::none || rx.broken() != protocol_error::none;
  }
  return out;
}

TEST(ScriptedNetQueue, SurvivableMisdeedsOnlyLosePackets) {
  met all;
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    const met one = meet(net_misdeeds::survivable, seed);
    EXPECT_FALSE(one.broken);
    EXPECT_EQ(one.errors, std::set{protocol_error::none}) << "seed " << seed;
    all.drops.insert(one.drops.begin(), one.drops.end());
    all.posted += one.posted;
  }
  EXPECT_EQ(all.drops.size(), 5U) << "whatever a packet can be dropped for";
  EXPECT_GT(all.posted, 1000U);
}

TEST(ScriptedNetQueue, TheWorstMisdeedsBreakTheProtocolInEveryWay) {
  std::set<protocol_error> errors;
  std::size_t broken = 0;
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    const met one = meet(net_misdeeds::all, seed);
    errors.insert(one.errors.begin(), one.errors.end());
    broken += one.broken ? 1 : 0;
  }
  EXPECT_EQ(broken, 30U) << "an index that cannot be comes sooner or later";
  EXPECT_TRUE(errors.contains(protocol_error::packet_crosses_page));
  EXPECT_TRUE(errors.contains(protocol_error::packet_bad_extra));
}

TEST(ScriptedNetQueue, DoesTheSameOfTheSameSeed) {
  const met one = meet(net_misdeeds::survivable, 9);
  const met two = meet(net_misdeeds::survivable, 9);
  EXPECT_EQ(one.posted, two.posted);
  EXPECT_NE(one.posted, meet(net_misdeeds::survivable, 10).posted);
}

}  // namespace
}  // namespace pvring::testing
