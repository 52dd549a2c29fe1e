// SPDX-License-Identifier: MIT
// The frontend's end: it initialises the page, and believes its backend as little as a backend
// believes it (case 15).
#include "pvring/ring/front_ring.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ping_protocol.hpp"
#include "ring_memory.hpp"

namespace {

using pvring::protocol_error;
using front = pvring::ring::front_ring<ping_protocol>;

constexpr std::uint32_t starts[] = {0, 0x7ffffffeU, 0x80000000U, 0xfffffffeU, 0xffffffffU};

class FrontRing : public testing::TestWithParam<std::uint32_t> {
 protected:
  void put(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      ring_.put(ping(static_cast<std::uint32_t>(i)));
    }
  }
  std::size_t take_all() {
    return ring_.take(1000, [](const auto&) {});
  }

  ring_memory memory_{1};
  front ring_{memory_.span(), GetParam()};
};
INSTANTIATE_TEST_SUITE_P(StartsAt, FrontRing, testing::ValuesIn(starts));

TEST(FrontRingPage, IsInitialisedAsTheProtocolSays) {
  ring_memory memory(2);
  memory.fill(std::byte{0xff});
  const front ring(memory.span());
  EXPECT_EQ(memory.get(ring_memory::req_prod), 0U);
  EXPECT_EQ(memory.get(ring_memory::rsp_prod), 0U);
  EXPECT_EQ(memory.get(ring_memory::req_event), 1U);
  EXPECT_EQ(memory.get(ring_memory::rsp_event), 1U);
  const auto bytes = memory.copy();
  for (std::size_t i = 16; i < bytes.size(); ++i) {
    ASSERT_EQ(bytes[i], std::byte{0}) << "no old byte of ours is shown to the backend";
  }
}

TEST(FrontRingPage, MemoryThatCannotBeARingIsRefused) {
  ring_memory memory;
  EXPECT_THROW(front(memory.span().first(71)), pvring::configuration_error);
  EXPECT_THROW(front(memory.span().subspan(2, 500)), pvring::configuration_error);
  using small = pvring::ring::front_ring<ping_protocol, std::uint8_t>;
  EXPECT_THROW(small(memory.span()), pvring::configuration_error);
}

TEST_P(FrontRing, SpaceAndOutstandingAddUp) {
  EXPECT_EQ(ring_.space(), 256U);
  put(200);
  EXPECT_EQ(ring_.space(), 56U);
  EXPECT_EQ(ring_.outstanding(), 200U);
  put(56);
  EXPECT_EQ(ring_.space(), 0U);
  (void)ring_.publish();
  memory_.set(ring_memory::rsp_prod, GetParam() + 100);
  EXPECT_EQ(take_all(), 100U);
  EXPECT_EQ(ring_.space(), 100U);
  EXPECT_EQ(ring_.outstanding(), 156U);
}

TEST_P(FrontRing, PublishesOncePerBatch) {
  put(5);
  EXPECT_EQ(memory_.get(ring_memory::req_prod), GetParam());
  EXPECT_TRUE(ring_.publish());
  EXPECT_EQ(memory_.get(ring_memory::req_prod), GetParam() + 5);
  EXPECT_FALSE(ring_.publish());
}

TEST_P(FrontRing, NotifiesWhenTheEventIndexIsPassedAndOnlyThen) {
  memory_.set(ring_memory::req_event, GetParam() + 3);
  std::vector<bool> notified;
  for (int i = 0; i < 5; ++i) {
    put(1);
    notified.push_back(ring_.publish());
  }
  EXPECT_EQ(notified, (std::vector<bool>{false, false, true, false, false}));
}

TEST_P(FrontRing, TakesNoMoreThanAsked) {
  put(32);
  (void)ring_.publish();
  memory_.set(ring_memory::rsp_prod, GetParam() + 32);
  EXPECT_TRUE(ring_.has_responses());
  EXPECT_EQ(ring_.take(0, [](const auto&) { FAIL(); }), 0U);
  EXPECT_EQ(ring_.take(10, [](const auto&) {}), 10U);
  EXPECT_EQ(take_all(), 22U);
  EXPECT_FALSE(ring_.has_responses());
}

TEST_P(FrontRing, ResponsesThatRunAheadOfRequestsBreakTheRing) {
  for (const std::uint32_t ahead : {4U, 257U, 0x80000000U, 0xffffffffU}) {
    front ring(memory_.span(), GetParam());
    for (std::uint32_t i = 0; i < 3; ++i) {
      ring.put(ping(i));
    }
    (void)ring.publish();
    memory_.set(ring_memory::rsp_prod, GetParam() + ahead);
    EXPECT_EQ(ring.take(1000, [](const auto&) { FAIL(); }), 0U);
    EXPECT_EQ(ring.broken(), protocol_error::response_producer_overrun) << ahead;
    memory_.set(ring_memory::rsp_prod, GetParam() + 1);
    EXPECT_FALSE(ring.has_responses()) << "it stays broken";
  }
}

TEST_P(FrontRing, ResponseToARequestThatWasNotShownYetBreaksTheRing) {
  put(3);
  memory_.set(ring_memory::rsp_prod, GetParam() + 1);
  EXPECT_FALSE(ring_.has_responses());
  EXPECT_EQ(ring_.broken(), protocol_error::response_producer_overrun);
}

TEST_P(FrontRing, ResponsesThatGoBackBreakTheRing) {
  put(8);
  (void)ring_.publish();
  memory_.set(ring_memory::rsp_prod, GetParam() + 5);
  EXPECT_EQ(take_all(), 5U);
  memory_.set(ring_memory::rsp_prod, GetParam() + 4);
  EXPECT_EQ(take_all(), 0U);
  EXPECT_EQ(ring_.broken(), protocol_error::response_producer_overrun);
}

TEST_P(FrontRing, ArmingFindsAResponseThatCameJustBefore) {
  put(2);
  (void)ring_.publish();
  EXPECT_FALSE(ring_.arm());
  EXPECT_EQ(memory_.get(ring_memory::rsp_event), GetParam() + 1);
  memory_.set(ring_memory::rsp_prod, GetParam() + 1);
  EXPECT_TRUE(ring_.arm());
}

TEST_P(FrontRing, HoldOffIsCutDownToWhatIsOutstanding) {
  put(3);
  (void)ring_.publish();
  EXPECT_FALSE(ring_.arm(8));
  EXPECT_EQ(memory_.get(ring_memory::rsp_event), GetParam() + 3);
  memory_.set(ring_memory::rsp_prod, GetParam() + 2);
  EXPECT_FALSE(ring_.arm(8));
  memory_.set(ring_memory::rsp_prod, GetParam() + 3);
  EXPECT_TRUE(ring_.arm(8));
}

TEST_P(FrontRing, ArmingABrokenRingSaysSoOnce) {
  memory_.set(ring_memory::rsp_prod, GetParam() + 1);
  EXPECT_TRUE(ring_.arm());
  EXPECT_EQ(ring_.broken(), protocol_error::response_producer_overrun);
  EXPECT_FALSE(ring_.arm());
}

TEST_P(FrontRing, RequestMayBePutWhileTaking) {
  put(256);
  (void)ring_.publish();
  memory_.set(ring_memory::rsp_prod, GetParam() + 256);
  std::size_t again = 0;
  EXPECT_EQ(ring_.take(1000,
                       [&](const auto&) {
                         ring_.put(ping(static_cast<std::uint32_t>(again)));
                         ++again;
                       }),
            256U);
  EXPECT_EQ(ring_.space(), 0U);
}

#ifndef NDEBUG
TEST(FrontRingDeathTest, PuttingIntoAFullRingIsABug) {
  ring_memory memory;
  front ring(memory.span().first(64 + 8 * 2));
  ring.put(ping(0));
  ring.put(ping(1));
  EXPECT_DEATH(ring.put(ping(2)), "the ring is full");
}
#endif

}  // namespace
