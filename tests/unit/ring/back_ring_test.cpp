// SPDX-License-Identifier: MIT
// The backend's end of a ring against frontends that are honest, slow, or hostile. Where a case of
// a public defect stands behind a test, its comment names it. All states of a small ring are in
// tests/model.
#include "pvring/ring/back_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ping_protocol.hpp"
#include "pvring/protocol/blkif_abi.hpp"
#include "pvring/ring/front_ring.hpp"
#include "ring_memory.hpp"

namespace {

namespace blkif = pvring::protocol::blkif;
using pvring::protocol_error;
using back = pvring::ring::back_ring<ping_protocol>;
using front = pvring::ring::front_ring<ping_protocol>;
using duty = pvring::ring::obligation<ping_protocol>;
using taken = pvring::ring::taken<ping_protocol>;

static_assert(!std::is_copy_constructible_v<duty> && std::is_nothrow_move_constructible_v<duty>);

// Where indices begin: zero, and both places where arithmetic that is not modular goes wrong (case
// 19).
constexpr std::uint32_t starts[] = {0,           1,           0x7ffffffeU, 0x7fffffffU,
                                    0x80000000U, 0xffffffe0U, 0xfffffffeU, 0xffffffffU};

// Takes and checks one request.
duty take_in(taken& request) {
  ping_protocol::request copy{};
  request.fetch(copy);
  EXPECT_EQ(copy.check, ~copy.number);
  return request.owe({copy.number});
}

std::vector<duty> take_some(back& ring, std::size_t budget) {
  std::vector<duty> duties;
  ring.take(budget, [&](taken& request) { duties.push_back(take_in(request)); });
  return duties;
}

void answer_all(back& ring, std::vector<duty>& duties) {
  for (duty& one : duties) {
    ring.respond(std::move(one).settle(0));
  }
  duties.clear();
}

void put_some(front& ring, std::uint32_t first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    ring.put(ping(first + static_cast<std::uint32_t>(i)));
  }
}

class BackRing : public testing::TestWithParam<std::uint32_t> {
 protected:
  ring_memory memory_{1};
  front front_{memory_.span(), GetParam()};
  back back_{memory_.span(), GetParam()};
};
INSTANTIATE_TEST_SUITE_P(StartsAt, BackRing, testing::ValuesIn(starts));

TEST(BackRingSize, AttachingWritesNothing) {
  ring_memory memory;
  memory.fill(std::byte{0xa5});
  const auto before = memory.copy();
  const back ring(memory.span());
  EXPECT_EQ(memory.copy(), before);
  EXPECT_EQ(ring.size(), 256U);
}

TEST(BackRingSize, MemoryThatCannotBeARingIsRefused) {
  ring_memory memory;
  EXPECT_THROW(back(memory.span().first(0)), pvring::configuration_error);
  EXPECT_THROW(back(memory.span().first(64)), pvring::configuration_error);
  EXPECT_THROW(back(memory.span().subspan(4, 1024)), pvring::configuration_error) << "not aligned";
  EXPECT_NO_THROW(back(memory.span().first(72)));
  using small = pvring::ring::back_ring<ping_protocol, std::uint8_t>;
  EXPECT_THROW(small(memory.span()), pvring::configuration_error)
      << "256 slots, and 8 bits count to 256";
  EXPECT_NO_THROW(small(memory.span().first(64 + 8 * 128)));
}

TEST_P(BackRing, EmptyRingHasNoRequests) {
  EXPECT_FALSE(back_.has_requests());
  EXPECT_EQ(back_.take(256, [](taken&) { FAIL(); }), 0U);
  EXPECT_EQ(back_.unanswered(), 0U);
  EXPECT_FALSE(back_.publish());
  EXPECT_EQ(back_.broken(), protocol_error::none);
}

TEST_P(BackRing, RequestsArriveInOrderAndResponsesGoBack) {
  std::uint32_t number = 0;
  // Odd batches, so that they straddle every boundary that there is; enough to pass the start's
  // wrap.
  for (std::size_t batch = 1; batch <= front_.size(); batch += 7) {
    put_some(front_, number, batch);
    (void)front_.publish();
    auto duties = take_some(back_, 1000);
    ASSERT_EQ(duties.size(), batch);
    EXPECT_EQ(back_.unanswered(), batch);
    answer_all(back_, duties);
    EXPECT_EQ(back_.unanswered(), 0U);
    (void)back_.publish();
    std::uint32_t expected = number;
    EXPECT_EQ(
        front_.take(1000, [&](const auto& response) { EXPECT_EQ(response.number, expected++); }),
        batch);
    number += static_cast<std::uint32_t>(batch);
  }
  EXPECT_EQ(back_.broken(), protocol_error::none);
  EXPECT_EQ(front_.broken(), protocol_error::none);
}

// Case 11: full and empty are different states.
TEST_P(BackRing, ExactlyFullRingIsLegal) {
  put_some(front_, 0, front_.size());
  EXPECT_EQ(front_.space(), 0U);
  (void)front_.publish();
  EXPECT_TRUE(back_.has_requests());
  std::vector<duty> duties;
  EXPECT_EQ(back_.consume_all([&](taken& request) { duties.push_back(take_in(request)); }),
            back_.size());
  EXPECT_EQ(back_.broken(), protocol_error::none);
  EXPECT_EQ(back_.unanswered(), back_.size());
  EXPECT_FALSE(back_.has_requests()) << "taken, not answered: full for the frontend, empty for us";
  answer_all(back_, duties);
  (void)back_.publish();
  EXPECT_EQ(front_.take(1000, [](const auto&) {}), front_.size());
  EXPECT_EQ(front_.space(), front_.size());
}

// Case 21: never more than asked, and what stays is found later.
TEST_P(BackRing, TakesNoMoreThanAsked) {
  put_some(front_, 0, 32);
  (void)front_.publish();
  EXPECT_EQ(back_.take(0, [](taken&) { FAIL(); }), 0U);
  std::vector<duty> all;
  for (const std::size_t budget : {1U, 16U, 15U, 1U}) {
    const bool expected = all.size() < 32;
    EXPECT_EQ(back_.has_requests(), expected);
    auto some = take_some(back_, budget);
    EXPECT_EQ(some.size(), std::min<std::size_t>(budget, 32 - all.size()));
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  EXPECT_EQ(all.size(), 32U);
  EXPECT_FALSE(back_.has_requests());
  answer_all(back_, all);
}

// Case 16: a producer index that is out of reach ends the ring at once, once, and without a look at
// any slot.
TEST_P(BackRing, ProducerThatRunsAheadBreaksTheRing) {
  const auto size = static_cast<std::uint32_t>(front_.size());
  for (const std::uint32_t ahead :
       {size + 1, size + 3, 0x7fffffffU, 0x80000000U, 0xfffffffeU, 0xffffffffU}) {
    back ring(memory_.span(), GetParam());
    memory_.set(ring_memory::req_prod, GetParam() + ahead);
    EXPECT_EQ(ring.take(1000, [](taken&) { FAIL(); }), 0U);
    EXPECT_EQ(ring.broken(), protocol_error::request_producer_overrun) << ahead;
    // Repentance does not help: the indices were never to be believed.
    memory_.set(ring_memory::req_prod, GetParam() + 1);
    EXPECT_FALSE(ring.has_requests());
    EXPECT_EQ(ring.take(1000, [](taken&) { FAIL(); }), 0U);
    EXPECT_EQ(ring.request_consumer(), GetParam());
  }
}

TEST_P(BackRing, ProducerMayNotRunIntoRequestsThatAreNotAnswered) {
  put_some(front_, 0, 3);
  (void)front_.publish();
  auto duties = take_some(back_, 3);
  const auto size = static_cast<std::uint32_t>(front_.size());
  memory_.set(ring_memory::req_prod, GetParam() + size);
  EXPECT_TRUE(back_.has_requests()) << "exactly the ring's size ahead of our responses";
  memory_.set(ring_memory::req_prod, GetParam() + size + 1);
  EXPECT_FALSE(back_.has_requests());
  EXPECT_EQ(back_.broken(), protocol_error::request_producer_overrun);
  answer_all(back_, duties);
}

TEST_P(BackRing, ProducerThatGoesBackBreaksTheRing) {
  put_some(front_, 0, 5);
  (void)front_.publish();
  auto duties = take_some(back_, 5);
  for (const std::uint32_t back_by : {1U, 5U, 6U}) {
    // Behind what was taken: by one, to the last response, and behind that.
    ring_memory other;
    front other_front(other.span(), GetParam());
    back other_back(other.span(), GetParam());
    put_some(other_front, 0, 5);
    (void)other_front.publish();
    auto other_duties = take_some(other_back, 5);
    other.set(ring_memory::req_prod, GetParam() + 5 - back_by);
    EXPECT_FALSE(other_back.has_requests());
    EXPECT_EQ(other_back.broken(), protocol_error::request_producer_overrun) << back_by;
    answer_all(other_back, other_duties);
  }
  EXPECT_EQ(back_.broken(), protocol_error::none) << "another ring's peer is not ours";
  answer_all(back_, duties);
}

// Case 13: whoever is about to sleep on a ring that is broken must hear of it.
TEST_P(BackRing, ArmingABrokenRingSaysSoOnce) {
  memory_.set(ring_memory::req_prod, GetParam() + 0x80000000U);
  EXPECT_TRUE(back_.arm());
  EXPECT_EQ(back_.broken(), protocol_error::request_producer_overrun);
  EXPECT_FALSE(back_.arm()) << "it is known now, and nothing is left to do";
}

// Case 22: requests in flight never exceed the slots, whatever the frontend does.
TEST_P(BackRing, RequestsInFlightNeverExceedTheSlots) {
  std::mt19937 random(3);
  std::vector<duty> flying;
  std::uint32_t produced = GetParam();
  for (int step = 0; step < 2000 && back_.broken() == protocol_error::none; ++step) {
    produced += static_cast<std::uint32_t>(random() % 40);
    memory_.set(ring_memory::req_prod, produced);
    back_.take(1000, [&](taken& request) {
      ping_protocol::request copy{};
      request.fetch(copy);
      flying.push_back(request.owe({copy.number}));
    });
    ASSERT_LE(flying.size(), back_.size());
    ASSERT_EQ(back_.unanswered(), flying.size());
  }
  EXPECT_EQ(back_.broken(), protocol_error::request_producer_overrun);
  answer_all(back_, flying);
}

TEST_P(BackRing, PublishesOncePerBatch) {
  put_some(front_, 0, 8);
  (void)front_.publish();
  auto duties = take_some(back_, 8);
  EXPECT_FALSE(back_.has_unpublished());
  for (duty& one : duties) {
    back_.respond(std::move(one).settle(0));
    EXPECT_TRUE(back_.has_unpublished());
    EXPECT_EQ(memory_.get(ring_memory::rsp_prod), GetParam()) << "nothing is shown before publish";
  }
  EXPECT_EQ(back_.response_producer(), GetParam());
  EXPECT_TRUE(back_.publish());
  EXPECT_EQ(memory_.get(ring_memory::rsp_prod), GetParam() + 8);
  EXPECT_EQ(back_.response_producer(), GetParam() + 8);
  EXPECT_FALSE(back_.has_unpublished());
  EXPECT_FALSE(back_.publish()) << "nothing new: no notification";
}

TEST_P(BackRing, PublishedIndexIsOurOwnAndNotReadBack) {
  put_some(front_, 0, 2);
  (void)front_.publish();
  auto duties = take_some(back_, 2);
  back_.respond(std::move(duties[0]).settle(0));
  memory_.set(ring_memory::rsp_prod, 0xdeadbeefU);  // the frontend can write what is ours
  EXPECT_TRUE(back_.publish());
  EXPECT_EQ(memory_.get(ring_memory::rsp_prod), GetParam() + 1);
  back_.respond(std::move(duties[1]).settle(0));
  (void)back_.publish();
}

TEST_P(BackRing, NotifiesWhenTheEventIndexIsPassedAndOnlyThen) {
  put_some(front_, 0, 8);
  (void)front_.publish();
  auto duties = take_some(back_, 8);
  memory_.set(ring_memory::rsp_event, GetParam() + 5);  // wanted at the fifth response
  std::vector<bool> notified;
  for (duty& one : duties) {
    back_.respond(std::move(one).settle(0));
    notified.push_back(back_.publish());
  }
  EXPECT_EQ(notified, (std::vector<bool>{false, false, false, false, true, false, false, false}));
}

TEST_P(BackRing, OneNotificationCoversABatchThatPassesTheEventIndex) {
  for (const std::uint32_t event : {0U, 1U, 4U, 8U, 9U}) {
    ring_memory memory;
    front f(memory.span(), GetParam());
    back b(memory.span(), GetParam());
    put_some(f, 0, 8);
    (void)f.publish();
    auto duties = take_some(b, 8);
    memory.set(ring_memory::rsp_event, GetParam() + event);
    answer_all(b, duties);
    EXPECT_EQ(b.publish(), event >= 1 && event <= 8) << event;
  }
}

TEST_P(BackRing, FreshRingNotifiesOfTheFirstMessageEachWay) {
  put_some(front_, 0, 1);
  EXPECT_TRUE(front_.publish());
  auto duties = take_some(back_, 1);
  answer_all(back_, duties);
  EXPECT_TRUE(back_.publish());
}

TEST_P(BackRing, ParkedRingIsNotNotified) {
  put_some(front_, 0, 1);
  EXPECT_TRUE(front_.publish()) << "armed since it is fresh";
  auto duties = take_some(back_, 1000);
  for (std::uint32_t i = 1; i < 50; ++i) {
    put_some(front_, i, 1);
    EXPECT_FALSE(front_.publish()) << "nobody armed it since";
    auto more = take_some(back_, 1000);
    answer_all(back_, more);
  }
  answer_all(back_, duties);
  EXPECT_FALSE(back_.arm());
  (void)back_.publish();
  front_.take(1000, [](const auto&) {});
  put_some(front_, 99, 1);
  EXPECT_TRUE(front_.publish());
  auto last = take_some(back_, 1);
  answer_all(back_, last);
}

// The final check: a request that came between the last look and arming is found by arming.
TEST_P(BackRing, ArmingFindsARequestThatCameJustBefore) {
  EXPECT_FALSE(back_.has_requests());
  put_some(front_, 0, 1);
  (void)front_.publish();
  EXPECT_TRUE(back_.arm());
  auto duties = take_some(back_, 1);
  answer_all(back_, duties);
}

TEST_P(BackRing, ArmingTwiceIsAllowed) {
  EXPECT_FALSE(back_.arm());
  EXPECT_FALSE(back_.arm());
  put_some(front_, 0, 1);
  EXPECT_TRUE(front_.publish());
  EXPECT_TRUE(back_.arm());
  auto duties = take_some(back_, 1);
  answer_all(back_, duties);
}

TEST_P(BackRing, HoldOffWaitsForTheDistance) {
  EXPECT_FALSE(back_.arm(4));
  EXPECT_EQ(memory_.get(ring_memory::req_event), GetParam() + 4);
  for (std::uint32_t i = 0; i < 3; ++i) {
    put_some(front_, i, 1);
    EXPECT_FALSE(front_.publish()) << i;
    EXPECT_FALSE(back_.arm(4)) << "fewer than asked for is no work yet";
  }
  put_some(front_, 3, 1);
  EXPECT_TRUE(front_.publish());
  EXPECT_TRUE(back_.arm(4));
  auto duties = take_some(back_, 1000);
  EXPECT_EQ(duties.size(), 4U);
  answer_all(back_, duties);
}

TEST_P(BackRing, HoldOffIsCutDownToWhatTheFrontendCanPut) {
  put_some(front_, 0, front_.size() - 2);
  (void)front_.publish();
  auto duties = take_some(back_, 1000);
  EXPECT_FALSE(back_.arm(16)) << "two slots are left";
  put_some(front_, 0, 2);
  EXPECT_TRUE(front_.publish()) << "or both would wait for ever";
  EXPECT_TRUE(back_.arm(16));
  auto last = take_some(back_, 1000);
  EXPECT_FALSE(back_.arm(0)) << "an index that is not ahead would never be passed";
  EXPECT_EQ(memory_.get(ring_memory::req_event),
            static_cast<std::uint32_t>(GetParam() + front_.size() + 1));
  answer_all(back_, duties);
  answer_all(back_, last);
  (void)back_.publish();
}

TEST_P(BackRing, ResponseMayBeGivenWhileTaking) {
  put_some(front_, 0, 20);
  (void)front_.publish();
  EXPECT_EQ(back_.take(1000, [&](taken& request) { back_.respond(take_in(request).settle(7)); }),
            20U);
  (void)back_.publish();
  std::uint32_t expected = 0;
  front_.take(1000, [&](const auto& response) {
    EXPECT_EQ(response.number, expected++);
    EXPECT_EQ(response.status, 7U);
  });
  EXPECT_EQ(expected, 20U);
}

TEST_P(BackRing, AnswersMayComeInAnyOrder) {
  put_some(front_, 0, 64);
  (void)front_.publish();
  auto duties = take_some(back_, 64);
  std::mt19937 random(5);
  std::shuffle(duties.begin(), duties.end(), random);
  answer_all(back_, duties);
  (void)back_.publish();
  std::vector<std::uint32_t> numbers;
  front_.take(1000, [&](const auto& response) { numbers.push_back(response.number); });
  std::sort(numbers.begin(), numbers.end());
  for (std::uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(numbers[i], i);
  }
}

// Case 18: both indices of a ring to take over come from one pair that was checked.
TEST_P(BackRing, AttachesToAPairOfIndicesThatFit) {
  put_some(front_, 0, 10);
  (void)front_.publish();
  {
    back former(memory_.span(), GetParam());
    auto duties = take_some(former, 4);
    answer_all(former, duties);
    (void)former.publish();
  }
  const auto pair = back::read_published(memory_.span());
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->req_prod, GetParam() + 10);
  EXPECT_EQ(pair->rsp_prod, GetParam() + 4);
  back heir(memory_.span(), pair->rsp_prod);
  auto duties = take_some(heir, 1000);
  EXPECT_EQ(duties.size(), 6U);
  answer_all(heir, duties);
  (void)heir.publish();
  std::uint32_t expected = 0;
  EXPECT_EQ(
      front_.take(1000, [&](const auto& response) { EXPECT_EQ(response.number, expected++); }),
      10U);
}

TEST_P(BackRing, RefusesToAttachToIndicesThatDoNotFit) {
  const auto size = static_cast<std::uint32_t>(back_.size());
  const auto verdict = [&](std::uint32_t req, std::uint32_t rsp) {
    memory_.set(ring_memory::req_prod, req);
    memory_.set(ring_memory::rsp_prod, rsp);
    return back::read_published(memory_.span()).has_value();
  };
  EXPECT_TRUE(verdict(GetParam(), GetParam()));
  EXPECT_TRUE(verdict(GetParam() + size, GetParam()));
  EXPECT_FALSE(verdict(GetParam() + size + 1, GetParam()));
  EXPECT_FALSE(verdict(GetParam() + 5, GetParam() + 100))
      << "responses to requests that never were";
  EXPECT_FALSE(verdict(GetParam(), GetParam() + 1));
  EXPECT_FALSE(back::read_published(memory_.span().first(16)).has_value());
  EXPECT_FALSE(back::read_published({}).has_value());
}

// Case 122: entry before index, both ways, with both ends running; what is torn or stale shows in
// the check, and under the thread sanitizer.
// --- the ring of a predecessor that was killed

// It took five and answered the last two of them, in the slots of the first two; the index of the
// second answer it did not show any more.
class BackRingTakenOver : public BackRing {
 protected:
  BackRingTakenOver() {
    put_some(front_, 0, 5);
    (void)front_.publish();
    auto duties = take_some(back_, 5);
    back_.respond(std::move(duties[4]).settle(44));
    (void)back_.publish();
    back_.respond(std::move(duties[3]).settle(33));
    for (duty& one : duties) {
      one.abandon();
    }
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> responses() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
    front_.take(1000, [&](const auto& r) { out.emplace_back(r.number, r.status); });
    return out;
  }
  const std::uint32_t start_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(StartsAt, BackRingTakenOver, testing::ValuesIn(starts));

TEST_P(BackRingTakenOver, ShowsWhatWasCommittedAndGoesOn) {
  back next(memory_.span(), start_ + 5, start_ + 2);
  EXPECT_EQ(memory_.get(ring_memory::rsp_prod), start_ + 1) << "not before it is told to";
  next.show();
  EXPECT_EQ(memory_.get(ring_memory::rsp_prod), start_ + 2);
  EXPECT_EQ(next.unanswered(), 3U);
  for (std::uint32_t number = 0; number < 3; ++number) {
    next.respond(next.owe_again({number}).settle(number));
  }
  put_some(front_, 5, 2);
  (void)front_.publish();
  auto duties = take_some(next, 100);
  ASSERT_EQ(duties.size(), 2U);
  answer_all(next, duties);
  (void)next.publish();
  using all = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  EXPECT_EQ(responses(), (all{{4, 44}, {3, 33}, {0, 0}, {1, 1}, {2, 2}, {5, 0}, {6, 0}}));
  EXPECT_EQ(front_.broken(), protocol_error::none);
}

// The peer can write it, so nobody asks what it is.
TEST_P(BackRingTakenOver, TakesNoIndexFromThePeersMemory) {
  memory_.set(ring_memory::rsp_prod, start_ + 0x4000'0000);
  back next(memory_.span(), start_ + 5, start_ + 2);
  next.show();
  EXPECT_EQ(memory_.get(ring_memory::rsp_prod), start_ + 2);
  EXPECT_FALSE(next.has_requests());
  EXPECT_EQ(next.broken(), protocol_error::none);
}

TEST_P(BackRingTakenOver, IsBrokenWhereTheProducerDoesNotFit) {
  const auto size = static_cast<std::uint32_t>(back_.size());
  for (const std::uint32_t producer : {start_ + 4, start_ + 1, start_ - 1, start_ + 2 + size + 1}) {
    memory_.set(ring_memory::req_prod, producer);
    back next(memory_.span(), start_ + 5, start_ + 2);
    EXPECT_FALSE(next.has_requests());
    EXPECT_EQ(next.broken(), protocol_error::request_producer_overrun);
  }
}

TEST_P(BackRing, BothEndsMayRunAtTheSameTime) {
  constexpr std::uint32_t total = 20'000;
  std::thread backend([&] {
    std::deque<duty> flying;
    std::uint32_t taken_so_far = 0;
    std::uint32_t answered = 0;
    while (answered < total) {
      back_.take(13, [&](taken& request) {
        ping_protocol::request copy{};
        request.fetch(copy);
        EXPECT_EQ(copy.number, taken_so_far++);
        EXPECT_EQ(copy.check, ~copy.number);
        flying.push_back(request.owe({copy.number}));
      });
      while (!flying.empty()) {
        back_.respond(std::move(flying.front()).settle(~answered));
        flying.pop_front();
        ++answered;
      }
      (void)back_.publish();
      std::this_thread::yield();
    }
  });
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
  while (received < total) {
    for (std::size_t room = front_.space(); room != 0 && sent < total; --room) {
      front_.put(ping(sent++));
    }
    (void)front_.publish();
    front_.take(1000, [&](const auto& response) {
      EXPECT_EQ(response.number, received);
      EXPECT_EQ(response.status, ~received);
      ++received;
    });
    std::this_thread::yield();
  }
  backend.join();
  EXPECT_EQ(back_.broken(), protocol_error::none);
  EXPECT_EQ(front_.broken(), protocol_error::none);
}

// --- over both ABIs of the block protocol, and all sizes
// --------------------------------------------------------------

template <class Wire>
class BlkRing : public testing::Test {};
using wires = testing::Types<blkif::wire<blkif::abi::x86_64>, blkif::wire<blkif::abi::x86_32>>;
TYPED_TEST_SUITE(BlkRing, wires);

TYPED_TEST(BlkRing, WorksOverOneToSixteenPagesFromAnyStart) {
  using blk_back = pvring::ring::back_ring<TypeParam>;
  using blk_front = pvring::ring::front_ring<TypeParam>;
  using blk_taken = pvring::ring::taken<TypeParam>;
  for (std::size_t pages = 1; pages <= pvring::protocol::max_ring_pages; ++pages) {
    for (const std::uint32_t start : starts) {
      ring_memory memory(pages);
      blk_front f(memory.span(), start);
      blk_back b(memory.span(), start);
      ASSERT_EQ(f.size(), b.size());
      ASSERT_EQ(b.size(), pvring::protocol::ring_slots(pages * 4096, TypeParam::slot_bytes));
      std::uint64_t id = 1;
      for (int round = 0; round < 3; ++round) {
        const std::uint64_t first = id;
        while (f.space() != 0) {
          blkif::request request{};
          request.operation = blkif::operation::write;
          request.id = id << 32U | id;
          request.nr_segments = pvring::untrusted<std::uint16_t>(11);
          request.sector_number = pvring::untrusted<std::uint64_t>(id * 88);
          for (std::uint32_t i = 0; i < 11; ++i) {
            request.direct[i] = {static_cast<std::uint32_t>(id * 11 + i), 0, 7, {}};
          }
          f.put(request);
          ++id;
        }
        (void)f.publish();
        std::uint64_t expected = first;
        b.consume_all([&](blk_taken& request) {
          blkif::request copy{};
          request.fetch(copy);
          EXPECT_EQ(copy.id, expected << 32U | expected);
          EXPECT_EQ(copy.sector_number.echo(), expected * 88);
          EXPECT_EQ(copy.direct[10].gref, static_cast<std::uint32_t>(expected * 11 + 10));
          ++expected;
          b.respond(request.owe(TypeParam::echo_of(copy, true)).settle(blkif::status::okay));
        });
        ASSERT_EQ(expected, id);
        (void)b.publish();
        expected = first;
        f.take(10'000, [&](const auto& response) {
          EXPECT_EQ(response.id, expected << 32U | expected);
          EXPECT_EQ(response.operation, blkif::operation::write);
          ++expected;
        });
        ASSERT_EQ(expected, id);
      }
    }
  }
}

// Case 14: of a response slot, only the three fields change.
TYPED_TEST(BlkRing, ResponseLeavesEveryOtherByteOfTheRingAlone) {
  using blk_back = pvring::ring::back_ring<TypeParam>;
  using blk_taken = pvring::ring::taken<TypeParam>;
  for (unsigned operation = 0; operation <= 255; ++operation) {
    ring_memory memory;
    memory.fill(std::byte{0x5a});
    for (const auto which : {ring_memory::req_prod, ring_memory::req_event, ring_memory::rsp_prod,
                             ring_memory::rsp_event}) {
      memory.set(which, 0);
    }
    memory.slot(0, TypeParam::slot_bytes)[0] = static_cast<std::byte>(operation);
    memory.set(ring_memory::req_prod, 1);
    const auto before = memory.copy();
    blk_back b(memory.span());
    b.consume_all([&](blk_taken& request) {
      blkif::request copy{};
      request.fetch(copy);
      b.respond(request.owe(TypeParam::echo_of(copy, false)).settle(blkif::status::error));
    });
    EXPECT_EQ(memory.copy().size(), before.size());
    (void)b.publish();
    const auto after = memory.copy();
    const std::size_t slot = pvring::protocol::ring_header_bytes;
    for (std::size_t i = 0; i < after.size(); ++i) {
      const bool index = i >= 8 && i < 12;
      const bool field = i >= slot && i < slot + 12 && i != slot + 9;
      if (!index && !field) {
        ASSERT_EQ(after[i], before[i]) << "byte " << i << " after operation " << operation;
      }
    }
    std::int16_t status = 0;
    std::memcpy(&status, after.data() + slot + 10, sizeof status);
    ASSERT_EQ(status, -1);
    ASSERT_EQ(after[slot + 8], static_cast<std::byte>(operation));
  }
}

}  // namespace
