// SPDX-License-Identifier: MIT
// One request, one answer: the types allow no copy, and what they cannot refuse is asserted.
#include "pvring/ring/answer.hpp"

#include <gtest/gtest.h>

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "ping_protocol.hpp"
#include "pvring/ring/back_ring.hpp"
#include "pvring/ring/front_ring.hpp"
#include "ring_memory.hpp"

namespace {

using answer = pvring::ring::answer<ping_protocol>;
using duty = pvring::ring::obligation<ping_protocol>;
using taken = pvring::ring::taken<ping_protocol>;
using back = pvring::ring::back_ring<ping_protocol>;
using front = pvring::ring::front_ring<ping_protocol>;

static_assert(std::is_nothrow_move_constructible_v<answer> &&
              std::is_nothrow_move_assignable_v<answer>);
static_assert(!std::is_copy_constructible_v<answer> && !std::is_copy_assignable_v<answer>);
static_assert(!std::is_default_constructible_v<answer>);
static_assert(!std::is_constructible_v<answer, ping_protocol::echo, ping_protocol::status>);
static_assert(std::is_nothrow_move_constructible_v<duty> &&
              std::is_nothrow_move_assignable_v<duty>);
static_assert(!std::is_copy_constructible_v<duty> && !std::is_copy_assignable_v<duty>);
static_assert(!std::is_constructible_v<duty, ping_protocol::echo>);
static_assert(!std::is_copy_constructible_v<taken> && !std::is_move_constructible_v<taken>);
static_assert(!std::is_constructible_v<taken, pvring::ring::slot_source>);
static_assert(!std::is_destructible_v<taken>, "only the ring has one");

// An obligation is settled by giving it away, and a ring takes an answer only, given away too.
template <class D>
concept settles_in_place = requires(D& d) { d.settle(0U); };
template <class D>
concept settles_given_away = requires(D&& d) { std::move(d).settle(0U); };
static_assert(!settles_in_place<duty> && settles_given_away<duty>);
template <class R, class A>
concept responds_with =
    requires(R& ring, A&& response) { ring.respond(std::forward<A>(response)); };
static_assert(responds_with<back, answer>);
static_assert(!responds_with<back, answer&>);
static_assert(!responds_with<back, duty>);
static_assert(!responds_with<back, ping_protocol::echo>);
static_assert(!responds_with<back, ping_protocol::response>);
struct other_protocol : ping_protocol {};
static_assert(!responds_with<back, pvring::ring::answer<other_protocol>>, "of another protocol");

class Answer : public testing::Test {
 protected:
  duty one_duty(std::uint32_t number = 5) {
    front_.put(ping(number));
    (void)front_.publish();
    std::optional<duty> made;
    back_.take(1, [&](taken& request) {
      ping_protocol::request copy{};
      request.fetch(copy);
      made = request.owe({copy.number});
    });
    return std::move(*made);
  }

  ring_memory memory_;
  front front_{memory_.span()};
  back back_{memory_.span()};
};

TEST_F(Answer, ObligationIsOwedUntilItIsSettled) {
  duty owed = one_duty(77);
  EXPECT_TRUE(owed.owed());
  answer given = std::move(owed).settle(3);
  EXPECT_FALSE(owed.owed());  // NOLINT: moved from, and that is what is tested
  EXPECT_EQ(given.to().number, 77U);
  EXPECT_EQ(given.status(), 3U);
  back_.respond(std::move(given));
  EXPECT_EQ(back_.unanswered(), 0U);
}

TEST_F(Answer, MovingHandsTheDutyOn) {
  duty a = one_duty(8);
  duty b(std::move(a));
  EXPECT_FALSE(a.owed());  // NOLINT: moved from
  EXPECT_TRUE(b.owed());
  duty c;
  EXPECT_FALSE(c.owed());
  c = std::move(b);
  EXPECT_TRUE(c.owed());
  answer first = std::move(c).settle(0);
  answer second(std::move(first));
  EXPECT_EQ(second.to().number, 8U);
  back_.respond(std::move(second));
}

TEST_F(Answer, AssignedAnswerIsTheOtherOne) {
  answer a = one_duty(1).settle(0);
  back_.respond(std::move(a));
  a = one_duty(2).settle(9);
  EXPECT_EQ(a.to().number, 2U);
  EXPECT_EQ(a.status(), 9U);
  back_.respond(std::move(a));
}

TEST_F(Answer, AbandonedOnesNeedNoRing) {
  duty owed = one_duty();
  owed.abandon();
  EXPECT_FALSE(owed.owed());
  answer given = one_duty().settle(0);
  given.abandon();
}

#ifndef NDEBUG
using AnswerDeathTest = Answer;

TEST_F(AnswerDeathTest, LosingAnObligationIsABug) {
  EXPECT_DEATH({ const duty lost = one_duty(); }, "never answered");
}

TEST_F(AnswerDeathTest, LosingAnAnswerIsABug) {
  EXPECT_DEATH({ const answer lost = one_duty().settle(0); }, "an answer was never given");
}

TEST_F(AnswerDeathTest, OverwritingAnObligationIsABug) {
  EXPECT_DEATH(
      {
        duty a = one_duty();
        a = duty();
      },
      "never be answered");
}

TEST_F(AnswerDeathTest, OverwritingAnAnswerIsABug) {
  EXPECT_DEATH(
      {
        answer a = one_duty().settle(0);
        a = one_duty().settle(0);
      },
      "never be given");
}

TEST_F(AnswerDeathTest, SettlingTwiceIsABug) {
  EXPECT_DEATH(
      {
        duty owed = one_duty();
        back_.respond(std::move(owed).settle(0));
        back_.respond(std::move(owed).settle(0));  // NOLINT: moved from
      },
      "answered twice");
}

TEST_F(AnswerDeathTest, GivingAnAnswerTwiceIsABug) {
  EXPECT_DEATH(
      {
        duty another = one_duty();
        answer given = one_duty().settle(0);
        back_.respond(std::move(given));
        back_.respond(std::move(given));  // NOLINT: moved from
        another.abandon();
      },
      "answered twice");
}

TEST_F(AnswerDeathTest, AnswerOfAnotherRingIsABug) {
  back other(memory_.span());
  EXPECT_DEATH(other.respond(one_duty().settle(0)), "another ring");
}

TEST_F(AnswerDeathTest, DroppingATakenRequestIsABug) {
  front_.put(ping(1));
  (void)front_.publish();
  EXPECT_DEATH(back_.take(1, [](taken&) {}), "a request was dropped");
}

TEST_F(AnswerDeathTest, FetchingTwiceIsABug) {
  front_.put(ping(1));
  (void)front_.publish();
  EXPECT_DEATH(back_.take(1,
                          [](taken& request) {
                            ping_protocol::request copy{};
                            request.fetch(copy);
                            request.fetch(copy);
                          }),
               "read once");
}

TEST_F(AnswerDeathTest, OwingTwiceIsABug) {
  front_.put(ping(1));
  (void)front_.publish();
  EXPECT_DEATH(back_.take(1,
                          [](taken& request) {
                            duty a = request.owe({1});
                            duty b = request.owe({1});
                          }),
               "owes one answer");
}
#endif

}  // namespace
