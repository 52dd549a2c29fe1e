// SPDX-License-Identifier: MIT
// The strict network frontend's queue against a backend that does what no backend may: each offence
// is recorded, and nothing that is right is.
#include "pvring/testing/strict_net_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "pvring/net/tx_chain.hpp"
#include "rogue_net_backend.hpp"

namespace pvring::testing {
namespace {

namespace netif = protocol::netif;
using netif::rx_outcome;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  }
  return bytes;
}

rx_outcome data(std::int16_t bytes, std::uint16_t flags = 0, std::uint16_t offset = 0) {
  return {.offset = offset, .flags = flags, .status = bytes};
}
rx_outcome extra(netif::extra_info what, bool more = false) {
  what.flags = more ? netif::extra_more : std::uint8_t{0};
  return {.is_extra = true, .extra = what};
}

// What the backend under test will have to make of the slots, read by the library's own joiner.
struct seen_packet {
  net::tx_chain chain;
  std::vector<std::byte> bytes;
};
seen_packet join(rogue_net_backend& b, std::uint32_t at) {
  seen_packet seen;
  seen.chain.begin();
  while (seen.chain.add(b.tx_request(at++))) {
  }
  for (const grant::piece& p : seen.chain.pieces()) {
    platform::mapping page = b.map(p.reference, platform::access::read_only);
    EXPECT_TRUE(page);
    seen.bytes.insert(seen.bytes.end(), page.address + p.offset,
                      page.address + p.offset + p.length);
    EXPECT_EQ(b.grants.unmap(page), 0);
  }
  return seen;
}

// ---- transmit
// ------------------------------------------------------------------------------------

TEST(StrictNetQueue, PutsAPacketIntoPagesThatCanOnlyBeRead) {
  rogue_net_backend b;
  const auto bytes = some_bytes(5000);
  ASSERT_TRUE(b.queue.send(bytes, {.checksum = net::checksum::blank}));
  EXPECT_EQ(b.tx_requests(), 0U) << "the backend must not see it before it is published";
  EXPECT_EQ(b.queue.publish(), 1U);
  ASSERT_EQ(b.tx_requests(), 2U);
  const netif::tx_request first = b.tx_request(0).as_request();
  EXPECT_EQ(first.size.echo(), 5000U) << "the first slot says how long the packet is";
  EXPECT_EQ(first.flags, netif::tx_flag::csum_blank | netif::tx_flag::data_validated |
                             netif::tx_flag::more_data);
  EXPECT_EQ(b.tx_request(1).as_request().size.echo(), 5000U - platform::page_size);
  EXPECT_FALSE(b.map(first.gref, platform::access::read_write));
  const seen_packet seen = join(b, 0);
  EXPECT_EQ(seen.chain.error(), protocol_error::none);
  EXPECT_EQ(seen.chain.drop(), net::tx_drop::none);
  EXPECT_EQ(seen.bytes, bytes);
  EXPECT_EQ(seen.chain.info().checksum, net::checksum::blank);
  b.answer(0);
  b.answer(1);
  EXPECT_EQ(b.queue.poll(), 2U);
  EXPECT_EQ(b.queue.tx_outstanding(), 0U);
  EXPECT_EQ(b.queue.last_status(), 0);
  EXPECT_EQ(b.violations(), "");
}

TEST(StrictNetQueue, CutsAPacketWhereItIsToldTo) {
  rogue_net_backend b;
  const auto bytes = some_bytes(300);
  ASSERT_TRUE(b.queue.send(bytes, {}, std::array<std::uint16_t, 6>{0, 1, 13, 0, 200, 86}));
  b.queue.publish();
  ASSERT_EQ(b.tx_requests(), 6U);
  const seen_packet seen = join(b, 0);
  EXPECT_EQ(seen.bytes, bytes);
  EXPECT_THAT(seen.chain.pieces(), SizeIs(4)) << "what is empty is there, and no piece";
}

TEST(StrictNetQueue, PutsExtraInfosBehindTheFirstSlot) {
  rogue_net_backend b;
  const net::packet_info info{.checksum = net::checksum::blank,
                              .gso = net::gso::tcpv6,
                              .gso_size = 1440,
                              .hash = {netif::hash_algorithm::toeplitz, 3, 0x12345678}};
  const auto bytes = some_bytes(9000);
  ASSERT_TRUE(b.queue.send(bytes, info));
  b.queue.publish();
  ASSERT_EQ(b.tx_requests(), 5U);
  EXPECT_NE(b.tx_request(0).as_request().flags & netif::tx_flag::extra_info, 0);
  const seen_packet seen = join(b, 0);
  EXPECT_EQ(seen.bytes, bytes);
  EXPECT_EQ(seen.chain.info().gso, net::gso::tcpv6);
  EXPECT_EQ(seen.chain.info().gso_size, 1440);
  EXPECT_EQ(seen.chain.info().hash.value, 0x12345678U);
  for (std::uint32_t at = 0; at < 5; ++at) {
    const bool is_extra = seen.chain.is_extra(at);
    b.answer(is_extra ? 0 : b.tx_request(at).as_request().id, is_extra ? 1 : 0);
  }
  b.queue.poll();
  EXPECT_EQ(b.queue.tx_outstanding(), 0U);
  EXPECT_EQ(b.violations(), "");
}

TEST(StrictNetQueue, AsksForAMulticastGroup) {
  rogue_net_backend b;
  ASSERT_TRUE(b.queue.join({1, 0, 0x5e, 1, 2, 3}));
  b.queue.publish();
  const seen_packet seen = join(b, 0);
  ASSERT_TRUE(seen.chain.multicast());
  EXPECT_TRUE(seen.chain.multicast()->add);
  EXPECT_THAT(seen.chain.multicast()->address, ElementsAre(1, 0, 0x5e, 1, 2, 3));
}

TEST(StrictNetQueue, HasNoRoomForMoreThanTheRing) {
  rogue_net_backend b;
  const auto bytes = some_bytes(16 * platform::page_size - 1);
  for (int i = 0; i < 16; ++i) {
    ASSERT_TRUE(b.queue.send(bytes));
  }
  EXPECT_EQ(b.queue.tx_space(), 0U);
  EXPECT_FALSE(b.queue.send(some_bytes(14)));
  EXPECT_EQ(b.queue.counters().sent.get(), 16U);
  EXPECT_EQ(b.queue.counters().sent_slots.get(), 256U);
}

TEST(StrictNetQueue, CountsPacketsThatWereRefused) {
  rogue_net_backend b;
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  b.queue.publish();
  b.answer(0, -1);
  b.answer(1, -2);
  b.queue.poll();
  EXPECT_EQ(b.queue.counters().refused.get(), 2U);
  EXPECT_EQ(b.queue.last_status(), -2);
  EXPECT_EQ(b.violations(), "") << "any packet may be refused";
}

TEST(StrictNetQueue, RefusesTransmitResponsesOutOfOrder) {
  rogue_net_backend b;
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  b.queue.publish();
  b.answer(1);
  b.queue.poll();
  EXPECT_THAT(b.violations(), HasSubstr("queue 0: transmit response with id 1 where 0 was next"));
  EXPECT_TRUE(b.log.disabled());
  EXPECT_FALSE(b.queue.send(some_bytes(60))) << "a disabled device sends no more";
}

TEST(StrictNetQueue, TakesTransmitResponsesInAnyOrderWhereItIsToldTo) {
  rogue_net_backend b({.answers_in_order = false});
  ASSERT_TRUE(b.queue.send(some_bytes(5000), {.gso = net::gso::tcpv4, .gso_size = 1000}));
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  b.queue.publish();
  std::vector<std::uint16_t> ids;
  for (const std::uint32_t at : {0U, 2U, 3U}) {
    ids.push_back(b.tx_request(at).as_request().id);
  }
  b.answer(ids[2]);
  b.answer(ids[0]);
  b.answer(ids[1], -1);
  b.answer(0, 1);
  b.queue.poll();
  EXPECT_EQ(b.queue.tx_outstanding(), 0U);
  EXPECT_EQ(b.queue.counters().refused.get(), 1U);
  EXPECT_EQ(b.violations(), "");
}

TEST(StrictNetQueue, RefusesAnIdThatIsNotInFlight) {
  for (const std::uint16_t id : std::array<std::uint16_t, 3>{0, 2, 256}) {
    rogue_net_backend b({.answers_in_order = false});
    ASSERT_TRUE(b.queue.send(some_bytes(60)));
    ASSERT_TRUE(b.queue.send(some_bytes(60)));
    b.queue.publish();
    b.answer(b.tx_request(0).as_request().id);
    b.answer(id);
    b.queue.poll();
    EXPECT_THAT(b.violations(),
                HasSubstr("the id " + std::to_string(id) + ", which is not in flight"));
  }
}

TEST(StrictNetQueue, RefusesMoreAnswersToExtraInfosThanThereWere) {
  rogue_net_backend b({.answers_in_order = false});
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  b.queue.publish();
  b.answer(0, 1);
  b.queue.poll();
  EXPECT_THAT(b.violations(), HasSubstr("more answers to extra infos than there were"));
}

TEST(StrictNetQueue, UsesIdsThatAreNoPositions) {
  rogue_net_backend b;
  bool differs = false;
  for (std::uint32_t round = 0; round < 4; ++round) {
    ASSERT_TRUE(b.queue.send(some_bytes(5000)));
    b.queue.publish();
    for (int i = 0; i < 2; ++i) {
      const std::uint16_t id = b.tx_request(b.tx_produced).as_request().id;
      differs = differs || id != b.tx_produced;
      b.answer(id);
    }
    b.queue.poll();
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(b.violations(), "");
}

TEST(StrictNetQueue, RefusesMoreTransmitResponsesThanRequests) {
  rogue_net_backend b;
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  b.queue.publish();
  b.show_answered(2);
  b.queue.poll();
  EXPECT_THAT(b.violations(),
              HasSubstr(std::string(to_string(protocol_error::response_producer_overrun))));
}

TEST(StrictNetQueue, RefusesAResponseToAPacketThatIsNotPublished) {
  rogue_net_backend b;
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  b.answer(0);
  b.queue.poll();
  EXPECT_NE(b.violations(), "");
}

TEST(StrictNetQueue, RefusesAnExtraInfoAnsweredAsARequest) {
  rogue_net_backend b;
  ASSERT_TRUE(b.queue.send(some_bytes(60), {.gso = net::gso::tcpv4, .gso_size = 10}));
  b.queue.publish();
  b.answer(0);
  b.answer(0);
  b.queue.poll();
  EXPECT_THAT(b.violations(), HasSubstr("an extra info was answered with a status"));
}

TEST(StrictNetQueue, RefusesARequestAnsweredAsAnExtraInfo) {
  rogue_net_backend b;
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  b.queue.publish();
  b.answer(0, 1);
  b.queue.poll();
  EXPECT_THAT(b.violations(), HasSubstr("a request was answered as an extra info"));
}

TEST(StrictNetQueue, RefusesAStatusThatThereIsNot) {
  for (const std::int16_t status : std::array<std::int16_t, 3>{-3, 2, 60}) {
    rogue_net_backend b;
    ASSERT_TRUE(b.queue.send(some_bytes(60)));
    b.queue.publish();
    b.answer(0, status);
    b.queue.poll();
    EXPECT_THAT(b.violations(), HasSubstr("unknown status " + std::to_string(status)));
  }
}

TEST(StrictNetQueue, RefusesAnAnswerToAPageThatIsMapped) {
  rogue_net_backend b;
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  b.queue.publish();
  platform::mapping kept = b.map(b.tx_request(0).as_request().gref, platform::access::read_only);
  ASSERT_TRUE(kept);
  b.answer(0);
  b.queue.poll();
  EXPECT_THAT(b.violations(), HasSubstr("response while the grant is mapped, transmit slot 0"));
  ASSERT_EQ(b.grants.unmap(kept), 0);
}

// ---- receive
// -------------------------------------------------------------------------------------

TEST(StrictNetQueue, PostsAsManyPagesAsItIsToldTo) {
  rogue_net_backend b;
  EXPECT_EQ(b.queue.post(0), 0U);
  EXPECT_EQ(b.queue.post(1), 1U);
  EXPECT_EQ(b.queue.post(1), 0U) << "one is with the backend already";
  EXPECT_EQ(b.queue.post(20), 19U);
  EXPECT_EQ(b.rx_requests(), 0U);
  EXPECT_EQ(b.queue.publish(), 1U);
  EXPECT_EQ(b.rx_requests(), 20U);
  EXPECT_EQ(b.queue.post(), 236U);
  EXPECT_EQ(b.queue.counters().posted.get(), 256U);
}

TEST(StrictNetQueue, TakesAPacketThatLiesInSeveralPages) {
  rogue_net_backend b;
  b.queue.post(8);
  b.queue.publish();
  const auto bytes = some_bytes(4596);
  const std::span<const std::byte> all(bytes);
  b.fill(0, all.first(100), 2);
  b.fill(3, all.subspan(100, 4096));
  b.fill(4, all.subspan(4196), 3000);
  b.respond(data(100,
                 netif::rx_flag::csum_blank | netif::rx_flag::data_validated |
                     netif::rx_flag::more_data | netif::rx_flag::extra_info,
                 2));
  b.respond(extra(netif::extra_info::of_gso(netif::gso_type::tcpv4, 1448), true));
  b.respond(extra(netif::extra_info::of_hash(netif::hash_algorithm::toeplitz, 1, 0xcafe)));
  b.respond(data(4096, netif::rx_flag::more_data));
  b.respond(data(400, 0, 3000));
  EXPECT_THAT(b.take(), SizeIs(0)) << "nothing is shown yet";
  b.show_received();
  const auto packets = b.take();
  EXPECT_EQ(b.violations(), "");
  ASSERT_THAT(packets, SizeIs(1));
  EXPECT_EQ(packets[0].bytes, bytes);
  EXPECT_EQ(packets[0].slots, 5U);
  EXPECT_EQ(packets[0].info.checksum, net::checksum::blank);
  EXPECT_EQ(packets[0].info.gso, net::gso::tcpv4);
  EXPECT_EQ(packets[0].info.gso_size, 1448);
  EXPECT_EQ(packets[0].info.hash.value, 0xcafeU);
  EXPECT_EQ(b.queue.rx_outstanding(), 3U) << "an extra info has used up a posted page, too";
}

TEST(StrictNetQueue, ThrowsAPacketAwayOfWhichASlotFailed) {
  rogue_net_backend b;
  b.queue.post();
  b.queue.publish();
  b.fill(0, some_bytes(60));
  b.fill(2, some_bytes(60));
  b.respond(data(60, netif::rx_flag::more_data));
  b.respond(data(-1));
  b.respond(data(60));
  b.show_received();
  EXPECT_THAT(b.take(), SizeIs(1));
  EXPECT_EQ(b.queue.counters().broken.get(), 1U);
  EXPECT_EQ(b.violations(), "");
}

// A response to posted pages that has to be refused, and what for.
struct bad_packet {
  const char* name;
  std::vector<rx_outcome> slots;
  const char* violation;
};
void PrintTo(const bad_packet& bad, std::ostream* out) { *out << bad.name; }

class StrictNetQueueRefuses : public ::testing::TestWithParam<bad_packet> {};

TEST_P(StrictNetQueueRefuses, IsRecordedAndGivesNoPacket) {
  rogue_net_backend b({.guard_pages = false});
  b.queue.post();
  b.queue.publish();
  for (const rx_outcome& slot : GetParam().slots) {
    b.respond(slot);
  }
  b.show_received();
  EXPECT_THAT(b.take(), SizeIs(0));
  EXPECT_THAT(b.violations(), HasSubstr(GetParam().violation));
  EXPECT_TRUE(b.log.disabled());
}

std::vector<rx_outcome> slots_of(std::size_t count, std::int16_t first, std::int16_t others) {
  std::vector<rx_outcome> slots(count, data(others, netif::rx_flag::more_data));
  slots.front().status = first;
  slots.back().flags = 0;
  return slots;
}

constexpr std::uint16_t more = netif::rx_flag::more_data;
constexpr std::uint16_t with_extra = netif::rx_flag::extra_info;

INSTANTIATE_TEST_SUITE_P(
    Packets, StrictNetQueueRefuses,
    ::testing::Values(
        bad_packet{"PastItsPage", {data(100, 0, 3997)}, "a slot of 100 bytes at 3997 reaches past"},
        bad_packet{"PastItsPageLater",
                   {data(100, more), data(4096, 0, 1)},
                   "a slot of 4096 bytes at 1 reaches past"},
        bad_packet{"TooShort", {data(13)}, "a packet of 13 bytes"},
        bad_packet{"Empty", {data(0)}, "a packet of 0 bytes"},
        bad_packet{"TooManySlots", slots_of(19, 257, 10), "a packet of more than 18 slots"},
        bad_packet{"TooManySlotsBehindAHeader", slots_of(20, 256, 10),
                   "a packet of more than 19 slots"},
        bad_packet{"ShownInPart", {data(100, more)}, "a packet is shown in part, 1 of its slots"},
        bad_packet{"ExtraInfoMissing", {data(100, with_extra)}, "a packet is shown in part"},
        bad_packet{"SegmentsOfNoBytes",
                   {data(100, with_extra), extra(netif::extra_info::of_gso(1, 0))},
                   "a super-frame of type 1 with segments of 0 bytes"},
        bad_packet{"SegmentsOfAnUnknownType",
                   {data(100, with_extra), extra(netif::extra_info::of_gso(3, 1448))},
                   "a super-frame of type 3"},
        bad_packet{"ExtraInfoOfNoType",
                   {data(100, with_extra), extra({netif::extra_type::none, 0, {}})},
                   "extra info of type 0"},
        bad_packet{"ExtraInfoOfAnUnknownType",
                   {data(100, with_extra), extra({netif::extra_type::end, 0, {}})},
                   "extra info of type 5"},
        bad_packet{"ExtraInfoOfALaterSlot",
                   {data(100, more), data(100, with_extra)},
                   "extra info behind a packet's later slot"},
        bad_packet{"GivenUpFlag",
                   {data(100, netif::rx_flag::gso_prefix)},
                   "receive response with the flags 16"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(StrictNetQueue, TakesAsManySlotsAsLinuxDoes) {
  for (const auto& [count, first] : {std::pair<std::size_t, std::int16_t>{18, 257}, {19, 256}}) {
    rogue_net_backend b({.guard_pages = false});
    b.queue.post();
    b.queue.publish();
    for (const rx_outcome& slot : slots_of(count, first, 10)) {
      b.respond(slot);
    }
    b.show_received();
    EXPECT_THAT(b.take(), SizeIs(1));
    EXPECT_EQ(b.violations(), "");
  }
}

TEST(StrictNetQueue, RefusesAResponseInAnotherSlotThanItsRequests) {
  rogue_net_backend b;
  b.queue.post();
  b.queue.publish();
  b.fill(1, some_bytes(60));
  b.respond(b.rx_request(1).id, data(60));
  b.show_received();
  EXPECT_THAT(b.take(), SizeIs(0));
  EXPECT_THAT(b.violations(), HasSubstr("receive response with id 1 in the slot of request 0"));
}

TEST(StrictNetQueue, RefusesMorePacketsThanPages) {
  rogue_net_backend b;
  b.queue.post(1);
  b.queue.publish();
  b.show_received(2);
  EXPECT_THAT(b.take(), SizeIs(0));
  EXPECT_THAT(b.violations(),
              HasSubstr(std::string(to_string(protocol_error::response_producer_overrun))));
}

TEST(StrictNetQueue, RefusesAPacketInAPageThatIsMapped) {
  rogue_net_backend b;
  b.queue.post();
  b.queue.publish();
  b.fill(0, some_bytes(60));
  platform::mapping kept = b.map(b.rx_request(0).gref, platform::access::read_write);
  b.respond(data(60));
  b.show_received();
  EXPECT_THAT(b.take(), SizeIs(0));
  EXPECT_THAT(b.violations(), HasSubstr("response while the grant is mapped, receive slot 0"));
  ASSERT_EQ(b.grants.unmap(kept), 0);
}

TEST(StrictNetQueue, NoticesWhatIsWrittenOutsideAPacket) {
  const auto bytes = some_bytes(62);
  for (const std::uint16_t offset : {std::uint16_t{0}, std::uint16_t{2}}) {
    rogue_net_backend b;
    b.queue.post();
    b.queue.publish();
    b.fill(0, bytes);  // two bytes more than the response says, at its end or at its beginning
    b.respond(data(60, 0, offset));
    b.show_received();
    EXPECT_THAT(b.take(), SizeIs(0));
    EXPECT_THAT(b.violations(), HasSubstr("written outside the 60 bytes of its slot"));
  }
}

// ---- channels, life
// ------------------------------------------------------------------------------

TEST(StrictNetQueue, KicksOnceForBothRingsOverOneChannel) {
  rogue_net_backend split;
  ASSERT_TRUE(split.queue.send(some_bytes(60)));
  split.queue.post();
  EXPECT_EQ(split.queue.publish(), 2U);

  rogue_net_backend single({.split_channels = false});
  EXPECT_EQ(single.queue.tx_port(), single.queue.rx_port());
  ASSERT_TRUE(single.queue.send(some_bytes(60)));
  single.queue.post();
  EXPECT_EQ(single.queue.publish(), 1U);
  ASSERT_TRUE(single.queue.send(some_bytes(60)));
  EXPECT_EQ(single.queue.publish(), 0U) << "the backend has not asked for another event";
}

TEST(StrictNetQueue, TellsEventsWithAResponseFromThoseWithout) {
  rogue_net_backend b;
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  b.queue.publish();
  b.answer(0);
  b.events.notify(b.tx_port);
  EXPECT_TRUE(b.queue.wait(std::chrono::milliseconds(0)));
  b.queue.acknowledge();
  b.queue.poll();
  EXPECT_EQ(b.queue.counters().interrupts.get(), 1U);
  EXPECT_EQ(b.queue.counters().spurious_interrupts.get(), 0U);
  b.events.notify(b.rx_port);
  EXPECT_TRUE(b.queue.wait(std::chrono::seconds(10)));
  EXPECT_EQ(b.queue.counters().interrupts.get(), 2U);
  EXPECT_EQ(b.queue.counters().spurious_interrupts.get(), 1U);
}

TEST(StrictNetQueue, WorksWhereTheIndicesWrap) {
  rogue_net_backend b({.tx_start = 0xfffffffeU, .rx_start = 0xfffffffdU});
  b.queue.post();
  for (std::uint32_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(b.queue.send(some_bytes(60 + i)));
    b.queue.publish();
    EXPECT_EQ(join(b, b.tx_produced).bytes, some_bytes(60 + i));
    b.answer(b.tx_request(b.tx_produced).as_request().id);
    b.fill(b.rx_produced, some_bytes(80 + i));
    b.respond(data(static_cast<std::int16_t>(80 + i)));
    b.show_received();
    const auto packets = b.take();
    ASSERT_THAT(packets, SizeIs(1));
    EXPECT_EQ(packets[0].bytes, some_bytes(80 + i));
  }
  EXPECT_EQ(b.queue.tx_outstanding(), 0U);
  EXPECT_EQ(b.violations(), "");
}

TEST(StrictNetQueue, SaysWhatIsMappedStillWhenItIsReleased) {
  rogue_net_backend b;
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  b.queue.post(1);
  b.queue.publish();
  platform::mapping sent = b.map(b.tx_request(0).as_request().gref, platform::access::read_only);
  platform::mapping posted = b.map(b.rx_request(0).gref, platform::access::read_write);
  b.queue.release();  // and both rings
  EXPECT_THAT(b.violations(), HasSubstr("4 pages are still mapped after the backend has closed"));
  ASSERT_EQ(b.grants.unmap(sent), 0);
  ASSERT_EQ(b.grants.unmap(posted), 0);
}

TEST(StrictNetQueue, BeginsAnewAfterARelease) {
  rogue_net_backend b;
  ASSERT_TRUE(b.queue.send(some_bytes(60)));
  b.queue.post();
  b.queue.publish();
  b.let_go();
  b.queue.release();
  EXPECT_EQ(b.violations(), "");
  EXPECT_FALSE(b.queue.send(some_bytes(60)));
  b.queue.prepare();
  EXPECT_EQ(b.queue.tx_outstanding(), 0U);
  EXPECT_EQ(b.queue.tx_space(), 256U);
  EXPECT_EQ(b.queue.post(), 256U);
}

TEST(StrictNetQueue, UndoesWhatItDidWhereItsGuestHasNoPages) {
  const auto host = platform::emulated_host::create({.pages_per_domain = 64});
  auto guest = host.create_domain(3);
  // Room for one ring of the two.
  std::byte* const rest = guest.allocate_pages(63);
  violation_log log;
  strict_net_queue queue(guest, 0, 0, log);
  EXPECT_THROW(queue.prepare(), std::system_error);
  guest.free_pages(rest, 63);
  EXPECT_NO_THROW(guest.free_pages(guest.allocate_pages(64), 64)) << "a page was not given back";
  queue.prepare();
  EXPECT_THAT(log.all(), SizeIs(0));
}

}  // namespace
}  // namespace pvring::testing
