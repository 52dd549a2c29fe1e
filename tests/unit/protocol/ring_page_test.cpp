// SPDX-License-Identifier: MIT
// How many slots a ring has, for every number of pages that one may have and for memory that is
// none.
#include "pvring/protocol/ring_page.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace {

using pvring::protocol::max_ring_pages;
using pvring::protocol::ring_header_bytes;
using pvring::protocol::ring_indices;
using pvring::protocol::ring_page_bytes;
using pvring::protocol::ring_slots;

static_assert(sizeof(ring_indices<std::uint8_t>) == 4);
static_assert(ring_slots(ring_page_bytes, 112) == 32);
static_assert(ring_slots(ring_page_bytes, 108) == 32);
static_assert(ring_slots(16 * ring_page_bytes, 112) == 512);

TEST(RingPage, SlotsAreTheLargestPowerOfTwoThatFits) {
  for (std::size_t pages = 1; pages <= max_ring_pages; ++pages) {
    for (const std::size_t slot : {8U, 12U, 16U, 108U, 112U, 4032U}) {
      const std::size_t bytes = pages * ring_page_bytes;
      const std::size_t slots = ring_slots(bytes, slot);
      EXPECT_TRUE(std::has_single_bit(slots));
      EXPECT_LE(ring_header_bytes + slots * slot, bytes) << "the last slot ends inside";
      EXPECT_GT(ring_header_bytes + 2 * slots * slot, bytes) << "twice as many do not fit";
    }
  }
}

TEST(RingPage, MemoryWithoutRoomForASlotHasNone) {
  EXPECT_EQ(ring_slots(0, 112), 0U);
  EXPECT_EQ(ring_slots(ring_header_bytes, 112), 0U);
  EXPECT_EQ(ring_slots(ring_header_bytes + 111, 112), 0U);
  EXPECT_EQ(ring_slots(ring_header_bytes + 112, 112), 1U);
}

}  // namespace
