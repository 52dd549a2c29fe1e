// SPDX-License-Identifier: MIT
// Our 32-bit layout against Xen's public headers as a 32-bit x86 compiler lays them out: 64-bit
// numbers are aligned to 4 bytes there, which packing to 4 does here. The namespace keeps these
// structs apart from the 64-bit ones of the same names.
#include <gtest/gtest.h>

#include <cstdint>

// Xen's headers choose what they define by architecture, and that stays: only alignment is changed.
namespace xen_on_x86_32 {
#pragma pack(push, 4)
#include <xen/io/blkif.h>
#pragma pack(pop)
}  // namespace xen_on_x86_32

#include "blkif_layout.hpp"

namespace {

namespace blkif = pvring::protocol::blkif;

struct vendor {
  using request = xen_on_x86_32::blkif_request;
  using segment = xen_on_x86_32::blkif_request_segment;
  using discard_request = xen_on_x86_32::blkif_request_discard;
  using indirect_request = xen_on_x86_32::blkif_request_indirect;
  using response = xen_on_x86_32::blkif_response;
  using slot = xen_on_x86_32::blkif_sring_entry;
  using ring = xen_on_x86_32::blkif_sring;
};
using wire = blkif::wire<blkif::abi::x86_32>;
static_assert(wire_test::same_layout<vendor, blkif::x86_32_layouts>::value);

static_assert(sizeof(blkif::x86_32_layouts::request) == 108);
static_assert(sizeof(blkif::x86_32_layouts::discard_request) == 28);
static_assert(sizeof(blkif::x86_32_layouts::response) == 12);
static_assert(offsetof(blkif::x86_32_layouts::request, id) == 4);
static_assert(offsetof(blkif::x86_32_layouts::request, seg) == 20);
static_assert(offsetof(blkif::x86_32_layouts::indirect_request, handle) == 20);
static_assert(offsetof(blkif::x86_32_layouts::indirect_request, indirect_grefs) == 24);

TEST(BlkifOn32Bit, DirectRequestsReadAsXenWritesThem) {
  wire_test::direct_requests_agree<vendor, wire>();
}
TEST(BlkifOn32Bit, DiscardRequestsReadAsXenWritesThem) {
  wire_test::discard_requests_agree<vendor, wire>();
}
TEST(BlkifOn32Bit, IndirectRequestsReadAsXenWritesThem) {
  wire_test::indirect_requests_agree<vendor, wire>();
}
TEST(BlkifOn32Bit, ResponsesReadAsXenWritesThem) { wire_test::responses_agree<vendor, wire>(); }

TEST(BlkifOn32Bit, RingHasAsManySlotsAsXenSaysForOneToSixteenPages) {
  using xen_on_x86_32::blkif_sring;  // the macro names it
  for (std::size_t pages = 1; pages <= pvring::protocol::max_ring_pages; ++pages) {
    const std::size_t bytes = pages * pvring::protocol::ring_page_bytes;
    // NOLINTNEXTLINE(clang-analyzer-*): the macro measures a member of nothing.
    EXPECT_EQ(pvring::protocol::ring_slots(bytes, wire::slot_bytes),
              __CONST_RING_SIZE(blkif, bytes))
        << pages;
  }
}

TEST(BlkifOn32Bit, RingsOfAPowerOfTwoOfPagesHaveAsManySlotsAsOn64Bit) {
  // Only those occur, as a ring's size is told as an order; seven pages would differ.
  for (std::size_t pages = 1; pages <= pvring::protocol::max_ring_pages; pages *= 2) {
    const std::size_t bytes = pages * pvring::protocol::ring_page_bytes;
    EXPECT_EQ(pvring::protocol::ring_slots(bytes, wire::slot_bytes), 32 * pages);
    EXPECT_EQ(pvring::protocol::ring_slots(bytes, blkif::wire<blkif::abi::x86_64>::slot_bytes),
              32 * pages);
  }
}

}  // namespace
