// SPDX-License-Identifier: MIT
// The generator of packets: that it makes all kinds of them, and only such as may be sent; and that
// a queue's slots hold what it made.
#include "pvring/testing/net_load.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "pvring/net/plan_slots.hpp"
#include "pvring/net/tx_chain.hpp"
#include "rogue_net_backend.hpp"

namespace pvring::testing {
namespace {

template <class F>
void make(net_load_options options, std::size_t count, F&& f) {
  net_model model;
  net_load load(model, options);
  for (std::size_t i = 0; i < count; ++i) {
    f(load.next());
    load.sent();
  }
  EXPECT_EQ(model.next(), count);
}

TEST(NetLoad, CutsEveryPacketIntoSlotsThatMayBe) {
  make({}, 5000, [](const net_packet& p) {
    ASSERT_LE(p.cut.size(), net_load::most_slots);
    ASSERT_EQ(std::accumulate(p.cut.begin(), p.cut.end(), std::size_t{0}), p.bytes.size());
    ASSERT_LE(*std::max_element(p.cut.begin(), p.cut.end()), platform::page_size);
  });
}

TEST(NetLoad, MakesAllKindsOfPackets) {
  std::set<std::size_t> lengths;
  std::set<std::size_t> slots;
  std::set<net::checksum> checksums;
  std::set<net::gso> kinds;
  bool hashed = false;
  bool empty_slot = false;
  bool tiny_header = false;
  make({}, 5000, [&](const net_packet& p) {
    lengths.insert(p.bytes.size());
    slots.insert(p.cut.size());
    checksums.insert(p.info.checksum);
    kinds.insert(p.info.gso);
    hashed = hashed || p.info.hash.algorithm != 0;
    empty_slot = empty_slot || std::count(p.cut.begin(), p.cut.end(), 0) != 0;
    tiny_header = tiny_header || (p.cut[0] < 14 && p.cut.size() > 2);
  });
  EXPECT_THAT(lengths, ::testing::IsSupersetOf({14U, 4095U, 4096U, 4097U, 65535U}));
  EXPECT_EQ(slots.size(), net_load::most_slots) << "as many as there may be, and each fewer";
  EXPECT_EQ(checksums.size(), 3U);
  EXPECT_EQ(kinds.size(), 3U);
  EXPECT_TRUE(hashed);
  EXPECT_TRUE(empty_slot);
  EXPECT_TRUE(tiny_header);
}

TEST(NetLoad, MakesOnlyWhatTheOtherEndTakes) {
  const net::rx_agreement plain{.offloads = {false, false, false, false, false}};
  make({.takes = plain.offloads, .hashes = false}, 2000, [&](const net_packet& p) {
    ASSERT_LE(p.bytes.size(), platform::page_size);
    ASSERT_EQ(p.cut.size(), 1U);
    ASSERT_EQ(p.info.gso, net::gso::none);
    ASSERT_NE(p.info.checksum, net::checksum::blank);
    ASSERT_EQ(p.info.hash.algorithm, 0);
    ASSERT_EQ(net::plan_slots(p.bytes.size(), p.info, plain).slots(), 1U);
  });
  make({.largest_bytes = 1514}, 2000,
       [](const net_packet& p) { ASSERT_LE(p.bytes.size(), 1514U); });
}

TEST(NetLoad, FillsPagesWhereItIsNotToScatter) {
  make({.scattered = false}, 1000, [](const net_packet& p) {
    ASSERT_EQ(p.cut.size(), (p.bytes.size() + platform::page_size - 1) / platform::page_size);
  });
}

TEST(NetLoad, MakesTheSameOfTheSameSeed) {
  const auto lengths = [](std::uint64_t seed) {
    std::vector<std::size_t> out;
    make({.seed = seed}, 100, [&](const net_packet& p) { out.push_back(p.bytes.size()); });
    return out;
  };
  EXPECT_EQ(lengths(5), lengths(5));
  EXPECT_NE(lengths(5), lengths(6));
}

// A backend that gives each packet back to its guest, made of nothing but the pure parts: what they
// say of a packet's slots is what the strict queue wants.
TEST(NetLoad, ComesBackWholeFromABackendThatReflectsIt) {
  namespace netif = protocol::netif;
  rogue_net_backend b;
  net_model model;
  net_load load(model, {.seed = 3});
  net::tx_chain chain;
  std::vector<std::byte> bytes;
  const net::rx_agreement takes{.offloads = {true, true, true, true, true}, .hash = true};
  while (model.arrived() < 1000) {
    const std::size_t count = load.send(b.queue, 8);
    b.queue.post();
    b.queue.publish();
    while (b.tx_produced != b.tx_requests()) {
      chain.begin();
      std::uint32_t at = b.tx_produced;
      while (chain.add(b.tx_request(at++))) {
      }
      ASSERT_EQ(chain.error(), protocol_error::none);
      ASSERT_EQ(chain.drop(), net::tx_drop::none);
      bytes.clear();
      for (const grant::piece& p : chain.pieces()) {
        platform::mapping page = b.map(p.reference, platform::access::read_only);
        ASSERT_TRUE(page);
        bytes.insert(bytes.end(), page.address + p.offset, page.address + p.offset + p.length);
        ASSERT_EQ(b.grants.unmap(page), 0);
      }
      for (std::size_t i = 0; i < chain.slots(); ++i) {
        const std::uint16_t id = b.tx_request(b.tx_produced).as_request().id;
        chain.is_extra(i) ? b.answer(0, 1) : b.answer(id);
      }
      const net::slot_plan plan = net::plan_slots(bytes.size(), chain.info(), takes);
      ASSERT_NE(plan.slots(), 0U);
      for (std::size_t i = 0; i < plan.slots(); ++i) {
        const net::slot_plan::part part = plan.at(i);
        if (part.is_extra) {
          b.respond({.is_extra = true, .extra = *part.extra});
        } else {
          b.fill(b.rx_produced, std::span(bytes).subspan(part.offset, part.length));
          b.respond({.flags = part.flags, .status = static_cast<std::int16_t>(part.length)});
        }
      }
      b.show_received();
      b.queue.poll([&](const received_packet& p) {
        const auto wrong = model.arrived(p.bytes, p.info);
        EXPECT_FALSE(wrong) << *wrong;
      });
      b.queue.post();
      b.queue.publish();
      ASSERT_EQ(b.violations(), "");
      ASSERT_FALSE(HasFailure());
    }
    ASSERT_NE(count, 0U);
    ASSERT_EQ(model.pending(), 0U);
  }
  EXPECT_EQ(b.queue.tx_outstanding(), 0U);
}

}  // namespace
}  // namespace pvring::testing
