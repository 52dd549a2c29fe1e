// SPDX-License-Identifier: MIT
// How the slots of the control ring are fetched and stored: each byte once, whatever a peer writes.
#include "pvring/protocol/netif_control.hpp"

#include <gtest/gtest.h>

#include <cstdint>

#include "counting_slot.hpp"
#include "pvring/protocol/ring_page.hpp"
#include "pvring/ring/back_ring.hpp"
#include "pvring/ring/front_ring.hpp"

namespace {

namespace netif = pvring::protocol::netif;
using netif::control_wire;

static_assert(pvring::ring::back_protocol<control_wire> &&
              pvring::ring::front_protocol<control_wire>);
static_assert(pvring::protocol::ring_slots(4096, control_wire::slot_bytes) == 128);
static_assert(netif::all_hash_flags == 15);

TEST(NetifControl, RequestIsFetchedWithOneLoadOfEachByte) {
  counting_slot slot(4);
  slot.hostile = true;
  control_wire::request request;
  control_wire::fetch(slot.access(), request);
  EXPECT_EQ(slot.most_loads_of_a_byte(), 1);
  EXPECT_EQ(counting_slot::touched(slot.loads).size(), 16U);
}

TEST(NetifControl, RequestHasItsFieldsWhereTheHeaderPutsThem) {
  counting_slot slot(4);
  slot.put<std::uint16_t>(0, 0x1234);
  slot.put<std::uint16_t>(2, 0x5678);
  slot.put<std::uint32_t>(4, 0x11111111);
  slot.put<std::uint32_t>(8, 0x22222222);
  slot.put<std::uint32_t>(12, 0x33333333);
  control_wire::request request;
  control_wire::fetch(slot.access(), request);
  EXPECT_EQ(request.id, 0x1234);
  EXPECT_EQ(request.type, 0x5678);
  EXPECT_EQ(request.data[0].echo(), 0x11111111U);
  EXPECT_EQ(request.data[1].echo(), 0x22222222U);
  EXPECT_EQ(request.data[2].echo(), 0x33333333U);
}

TEST(NetifControl, ResponseIsStoredWithoutTouchingTheRestOfItsSlot) {
  counting_slot slot(4);
  control_wire::store(slot.access(), {0x1234, 0x5678},
                      {netif::control_status::buffer_overflow, 0xaabbccdd});
  EXPECT_EQ(counting_slot::touched(slot.stores).size(), 12U);
  EXPECT_EQ(*counting_slot::touched(slot.stores).rbegin(), 11U);
  const auto response = control_wire::fetch_response(slot.access());
  EXPECT_EQ(response.id, 0x1234);
  EXPECT_EQ(response.type, 0x5678);
  EXPECT_EQ(response.status, 3U);
  EXPECT_EQ(response.data, 0xaabbccddU);
}

}  // namespace
