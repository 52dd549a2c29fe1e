// SPDX-License-Identifier: MIT
// How block requests are fetched: each byte at most once, nothing that is not needed, and whatever
// a peer writes gives a request that is consistent in itself. Offsets are spelt out here;
// tests/wire compares them with Xen's.
#include "pvring/protocol/blkif_abi.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <utility>

#include "counting_slot.hpp"

namespace {

namespace blkif = pvring::protocol::blkif;
namespace op = blkif::operation;

struct offsets {
  std::size_t alignment, slot, id, sector, segments, nr_sectors, grefs;
};

template <blkif::abi Abi>
struct abi_case {
  using wire = blkif::wire<Abi>;
  static constexpr offsets at = Abi == blkif::abi::x86_32 ? offsets{4, 108, 4, 12, 20, 20, 24}
                                                          : offsets{8, 112, 8, 16, 24, 24, 28};

  static std::set<std::size_t> range(std::size_t from, std::size_t bytes) {
    std::set<std::size_t> all;
    for (std::size_t i = from; i < from + bytes; ++i) {
      all.insert(i);
    }
    return all;
  }
  static std::set<std::size_t> ranges(
      std::initializer_list<std::pair<std::size_t, std::size_t>> parts) {
    std::set<std::size_t> all;
    for (const auto& [from, bytes] : parts) {
      all.merge(range(from, bytes));
    }
    return all;
  }

  static blkif::request fetch(counting_slot& slot) {
    blkif::request into{};
    wire::fetch(slot.access(), into);
    EXPECT_LE(slot.most_loads_of_a_byte(), 1);
    return into;
  }
};

template <class Case>
class BlkifAbi : public testing::Test {
 protected:
  // A slot with an operation, a second byte, the id 0x1122334455667788, a sector number, and
  // numbered segments.
  counting_slot direct(std::uint8_t operation, std::uint8_t nr_segments) {
    counting_slot slot(Case::at.alignment);
    slot.put<std::uint8_t>(0, operation);
    slot.put<std::uint8_t>(1, nr_segments);
    slot.put<std::uint16_t>(2, 0xabcd);
    slot.put<std::uint64_t>(Case::at.id, 0x1122334455667788U);
    slot.put<std::uint64_t>(Case::at.sector, 0x99aabbccddeeff00U);
    for (std::size_t i = 0; i < blkif::max_direct_segments; ++i) {
      const std::size_t at = Case::at.segments + 8 * i;
      slot.put<std::uint32_t>(at, static_cast<std::uint32_t>(0xf0000000U + i));
      slot.put<std::uint8_t>(at + 4, static_cast<std::uint8_t>(i));
      slot.put<std::uint8_t>(at + 5, static_cast<std::uint8_t>(0xff - i));
    }
    return slot;
  }
  counting_slot indirect(std::uint8_t inner, std::uint16_t nr_segments) {
    counting_slot slot(Case::at.alignment);
    slot.put<std::uint8_t>(0, op::indirect);
    slot.put<std::uint8_t>(1, inner);
    slot.put<std::uint16_t>(2, nr_segments);
    slot.put<std::uint64_t>(Case::at.id, 0x1122334455667788U);
    slot.put<std::uint64_t>(Case::at.sector, 0x99aabbccddeeff00U);
    for (std::size_t i = 0; i < blkif::max_indirect_pages; ++i) {
      slot.put<std::uint32_t>(Case::at.grefs + 4 * i, static_cast<std::uint32_t>(0xe0000000U + i));
    }
    return slot;
  }
};
using abis = testing::Types<abi_case<blkif::abi::x86_64>, abi_case<blkif::abi::x86_32>>;
TYPED_TEST_SUITE(BlkifAbi, abis);

TYPED_TEST(BlkifAbi, SlotIsAsLongAsTheAbisRequest) {
  EXPECT_EQ(TypeParam::wire::slot_bytes, TypeParam::at.slot);
}

// Cases 5, 7 and 26: legal and illegal counts, and what is loaded for each.
TYPED_TEST(BlkifAbi, DirectRequestLoadsItsSegmentsAndNoOthers) {
  for (const std::uint8_t operation : {op::read, op::write, op::write_barrier, op::flush}) {
    for (unsigned n = 0; n <= 255; ++n) {
      counting_slot slot = this->direct(operation, static_cast<std::uint8_t>(n));
      const blkif::request got = TypeParam::fetch(slot);
      ASSERT_EQ(got.operation, operation);
      ASSERT_EQ(got.id, 0x1122334455667788U);
      ASSERT_EQ(got.sector_number.echo(), 0x99aabbccddeeff00U);
      ASSERT_EQ(got.nr_segments.echo(), n) << "as sent: the queue refuses it, not the parser";
      const std::size_t loaded = n <= 11 ? n : 0;
      for (std::size_t i = 0; i < loaded; ++i) {
        ASSERT_EQ(got.direct[i].gref, 0xf0000000U + i);
        ASSERT_EQ(got.direct[i].first_sect, i);
        ASSERT_EQ(got.direct[i].last_sect, 0xff - i);
      }
      ASSERT_EQ(counting_slot::touched(slot.loads),
                TypeParam::ranges({{0, 4},
                                   {TypeParam::at.id, 8},
                                   {TypeParam::at.sector, 8},
                                   {TypeParam::at.segments, 8 * loaded}}))
          << n << " segments";
    }
  }
}

TYPED_TEST(BlkifAbi, DiscardLoadsItsRangeAndFlag) {
  counting_slot slot = this->direct(op::discard, blkif::discard_secure);
  slot.put<std::uint64_t>(TypeParam::at.nr_sectors, 0x0102030405060708U);
  const blkif::request got = TypeParam::fetch(slot);
  EXPECT_EQ(got.operation, op::discard);
  EXPECT_EQ(got.flag, blkif::discard_secure);
  EXPECT_EQ(got.id, 0x1122334455667788U);
  EXPECT_EQ(got.sector_number.echo(), 0x99aabbccddeeff00U);
  EXPECT_EQ(got.nr_sectors.echo(), 0x0102030405060708U);
  EXPECT_EQ(counting_slot::touched(slot.loads), TypeParam::ranges({{0, 4},
                                                                   {TypeParam::at.id, 8},
                                                                   {TypeParam::at.sector, 8},
                                                                   {TypeParam::at.nr_sectors, 8}}));
}

// Cases 28 and 127: the inner operation and the count come from their own fields, and no count
// makes the parser run on.
TYPED_TEST(BlkifAbi, IndirectRequestLoadsThePagesThatItsCountNeeds) {
  for (unsigned n = 0; n <= 0xffff; ++n) {
    counting_slot slot = this->indirect(op::write, static_cast<std::uint16_t>(n));
    const blkif::request got = TypeParam::fetch(slot);
    ASSERT_EQ(got.operation, op::indirect);
    ASSERT_EQ(got.indirect_operation, op::write);
    ASSERT_EQ(got.id, 0x1122334455667788U);
    ASSERT_EQ(got.sector_number.echo(), 0x99aabbccddeeff00U);
    ASSERT_EQ(got.nr_segments.echo(), n);
    const std::size_t pages = n > 4096 ? 0 : (n + 511) / 512;
    for (std::size_t i = 0; i < pages; ++i) {
      ASSERT_EQ(got.indirect_grefs[i], 0xe0000000U + i);
    }
    // Comparing sets is dear: once per number of pages will do, as the counts are checked for all.
    if (n % 512 <= 1 || n >= 0xfffe || n == 4097) {
      ASSERT_EQ(counting_slot::touched(slot.loads),
                TypeParam::ranges({{0, 4},
                                   {TypeParam::at.id, 8},
                                   {TypeParam::at.sector, 8},
                                   {TypeParam::at.grefs, 4 * pages}}))
          << n << " segments";
    }
  }
}

TYPED_TEST(BlkifAbi, IndirectRequestMayCarryAnyInnerOperation) {
  for (const std::uint8_t inner :
       {op::read, op::write, op::discard, op::indirect, std::uint8_t{200}}) {
    counting_slot slot = this->indirect(inner, 1);
    EXPECT_EQ(TypeParam::fetch(slot).indirect_operation, inner);
  }
}

// Case 23: what is needed to answer it is its id.
TYPED_TEST(BlkifAbi, UnknownOperationLoadsOnlyWhatItsAnswerNeeds) {
  for (unsigned operation = 0; operation <= 255; ++operation) {
    if (operation <= 3 || operation == 5 || operation == 6) {
      continue;
    }
    counting_slot slot = this->direct(static_cast<std::uint8_t>(operation), 11);
    const blkif::request got = TypeParam::fetch(slot);
    ASSERT_EQ(got.operation, operation);
    ASSERT_EQ(got.id, 0x1122334455667788U);
    ASSERT_EQ(counting_slot::touched(slot.loads),
              TypeParam::ranges({{0, 4}, {TypeParam::at.id, 8}}));
  }
}

// Case 1: a slot that is another one after every load. Whatever comes out, it was read from one
// look at the head.
TYPED_TEST(BlkifAbi, SlotThatChangesAfterEveryLoadGivesAConsistentRequest) {
  for (unsigned operation = 0; operation <= 255; ++operation) {
    for (const unsigned second : {0U, 1U, 11U, 12U, 244U, 254U, 255U}) {
      counting_slot slot =
          this->direct(static_cast<std::uint8_t>(operation), static_cast<std::uint8_t>(second));
      slot.hostile = true;
      const blkif::request got = TypeParam::fetch(slot);
      ASSERT_EQ(got.operation, operation);
      if (operation <= 3) {
        ASSERT_EQ(got.nr_segments.echo(), second);
      } else if (operation == op::discard) {
        ASSERT_EQ(got.flag, second);
      } else if (operation == op::indirect) {
        ASSERT_EQ(got.indirect_operation, second);
        ASSERT_EQ(got.nr_segments.echo(), 0xabcd);
      }
    }
  }
}

// Case 14: no byte but the three fields is stored.
TYPED_TEST(BlkifAbi, ResponseStoresItsFieldsAndNoPadding) {
  for (const blkif::status status :
       {blkif::status::okay, blkif::status::error, blkif::status::not_supported}) {
    counting_slot slot(TypeParam::at.alignment);
    TypeParam::wire::store(slot.access(), {0x1122334455667788U, 200}, status);
    EXPECT_EQ(counting_slot::touched(slot.stores), TypeParam::ranges({{0, 8}, {8, 1}, {10, 2}}));
    EXPECT_EQ(slot.bytes[9], std::byte{0xee});
    EXPECT_EQ(counting_slot::touched(slot.loads), std::set<std::size_t>());
    const auto got = TypeParam::wire::fetch_response(slot.access());
    EXPECT_EQ(got.id, 0x1122334455667788U);
    EXPECT_EQ(got.operation, 200U);
    EXPECT_EQ(got.status, static_cast<std::int16_t>(status));
    EXPECT_EQ(counting_slot::touched(slot.loads), TypeParam::ranges({{0, 8}, {8, 1}, {10, 2}}));
    EXPECT_EQ(slot.most_loads_of_a_byte(), 1);
  }
}

TYPED_TEST(BlkifAbi, RequestsAreStoredAsTheyAreFetched) {
  blkif::request sent{};
  sent.id = 0x1122334455667788U;
  sent.sector_number = pvring::untrusted<std::uint64_t>(0x99aabbccddeeff00U);
  sent.nr_sectors = pvring::untrusted<std::uint64_t>(0x0102030405060708U);
  sent.flag = 1;
  for (std::uint8_t i = 0; i < blkif::max_direct_segments; ++i) {
    sent.direct[i] = {0xf0000000U + i, i, static_cast<std::uint8_t>(7 - i), {}};
  }
  for (unsigned i = 0; i < blkif::max_indirect_pages; ++i) {
    sent.indirect_grefs[i] = 0xe0000000U + i;
  }
  const auto trip = [](const blkif::request& from) {
    counting_slot slot(TypeParam::at.alignment);
    TypeParam::wire::store_request(slot.access(), from);
    return TypeParam::fetch(slot);
  };
  sent.operation = op::write;
  for (const std::uint16_t n : std::initializer_list<std::uint16_t>{0, 1, 11, 12, 255}) {
    sent.nr_segments = pvring::untrusted<std::uint16_t>(n);
    const blkif::request got = trip(sent);
    EXPECT_EQ(got.nr_segments.echo(), n);
    for (std::size_t i = 0; i < (n <= 11 ? n : 0U); ++i) {
      EXPECT_EQ(got.direct[i].gref, sent.direct[i].gref);
      EXPECT_EQ(got.direct[i].first_sect, sent.direct[i].first_sect);
      EXPECT_EQ(got.direct[i].last_sect, sent.direct[i].last_sect);
    }
    EXPECT_EQ(got.sector_number.echo(), sent.sector_number.echo());
  }
  sent.operation = op::discard;
  EXPECT_EQ(trip(sent).nr_sectors.echo(), sent.nr_sectors.echo());
  EXPECT_EQ(trip(sent).flag, 1U);
  sent.operation = op::indirect;
  sent.indirect_operation = op::read;
  for (const std::uint16_t n :
       std::initializer_list<std::uint16_t>{1, 512, 513, 4096, 4097, 0xffff}) {
    sent.nr_segments = pvring::untrusted<std::uint16_t>(n);
    const blkif::request got = trip(sent);
    EXPECT_EQ(got.nr_segments.echo(), n);
    EXPECT_EQ(got.indirect_operation, op::read);
    for (std::size_t i = 0; i < (n <= 4096 ? TypeParam::wire::pages_for(n) : 0); ++i) {
      EXPECT_EQ(got.indirect_grefs[i], sent.indirect_grefs[i]);
    }
  }
}

// Cases 23 and 28.
TYPED_TEST(BlkifAbi, EchoIsTheInnerOperationWhereIndirectIsOffered) {
  blkif::request request{};
  request.id = 5;
  request.operation = op::indirect;
  request.indirect_operation = op::write;
  EXPECT_EQ(TypeParam::wire::echo_of(request, true).operation, op::write);
  EXPECT_EQ(TypeParam::wire::echo_of(request, false).operation, op::indirect);
  EXPECT_EQ(TypeParam::wire::echo_of(request, true).id, 5U);
  request.operation = 200;
  EXPECT_EQ(TypeParam::wire::echo_of(request, true).operation, 200U);
}

TYPED_TEST(BlkifAbi, PagesForSegmentsRoundsUp) {
  EXPECT_EQ(TypeParam::wire::pages_for(0), 0U);
  EXPECT_EQ(TypeParam::wire::pages_for(1), 1U);
  EXPECT_EQ(TypeParam::wire::pages_for(512), 1U);
  EXPECT_EQ(TypeParam::wire::pages_for(513), 2U);
  EXPECT_EQ(TypeParam::wire::pages_for(4096), 8U);
  EXPECT_EQ(TypeParam::wire::pages_for(0xffff), 128U);
}

// Case 44: a 32-bit frontend's request read with the 64-bit layout is another request; the ABI has
// to be known.
TEST(BlkifAbis, DifferInEverythingBehindTheHead) {
  counting_slot slot(4);
  slot.put<std::uint8_t>(0, op::read);
  slot.put<std::uint8_t>(1, 1);
  slot.put<std::uint64_t>(4, 0x1122334455667788U);
  slot.put<std::uint64_t>(12, 64);
  blkif::request right{};
  blkif::wire<blkif::abi::x86_32>::fetch(slot.access(), right);
  counting_slot copy(8);
  copy.bytes = slot.bytes;
  blkif::request wrong{};
  blkif::wire<blkif::abi::x86_64>::fetch(copy.access(), wrong);
  EXPECT_EQ(right.id, 0x1122334455667788U);
  EXPECT_EQ(right.sector_number.echo(), 64U);
  EXPECT_NE(wrong.id, right.id);
  EXPECT_NE(wrong.sector_number.echo(), right.sector_number.echo());
}

TEST(BlkifAbis, HaveTheNamesOfTheProtocolNode) {
  EXPECT_EQ(to_string(blkif::abi::x86_64), "x86_64-abi");
  EXPECT_EQ(to_string(blkif::abi::x86_32), "x86_32-abi");
}

}  // namespace
