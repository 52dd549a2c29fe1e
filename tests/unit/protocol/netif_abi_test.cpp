// SPDX-License-Identifier: MIT
// How the slots of a network device's rings are fetched and stored: each byte at most once, nothing
// that is not needed, whatever a peer writes. Offsets are spelt out here; tests/wire compares them
// with Xen's.
#include "pvring/protocol/netif_abi.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "counting_slot.hpp"
#include "pvring/ring/back_ring.hpp"
#include "pvring/ring/front_ring.hpp"

namespace {

namespace netif = pvring::protocol::netif;
using netif::rx_wire;
using netif::tx_wire;

static_assert(pvring::ring::back_protocol<tx_wire> && pvring::ring::front_protocol<tx_wire>);
static_assert(pvring::ring::back_protocol<rx_wire> && pvring::ring::front_protocol<rx_wire>);
static_assert(tx_wire::slot_bytes == 12 && rx_wire::slot_bytes == 8);
static_assert(pvring::protocol::ring_slots(4096, tx_wire::slot_bytes) == 256);
static_assert(pvring::protocol::ring_slots(4096, rx_wire::slot_bytes) == 256);

std::set<std::size_t> range(std::size_t from, std::size_t to) {
  std::set<std::size_t> all;
  for (std::size_t i = from; i < to; ++i) {
    all.insert(i);
  }
  return all;
}

TEST(NetifTx, RequestIsFetchedWithOneLoadOfEachByte) {
  counting_slot slot(4);
  slot.hostile = true;  // a second load of anything would see something else
  slot.put<std::uint32_t>(0, 0x80000001U);
  slot.put<std::uint16_t>(4, 0x1234);
  slot.put<std::uint16_t>(6, 0x5678);
  slot.put<std::uint16_t>(8, 0x9abc);
  slot.put<std::uint16_t>(10, 0xdef0);
  const auto before = slot.bytes;
  netif::tx_slot raw;
  tx_wire::fetch(slot.access(), raw);
  EXPECT_EQ(slot.most_loads_of_a_byte(), 1);
  EXPECT_EQ(counting_slot::touched(slot.loads), range(0, 12));

  counting_slot quiet(4);
  quiet.bytes = before;
  tx_wire::fetch(quiet.access(), raw);
  const netif::tx_request r = raw.as_request();
  EXPECT_EQ(r.gref, 0x80000001U);
  EXPECT_EQ(r.offset.echo(), 0x1234);
  EXPECT_EQ(r.flags, 0x5678);
  EXPECT_EQ(r.id, 0x9abc);
  EXPECT_EQ(r.size.echo(), 0xdef0);
}

TEST(NetifTx, TheSameSlotReadAsExtraInfo) {
  counting_slot slot(4);
  for (std::size_t i = 0; i < 8; ++i) {
    slot.put<std::uint8_t>(i, static_cast<std::uint8_t>(0xf0 + i));
  }
  netif::tx_slot raw;
  tx_wire::fetch(slot.access(), raw);
  const netif::extra_info e = raw.as_extra();
  EXPECT_EQ(e.type, 0xf0);
  EXPECT_EQ(e.flags, 0xf1);
  EXPECT_EQ(e.gso_size(), 0xf3f2);
  EXPECT_EQ(e.gso_type(), 0xf4);
  EXPECT_EQ(e.hash_type(), 0xf2);
  EXPECT_EQ(e.hash_algorithm(), 0xf3);
  EXPECT_EQ(e.hash_value(), 0xf7f6f5f4U);
}

TEST(NetifTx, ResponseIsFourBytesAndNoMore) {
  counting_slot slot(4);
  tx_wire::store(slot.access(), {0xabcd}, netif::status::error);
  EXPECT_EQ(counting_slot::touched(slot.stores), range(0, 4));
  const auto response = tx_wire::fetch_response(slot.access());
  EXPECT_EQ(response.id, 0xabcd);
  EXPECT_EQ(response.status, -1);
}

TEST(NetifRx, RequestIsFetchedWithoutItsPadding) {
  counting_slot slot(4);
  slot.put<std::uint16_t>(0, 0xbeef);
  slot.put<std::uint32_t>(4, 0x01020304);
  rx_wire::request r;
  rx_wire::fetch(slot.access(), r);
  EXPECT_EQ(r.id, 0xbeef);
  EXPECT_EQ(r.gref, 0x01020304U);
  EXPECT_EQ(slot.most_loads_of_a_byte(), 1);
  auto needed = range(0, 2);
  needed.merge(range(4, 8));
  EXPECT_EQ(counting_slot::touched(slot.loads), needed);
}

TEST(NetifRx, ResponseIsAPartOfAPacketOrAnExtraInfo) {
  counting_slot slot(4);
  rx_wire::store(slot.access(), {7}, {.offset = 1, .flags = 0x1f, .status = 4095});
  auto seen = rx_wire::fetch_response(slot.access());
  EXPECT_EQ(seen.id(), 7);
  EXPECT_EQ(seen.offset(), 1);
  EXPECT_EQ(seen.flags(), 0x1f);
  EXPECT_EQ(seen.status(), 4095);
  rx_wire::store(slot.access(), {7}, {.status = -1});
  EXPECT_EQ(rx_wire::fetch_response(slot.access()).status(), -1);

  rx_wire::store(
      slot.access(), {7},
      {.is_extra = true, .extra = netif::extra_info::of_gso(netif::gso_type::tcpv6, 1400)});
  seen = rx_wire::fetch_response(slot.access());
  EXPECT_EQ(seen.as_extra().type, netif::extra_type::gso);
  EXPECT_EQ(seen.as_extra().gso_size(), 1400);
  EXPECT_EQ(seen.as_extra().gso_type(), netif::gso_type::tcpv6);
  EXPECT_EQ(counting_slot::touched(slot.stores), range(0, 8));
}

TEST(NetifExtraInfo, IsReadAsItWasMade) {
  const auto hash = netif::extra_info::of_hash(netif::hash_algorithm::toeplitz,
                                               netif::hash_type::ipv6_tcp, 0x11223344);
  EXPECT_EQ(hash.type, netif::extra_type::hash);
  EXPECT_EQ(hash.hash_algorithm(), netif::hash_algorithm::toeplitz);
  EXPECT_EQ(hash.hash_type(), netif::hash_type::ipv6_tcp);
  EXPECT_EQ(hash.hash_value(), 0x11223344U);
  EXPECT_EQ(hash.data[2], 0x44) << "the lowest byte first";
  const auto group = netif::extra_info::of_multicast(false, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(group.type, netif::extra_type::multicast_delete);
  EXPECT_EQ(netif::tx_slot(group).as_extra().data, group.data);
}

}  // namespace
