// SPDX-License-Identifier: MIT
// The strict frontend's queue against a backend that does what no backend may: each offence is
// recorded, and nothing that is right is.
#include "pvring/testing/strict_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "pvring/testing/block_model.hpp"
#include "rogue_backend.hpp"

namespace pvring::testing {
namespace {

using ::testing::HasSubstr;
namespace operation = protocol::blkif::operation;
using protocol::blkif::status;

const std::vector<block_segment> one_page = segments_for(8);

template <class Rogue>
class StrictQueueWire : public ::testing::Test {};
using both_abis = ::testing::Types<rogue_64, rogue_32>;
TYPED_TEST_SUITE(StrictQueueWire, both_abis);

TYPED_TEST(StrictQueueWire, PutsDirectRequestsWithTheirPagesAndData) {
  TypeParam b;
  const std::vector<block_segment> parts{{3, 7}, {0, 7}, {2, 2}};
  const auto tag = b.queue.submit(
      {.operation = operation::write, .sector = 0x123456789aU, .segments = parts},
      [](std::size_t offset, std::span<std::byte> bytes) { make_content(bytes, offset / 512, 9); });
  ASSERT_TRUE(tag);
  EXPECT_EQ(b.request_producer(), 0U) << "the backend must not see it before it is published";
  EXPECT_TRUE(b.queue.publish());
  ASSERT_EQ(b.request_producer(), 1U);
  const auto seen = b.request(0);
  EXPECT_EQ(seen.id, *tag);
  EXPECT_EQ(seen.operation, operation::write);
  EXPECT_EQ(seen.sector_number.echo(), 0x123456789aU);
  ASSERT_EQ(seen.nr_segments.echo(), 3U);
  std::size_t sector = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(seen.direct[i].first_sect, parts[i].first_sect);
    EXPECT_EQ(seen.direct[i].last_sect, parts[i].last_sect);
    const auto page = b.map(seen.direct[i].gref, platform::access::read_only);
    ASSERT_TRUE(page);
    std::vector<std::byte> expected(parts[i].bytes());
    make_content(expected, sector, 9);
    EXPECT_EQ(std::memcmp(page.address + parts[i].offset(), expected.data(), expected.size()), 0);
    EXPECT_FALSE(b.map(seen.direct[i].gref, platform::access::read_write))
        << "data to be written is read-only";
    ASSERT_EQ(b.grants.unmap(page), 0);
    sector += parts[i].sectors();
  }
  b.respond(*tag, operation::write);
  const auto ends = b.take();
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_TRUE(ends[0].okay());
  EXPECT_EQ(ends[0].tag, *tag);
  EXPECT_EQ(ends[0].sectors, 14U);
  EXPECT_EQ(b.violations(), "");
}

TYPED_TEST(StrictQueueWire, PutsTheSegmentsOfIndirectRequestsIntoPagesOfTheirOwn) {
  TypeParam b({.max_indirect_segments = 1024});
  std::vector<block_segment> parts(600);
  parts[599] = {1, 2};
  const auto tag = b.queue.submit({.operation = operation::read, .sector = 8, .segments = parts});
  ASSERT_TRUE(tag);
  b.queue.publish();
  const auto seen = b.request(0);
  EXPECT_EQ(seen.operation, operation::indirect);
  EXPECT_EQ(seen.indirect_operation, operation::read);
  EXPECT_EQ(seen.id, *tag);
  ASSERT_EQ(seen.nr_segments.echo(), 600U);
  for (const std::size_t i : {0U, 511U, 512U, 599U}) {
    const auto list = b.map(seen.indirect_grefs[i / 512], platform::access::read_only);
    ASSERT_TRUE(list);
    protocol::blkif::segment segment;
    std::memcpy(&segment, list.address + i % 512 * sizeof segment, sizeof segment);
    EXPECT_EQ(segment.first_sect, parts[i].first_sect);
    EXPECT_EQ(segment.last_sect, parts[i].last_sect);
    const auto page = b.map(segment.gref, platform::access::read_write);
    EXPECT_TRUE(page);
    ASSERT_EQ(b.grants.unmap(page), 0);
    ASSERT_EQ(b.grants.unmap(list), 0);
  }
  b.respond(*tag, operation::read);
  EXPECT_EQ(b.take().size(), 1U);
  EXPECT_EQ(b.violations(), "");
}

TYPED_TEST(StrictQueueWire, PutsDiscardsAndWrapsWithTheRingsIndices) {
  TypeParam b({.ring_start = 0xfffffffeU});
  for (int i = 0; i < 5; ++i) {
    const auto tag = b.queue.submit(
        {.operation = operation::discard, .sector = 40, .sectors = 0x100000001U, .flag = 1});
    ASSERT_TRUE(tag);
    b.queue.publish();
    const auto seen = b.request(b.produced);
    EXPECT_EQ(seen.operation, operation::discard);
    EXPECT_EQ(seen.flag, 1);
    EXPECT_EQ(seen.nr_sectors.echo(), 0x100000001U);
    b.respond(seen.id, seen.operation, status::not_supported);
    const auto ends = b.take();
    ASSERT_EQ(ends.size(), 1U);
    EXPECT_TRUE(ends[0].is(status::not_supported));
    EXPECT_EQ(ends[0].tag, *tag);
  }
  EXPECT_EQ(b.violations(), "");
}

TEST(StrictQueue, RecordsAResponseWithAnUnknownId) {
  rogue_64 b;
  ASSERT_TRUE(b.queue.submit({.segments = one_page}));
  b.queue.publish();
  b.respond(0xffff, operation::read);
  EXPECT_TRUE(b.take().empty());
  EXPECT_THAT(b.violations(), HasSubstr("queue 0: response with the unknown id 65535"));
}

TEST(StrictQueue, RecordsASecondResponseToTheSameRequest) {
  rogue_64 b;
  const auto first = b.queue.submit({.segments = one_page});
  ASSERT_TRUE(b.queue.submit({.segments = one_page}));
  b.queue.publish();
  b.respond(*first, operation::read);
  b.respond(*first, operation::read);
  EXPECT_EQ(b.take().size(), 1U);
  EXPECT_THAT(b.violations(), HasSubstr("not in flight"));
}

TEST(StrictQueue, RecordsAResponseToAnEarlierUserOfTheSlot) {
  rogue_64 b;
  const auto first = b.queue.submit({.segments = one_page});
  b.queue.publish();
  b.respond(*first, operation::read);
  EXPECT_EQ(b.take().size(), 1U);
  ASSERT_TRUE(b.queue.submit({.segments = one_page}));
  b.queue.publish();
  b.respond(*first, operation::read);
  EXPECT_TRUE(b.take().empty());
  EXPECT_THAT(b.violations(), HasSubstr("not in flight"));
}

TEST(StrictQueue, RecordsAnOperationThatIsNotTheRequests) {
  rogue_64 b;
  const auto tag = b.queue.submit({.operation = operation::write, .segments = one_page});
  b.queue.publish();
  b.respond(*tag, operation::read);
  EXPECT_TRUE(b.take().empty());
  EXPECT_THAT(b.violations(), HasSubstr("operation 0 to a request with operation 1"));
}

TEST(StrictQueue, WantsTheInnerOperationOfAnIndirectRequest) {
  rogue_64 b({.max_indirect_segments = 32});
  const auto right = b.queue.submit({.segments = one_page, .indirect = true});
  const auto wrong = b.queue.submit({.segments = one_page, .indirect = true});
  b.queue.publish();
  b.respond(*right, operation::read);
  b.respond(*wrong, operation::indirect);
  EXPECT_EQ(b.take().size(), 1U);
  EXPECT_THAT(b.violations(), HasSubstr("operation 6 to a request with operation 0"));
}

TEST(StrictQueue, RecordsMoreResponsesThanRequests) {
  rogue_64 b;
  const auto tag = b.queue.submit({.segments = one_page});
  b.queue.publish();
  b.respond(*tag, operation::read);
  b.show(2);
  EXPECT_TRUE(b.take().empty());
  EXPECT_THAT(b.violations(), HasSubstr("response producer overran the requests"));
}

TEST(StrictQueue, RecordsAResponseWhileTheGrantIsMapped) {
  rogue_64 b;
  const auto tag = b.queue.submit({.segments = one_page});
  b.queue.publish();
  const auto page = b.map(b.request(0).direct[0].gref, platform::access::read_write);
  b.respond(*tag, operation::read);
  EXPECT_TRUE(b.take().empty());
  EXPECT_THAT(b.violations(), HasSubstr("response while the grant is mapped"));
  (void)b.grants.unmap(page);
}

TEST(StrictQueue, RecordsAMappedPageOfSegmentsToo) {
  rogue_64 b({.max_indirect_segments = 32});
  const auto tag = b.queue.submit({.segments = one_page, .indirect = true});
  b.queue.publish();
  const auto page = b.map(b.request(0).indirect_grefs[0], platform::access::read_only);
  b.respond(*tag, operation::read);
  EXPECT_TRUE(b.take().empty());
  EXPECT_THAT(b.violations(), HasSubstr("response while the grant is mapped"));
  (void)b.grants.unmap(page);
}

TEST(StrictQueue, IsDisabledByAViolation) {
  rogue_64 b;
  const auto tag = b.queue.submit({.segments = one_page});
  const auto next = b.queue.submit({.segments = one_page});
  b.queue.publish();
  b.respond(*tag, operation::write);
  b.respond(*next, operation::read);
  EXPECT_TRUE(b.take().empty()) << "what comes after a violation is not believed";
  EXPECT_TRUE(b.log.disabled());
  EXPECT_FALSE(b.queue.submit({.segments = one_page}));
  EXPECT_EQ(b.queue.space(), 0U);
  EXPECT_TRUE(b.take().empty());
}

TEST(StrictQueue, UsesWhatABackendKeepsMappedFirstWherePersistentWasAgreed) {
  rogue_64 b({.persistent = true});
  const auto tag = b.queue.submit({.segments = segments_for(16)});
  b.queue.publish();
  const auto first = b.request(0);
  // One page stays mapped, the other does not.
  ASSERT_TRUE(b.map(first.direct[1].gref, platform::access::read_write));
  b.respond(*tag, operation::read);
  EXPECT_EQ(b.take().size(), 1U);
  const auto again = b.queue.submit({.operation = operation::write, .segments = segments_for(16)});
  b.queue.publish();
  const auto second = b.request(1);
  EXPECT_EQ(second.direct[0].gref, first.direct[1].gref);
  EXPECT_TRUE(b.map(second.direct[1].gref, platform::access::read_write))
      << "persistent grants are writable";
  EXPECT_EQ(b.violations(), "");
  b.respond(*again, operation::write);
  EXPECT_EQ(b.take().size(), 1U);
  EXPECT_EQ(b.violations(), "");
}

TEST(StrictQueue, SeesWhatIsStoredOutsideASegment) {
  constexpr std::size_t inside = 2 * 512;
  for (const std::size_t at :
       {inside, std::size_t{2 * 512 - 1}, std::size_t{4 * 512}, std::size_t{4095}}) {
    rogue_64 b({.guard_pages = true});
    const std::vector<block_segment> part{{2, 3}};
    const auto tag = b.queue.submit({.segments = part});
    b.queue.publish();
    const auto page = b.map(b.request(0).direct[0].gref, platform::access::read_write);
    std::memset(page.address + inside, 1, 2 * 512);
    page.address[at] = std::byte{2};
    (void)b.grants.unmap(page);
    b.respond(*tag, operation::read);
    EXPECT_EQ(b.take().size(), at == inside ? 1U : 0U);
    EXPECT_EQ(b.violations().empty(), at == inside) << b.violations();
  }
}

TEST(StrictQueue, ShowsWhatWasReadWhileTheCallbackSubmits) {
  rogue_64 b;
  const std::vector<block_segment> part{{1, 6}};
  const auto tag = b.queue.submit({.sector = 100, .segments = part, .cookie = 42});
  b.queue.publish();
  const auto page = b.map(b.request(0).direct[0].gref, platform::access::read_write);
  make_content({page.address + 512, 6 * 512}, 100, 1);
  (void)b.grants.unmap(page);
  b.respond(*tag, operation::read);
  std::vector<std::byte> got(6 * 512);
  std::vector<std::byte> expected(6 * 512);
  make_content(expected, 100, 1);
  EXPECT_EQ(b.queue.poll([&](const block_completion& end) {
    EXPECT_EQ(end.cookie, 42U);
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(b.queue.submit({.operation = operation::write, .segments = one_page},
                                 [](std::size_t, std::span<std::byte> bytes) {
                                   std::memset(bytes.data(), 0xff, bytes.size());
                                 }));
    }
    b.queue.publish();
    end.copy_to(got);
  }),
            1U);
  EXPECT_EQ(got, expected);
  EXPECT_EQ(b.queue.in_flight(), 5U);
  EXPECT_EQ(b.violations(), "");
}

TEST(StrictQueue, GivesNothingWhereTheRingIsFull) {
  rogue_64 b;
  EXPECT_EQ(b.queue.ring_size(), 32U);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(b.queue.space(), static_cast<std::size_t>(32 - i));
    ASSERT_TRUE(b.queue.submit({.segments = one_page}));
  }
  EXPECT_FALSE(b.queue.submit({.segments = one_page}));
  EXPECT_EQ(b.queue.in_flight(), 32U);
}

TEST(StrictQueue, RefusesWhatNoFrontendCanPut) {
  rogue_64 b({.max_indirect_segments = 32});
  const std::vector<block_segment> many(33);
  const std::vector<block_segment> backwards{{4, 3}};
  const std::vector<block_segment> beyond{{0, 8}};
  EXPECT_THROW(b.queue.submit({.segments = many}), std::invalid_argument);
  EXPECT_THROW(b.queue.submit({.segments = backwards}), std::invalid_argument);
  EXPECT_THROW(b.queue.submit({.segments = beyond}), std::invalid_argument);
  EXPECT_EQ(b.queue.in_flight(), 0U);
}

TEST(StrictQueue, NotifiesOnceForABatchAndOnlyWhereTheBackendWantsIt) {
  rogue_64 b;
  b.events.unmask(b.port);
  EXPECT_FALSE(b.queue.publish()) << "there is nothing to show";
  ASSERT_TRUE(b.queue.submit({.segments = one_page}));
  ASSERT_TRUE(b.queue.submit({.segments = one_page}));
  EXPECT_TRUE(b.queue.publish());
  EXPECT_EQ(b.events.pending(), b.port);
  // The event index stays behind: the backend polls.
  ASSERT_TRUE(b.queue.submit({.segments = one_page}));
  EXPECT_FALSE(b.queue.publish());
  EXPECT_EQ(b.queue.counters().kicks_sent.get(), 1U);
  EXPECT_EQ(b.queue.counters().publications.get(), 2U);
}

TEST(StrictQueue, CountsInterruptsAndThoseWithoutAReason) {
  rogue_64 b;
  const auto tag = b.queue.submit({.segments = one_page});
  b.queue.publish();
  EXPECT_FALSE(b.queue.wait(std::chrono::milliseconds(1)));
  b.notify();
  EXPECT_TRUE(b.queue.wait(std::chrono::milliseconds(1000)));
  EXPECT_EQ(b.queue.counters().interrupts.get(), 1U);
  EXPECT_EQ(b.queue.counters().spurious_interrupts.get(), 1U);
  b.respond(*tag, operation::read);
  b.notify();
  b.queue.acknowledge();
  EXPECT_EQ(b.queue.counters().interrupts.get(), 2U);
  EXPECT_EQ(b.queue.counters().spurious_interrupts.get(), 1U);
  EXPECT_TRUE(b.queue.arm()) << "a response is there";
  EXPECT_EQ(b.take().size(), 1U);
}

TEST(StrictQueue, EndsWhatWasNotAnsweredWhenTheBackendIsGone) {
  rogue_64 b;
  const auto first = b.queue.submit({.sector = 8, .segments = one_page, .cookie = 1});
  const auto second =
      b.queue.submit({.operation = operation::write, .sector = 16, .segments = one_page});
  b.queue.publish();
  (void)b.grants.unmap(b.ring);
  b.ring = {};
  b.queue.release();
  EXPECT_EQ(b.queue.in_flight(), 0U);
  EXPECT_EQ(b.queue.space(), 0U);
  EXPECT_TRUE(b.queue.arm()) << "there is something to poll for";
  const auto ends = b.take();
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_EQ(ends[0].tag, *first);
  EXPECT_EQ(ends[0].cookie, 1U);
  EXPECT_EQ(ends[1].tag, *second);
  EXPECT_FALSE(ends[0].answered);
  EXPECT_FALSE(ends[0].okay());
  EXPECT_EQ(b.queue.counters().lost.get(), 2U);
  EXPECT_EQ(b.violations(), "");
}

TEST(StrictQueue, RecordsPagesThatAreStillMappedAtTheEnd) {
  rogue_64 b;
  ASSERT_TRUE(b.queue.submit({.segments = one_page}));
  b.queue.publish();
  const auto page = b.map(b.request(0).direct[0].gref, platform::access::read_write);
  b.queue.release();
  EXPECT_THAT(b.violations(), HasSubstr("2 pages are still mapped"));  // the ring's, too
  (void)b.grants.unmap(page);
}

TEST(StrictQueue, TakesNoMoreRequestsAndTellsWhenItIsIdleOnceItIsBeingClosed) {
  rogue_64 b;
  const auto tag = b.queue.submit({.segments = one_page});
  b.queue.publish();
  std::jthread closer([&b] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    b.queue.begin_close();
  });
  EXPECT_TRUE(b.queue.wait(std::chrono::seconds(20))) << "a waiter is woken";
  closer.join();
  EXPECT_FALSE(b.queue.submit({.segments = one_page}));
  EXPECT_EQ(b.idle_calls, 0);
  b.respond(*tag, operation::read);
  EXPECT_EQ(b.take().size(), 1U);
  EXPECT_EQ(b.idle_calls, 1);
}

TEST(StrictQueue, GivesNothingWhereTheGuestHasNoPagesLeft) {
  const auto host = platform::emulated_host::create({.pages_per_domain = 16});
  auto guest = host.create_domain(3);
  violation_log log;
  strict_queue queue(
      guest, 0, 0, log, [](void*) {}, nullptr);
  queue.prepare({});
  queue.open(false, 0);
  const auto segments = segments_for(80);
  EXPECT_TRUE(queue.submit({.segments = segments}));
  EXPECT_FALSE(queue.submit({.segments = segments}));
  EXPECT_TRUE(queue.submit({.segments = one_page}))
      << "pages of the one that failed are free again";
  EXPECT_EQ(queue.in_flight(), 2U);
}

}  // namespace
}  // namespace pvring::testing
