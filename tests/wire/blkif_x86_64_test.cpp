// SPDX-License-Identifier: MIT
// Our block protocol against Xen's public headers as this 64-bit compiler lays them out: structs,
// numbers, ring sizes.
#include <gtest/gtest.h>
#include <xen/io/blkif.h>
#include <xen/io/protocols.h>

#include "blkif_layout.hpp"

namespace {

namespace blkif = pvring::protocol::blkif;

struct vendor {
  using request = blkif_request;
  using segment = blkif_request_segment;
  using discard_request = blkif_request_discard;
  using indirect_request = blkif_request_indirect;
  using response = blkif_response;
  using slot = blkif_sring_entry;
  using ring = blkif_sring;
};
using wire = blkif::wire<blkif::abi::x86_64>;
static_assert(wire_test::same_layout<vendor, blkif::x86_64_layouts>::value);
static_assert(blkif::abi::native == blkif::abi::x86_64);

// The numbers of the page that this was written from, so that a changed vendor header is noticed
// too.
static_assert(sizeof(blkif::x86_64_layouts::request) == 112);
static_assert(sizeof(blkif::x86_64_layouts::discard_request) == 32);
static_assert(sizeof(blkif::x86_64_layouts::indirect_request) == 64);
static_assert(sizeof(blkif::x86_64_layouts::response) == 16);
static_assert(offsetof(blkif::x86_64_layouts::request, id) == 8);
static_assert(offsetof(blkif::x86_64_layouts::request, seg) == 24);
static_assert(offsetof(blkif::x86_64_layouts::indirect_request, handle) == 24);
static_assert(offsetof(blkif::x86_64_layouts::indirect_request, indirect_grefs) == 28);
// The C struct ends with padding of its own in both; ours has no fewer bytes than the format's
// members need.
static_assert(sizeof(blkif_request_indirect) == sizeof(blkif::x86_64_layouts::indirect_request));

static_assert(blkif::operation::read == BLKIF_OP_READ);
static_assert(blkif::operation::write == BLKIF_OP_WRITE);
static_assert(blkif::operation::write_barrier == BLKIF_OP_WRITE_BARRIER);
static_assert(blkif::operation::flush == BLKIF_OP_FLUSH_DISKCACHE);
static_assert(blkif::operation::discard == BLKIF_OP_DISCARD);
static_assert(blkif::operation::indirect == BLKIF_OP_INDIRECT);
static_assert(static_cast<int>(blkif::status::okay) == BLKIF_RSP_OKAY);
static_assert(static_cast<int>(blkif::status::error) == BLKIF_RSP_ERROR);
static_assert(static_cast<int>(blkif::status::not_supported) == BLKIF_RSP_EOPNOTSUPP);
static_assert(blkif::max_direct_segments == BLKIF_MAX_SEGMENTS_PER_REQUEST);
static_assert(blkif::max_indirect_pages == BLKIF_MAX_INDIRECT_PAGES_PER_REQUEST);
static_assert(blkif::segments_per_indirect_page == 4096 / sizeof(blkif_request_segment));
static_assert(blkif::max_indirect_segments == 4096);
static_assert(blkif::discard_secure == BLKIF_DISCARD_SECURE);
static_assert(blkif::info::cdrom == VDISK_CDROM);
static_assert(blkif::info::removable == VDISK_REMOVABLE);
static_assert(blkif::info::read_only == VDISK_READONLY);
static_assert(blkif::to_string(blkif::abi::x86_32) == XEN_IO_PROTO_ABI_X86_32);
static_assert(blkif::to_string(blkif::abi::x86_64) == XEN_IO_PROTO_ABI_X86_64);

TEST(BlkifOn64Bit, DirectRequestsReadAsXenWritesThem) {
  wire_test::direct_requests_agree<vendor, wire>();
}
TEST(BlkifOn64Bit, DiscardRequestsReadAsXenWritesThem) {
  wire_test::discard_requests_agree<vendor, wire>();
}
TEST(BlkifOn64Bit, IndirectRequestsReadAsXenWritesThem) {
  wire_test::indirect_requests_agree<vendor, wire>();
}
TEST(BlkifOn64Bit, ResponsesReadAsXenWritesThem) { wire_test::responses_agree<vendor, wire>(); }

TEST(BlkifOn64Bit, RingHasAsManySlotsAsXenSaysForOneToSixteenPages) {
  for (std::size_t pages = 1; pages <= pvring::protocol::max_ring_pages; ++pages) {
    const std::size_t bytes = pages * pvring::protocol::ring_page_bytes;
    // NOLINTNEXTLINE(clang-analyzer-*): the macro measures a member of nothing.
    EXPECT_EQ(pvring::protocol::ring_slots(bytes, wire::slot_bytes),
              __CONST_RING_SIZE(blkif, bytes))
        << pages;
  }
}

}  // namespace
