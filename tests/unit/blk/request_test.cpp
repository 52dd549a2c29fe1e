// SPDX-License-Identifier: MIT
// What a request must be to be done: every rule for the ring's fields, at its edges.
#include "pvring/blk/request.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "queue_fixture.hpp"

namespace {

using namespace pvring;
using namespace pvring::test;
using blk::plan;
namespace operation = wire::operation;

class examine : public testing::Test {
 protected:
  examine() {
    device.sectors = 1000;
    device.flush = true;
    device.barrier = true;
    device.discard_granularity = 4096;
    device.max_indirect_segments = 256;
  }
  plan of(std::uint8_t op, std::uint16_t segments, std::uint8_t inner = 0) {
    wire::request request{};
    request.operation = op;
    request.indirect_operation = inner;
    request.nr_segments = untrusted(segments);
    return blk::examine(request, device);
  }
  plan discard(std::uint64_t sector, std::uint64_t sectors) {
    return blk::examine(make_discard(1, sector, sectors), device);
  }
  blk::shared_state device;
};

// Cases 26, 29, 38.
TEST_F(examine, takes_1_to_11_segments_for_read_and_write_and_0_to_11_for_flush_and_barrier) {
  for (std::uint16_t segments = 0; segments <= 255; ++segments) {
    const bool some = segments >= 1 && segments <= 11;
    for (const std::uint8_t op : {operation::read, operation::write}) {
      EXPECT_EQ(of(op, segments).what, some ? plan::kind::transfer : plan::kind::refuse);
    }
    for (const std::uint8_t op : {operation::flush, operation::write_barrier}) {
      EXPECT_EQ(of(op, segments).what, segments == 0 ? plan::kind::flush
                                       : some        ? plan::kind::transfer
                                                     : plan::kind::refuse);
    }
  }
}

// Case 23.
TEST_F(examine, says_not_supported_to_what_is_unknown_or_not_offered) {
  device.flush = false;
  device.barrier = false;
  device.discard_granularity = 0;
  device.max_indirect_segments = 0;
  for (unsigned op = 2; op <= 255; ++op) {
    const plan p = of(static_cast<std::uint8_t>(op), 1);
    EXPECT_EQ(p.what, plan::kind::refuse) << op;
    EXPECT_EQ(p.status, wire::status::not_supported) << op;
  }
}

// Case 33.
TEST_F(examine, refuses_everything_that_modifies_a_read_only_device) {
  device.read_only = true;
  for (const plan& p :
       {of(operation::write, 1), of(operation::write_barrier, 1), of(operation::flush, 1),
        of(operation::indirect, 1, operation::write), discard(0, 8)}) {
    EXPECT_EQ(p.what, plan::kind::refuse);
    EXPECT_EQ(p.status, wire::status::error);
  }
  EXPECT_EQ(of(operation::read, 1).what, plan::kind::transfer);
  EXPECT_EQ(of(operation::flush, 0).what, plan::kind::flush);
  EXPECT_EQ(of(operation::indirect, 1, operation::read).what, plan::kind::transfer);
}

// Cases 28, 127.
TEST_F(examine, takes_reads_and_writes_of_1_to_the_offered_number_of_segments_indirectly) {
  for (const std::uint16_t segments : std::initializer_list<std::uint16_t>{1, 11, 12, 256}) {
    EXPECT_EQ(of(operation::indirect, segments, operation::write).what, plan::kind::transfer);
  }
  for (const std::uint16_t segments :
       std::initializer_list<std::uint16_t>{0, 257, 513, 4097, 0xffff}) {
    EXPECT_EQ(of(operation::indirect, segments, operation::read).what, plan::kind::refuse);
  }
  for (unsigned inner = 2; inner <= 255; ++inner) {
    const plan p = of(operation::indirect, 1, static_cast<std::uint8_t>(inner));
    EXPECT_EQ(p.what, plan::kind::refuse);
    EXPECT_EQ(p.status, wire::status::error);
  }
}

// Cases 34, 36.
TEST_F(examine, trims_a_discard_to_whole_granules_and_refuses_it_past_the_end) {
  const plan whole = discard(8, 16);
  EXPECT_EQ(whole.what, plan::kind::discard);
  EXPECT_EQ(whole.sector, 8U);
  EXPECT_EQ(whole.sectors, 16U);
  const plan trimmed = discard(1, 22);
  EXPECT_EQ(trimmed.sector, 8U);
  EXPECT_EQ(trimmed.sectors, 8U);
  EXPECT_EQ(discard(1, 3).what, plan::kind::done) << "nothing of it fills a granule";
  EXPECT_EQ(discard(992, 8).what, plan::kind::discard);
  EXPECT_EQ(discard(993, 8).what, plan::kind::refuse);
  EXPECT_EQ(discard(0, std::uint64_t{1} << 32U).what, plan::kind::refuse);
  EXPECT_EQ(discard(std::numeric_limits<std::uint64_t>::max(), 2).what, plan::kind::refuse);
  EXPECT_EQ(discard(8, std::numeric_limits<std::uint64_t>::max()).what, plan::kind::refuse);
  device.sectors = std::uint64_t{1} << 33U;
  EXPECT_EQ(discard(0, std::uint64_t{1} << 32U).sectors, std::uint64_t{1} << 32U);
}

TEST_F(examine, orders_flushes_around_the_data_of_flush_and_barrier) {
  const plan flush = of(operation::flush, 2);
  EXPECT_TRUE(flush.write && flush.flush_before && !flush.flush_after && !flush.barrier);
  const plan barrier = of(operation::write_barrier, 2);
  EXPECT_TRUE(barrier.write && barrier.flush_before && barrier.flush_after && barrier.barrier);
}

class lay_out : public testing::Test {
 protected:
  bool of(std::vector<wire::segment> segments, std::uint64_t sector) {
    pieces.resize(segments.size());
    return blk::lay_out(segments, sector, device, pieces, bytes);
  }
  blk::shared_state device{.sectors = 1000};
  std::vector<grant::piece> pieces;
  std::uint64_t bytes = 0;
};

// Cases 24, 25: over all pairs of the two bytes.
TEST_F(lay_out, takes_exactly_the_segments_that_lie_in_a_page) {
  for (unsigned first = 0; first <= 255; ++first) {
    for (unsigned last = 0; last <= 255; ++last) {
      const bool good = first <= last && last <= 7;
      ASSERT_EQ(of({page(1, static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last))}, 0),
                good);
      if (good) {
        EXPECT_EQ(pieces[0].offset, first * 512);
        EXPECT_EQ(pieces[0].length, (last - first + 1) * 512);
        EXPECT_EQ(bytes, pieces[0].length);
      }
    }
  }
}

// Case 31.
TEST_F(lay_out, takes_nothing_that_reaches_past_the_end) {
  EXPECT_TRUE(of({page(1)}, 992));
  EXPECT_FALSE(of({page(1)}, 993));
  EXPECT_FALSE(of({page(1, 0, 0)}, 1000));
  EXPECT_FALSE(of({page(1, 0, 1)}, 999));
  EXPECT_TRUE(of({page(1, 0, 0)}, 999));
  EXPECT_FALSE(of({page(1)}, std::numeric_limits<std::uint64_t>::max()));
  EXPECT_FALSE(of({page(1)}, std::numeric_limits<std::uint64_t>::max() - 7));
}

// Case 40.
TEST_F(lay_out, reaches_the_last_sectors_of_large_disks) {
  for (const std::uint64_t sectors : {std::uint64_t{1} << 31U, (std::uint64_t{1} << 32U) + 8}) {
    device.sectors = sectors;
    EXPECT_TRUE(of({page(1)}, sectors - 8));
    EXPECT_FALSE(of({page(1)}, sectors - 7));
  }
}

// Case 39: ring units are 512 bytes whatever sector size is exported; that only demands alignment.
TEST_F(lay_out, demands_whole_exported_sectors) {
  device.sector_size = 4096;
  EXPECT_TRUE(of({page(1)}, 8));
  EXPECT_FALSE(of({page(1)}, 1));
  EXPECT_FALSE(of({page(1, 0, 3)}, 8));
  EXPECT_TRUE(of({page(1, 0, 3), page(2, 4, 7)}, 8));
}

}  // namespace
