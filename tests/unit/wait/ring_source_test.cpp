// SPDX-License-Identifier: MIT
// The source of a queue's rings, over real rings and an event handle that records what is asked of
// it: when the port is unmasked, what counts as spurious, how a storm is slowed down, and which
// rings matter.

#include "pvring/wait/ring_source.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <set>

#include "pvring/ring/back_ring.hpp"
#include "pvring/ring/front_ring.hpp"

namespace {

using namespace std::chrono_literals;
namespace wait = pvring::wait;
using pvring::platform::port;

struct protocol {
  struct request {};
  struct response {};
  using echo = char;
  using status = char;
  static constexpr std::size_t slot_bytes = 128;
  static void fetch(pvring::ring::slot_source, request&) noexcept {}
  static void store(pvring::ring::slot_sink, const echo&, status) noexcept {}
  static void store_request(pvring::ring::slot_sink, const request&) noexcept {}
  static response fetch_response(pvring::ring::slot_source) noexcept { return {}; }
};
using back = pvring::ring::back_ring<protocol>;
using front = pvring::ring::front_ring<protocol>;

struct fake_events {
  std::set<port> masked = {7, 9};
  std::set<port> pending_while_masked;
  std::deque<port> fired;
  int unmasks = 0;

  void kick(port p) {
    if (masked.insert(p).second) {
      fired.push_back(p);
    } else {
      pending_while_masked.insert(p);
    }
  }

  int fd() noexcept { return 42; }
  port bind(pvring::domain_id, port p) { return p; }
  void unbind(port) noexcept {}
  void notify(port) noexcept {}
  std::optional<port> pending() noexcept {
    if (fired.empty()) {
      return std::nullopt;
    }
    const port p = fired.front();
    fired.pop_front();
    return p;
  }
  void unmask(port p) noexcept {
    ++unmasks;
    masked.erase(p);
    if (pending_while_masked.erase(p) != 0) {
      kick(p);
    }
  }
};

wait::time_point clock_now;
wait::time_point manual_clock() noexcept { return clock_now; }

// A ring with both ends.
struct ends {
  alignas(64) std::array<std::byte, 4096> memory{};
  front f{memory};
  back b{memory};

  // Puts requests one by one; returns how often the backend was to be kicked.
  int put(int count = 1) {
    int kicks = 0;
    for (int i = 0; i < count; ++i) {
      f.put({});
      kicks += f.publish() ? 1 : 0;
    }
    return kicks;
  }
  void answer(std::size_t count = 100) {
    b.take(count, [this](auto& request) {
      protocol::request copy;
      request.fetch(copy);
      b.respond(request.owe(0).settle(0));
    });
    (void)b.publish();
    f.take(100, [](auto) {});
  }
};

constexpr wait::ring_source_options options{
    .first_delay = 50us, .longest_delay = 300us, .now = &manual_clock};

class RingSource : public testing::Test {
 public:
  static constexpr port ours = 7;
  fake_events events;
  ends one;
  ends two;
  wait::ring_source<fake_events, back> source{options, events, ours, one.b};
  wait::ring_source<fake_events, back, back> both{options, events, ours, one.b, two.b};
  void SetUp() override { clock_now = wait::time_point{} + 1h; }

  bool masked() const { return events.masked.count(ours) != 0; }
};

static_assert(pvring::source<wait::ring_source<fake_events, back>>);
static_assert(wait::source_with_deadline<wait::ring_source<fake_events, back>>);
static_assert(wait::source_with_progress<wait::ring_source<fake_events, back>>);
static_assert(wait::armable_ring<back>);
static_assert(!wait::armable_ring<front>);

TEST_F(RingSource, UnmasksWhenNothingIsThere) {
  EXPECT_TRUE(masked());
  EXPECT_FALSE(source.arm());
  EXPECT_FALSE(masked());
  EXPECT_FALSE(source.arm());
  EXPECT_EQ(events.unmasks, 1);  // no second system call
  EXPECT_EQ(source.counters().unmasks.get(), 1U);
  EXPECT_EQ(source.fd(), 42);
}

TEST_F(RingSource, FindsWorkFromBeforeTheBindingAndStaysMasked) {
  one.put();
  EXPECT_TRUE(source.arm());
  EXPECT_TRUE(masked());
}

TEST_F(RingSource, UnmasksOnlyAfterTheEventsRequestsWereTaken) {
  EXPECT_FALSE(source.arm());
  EXPECT_EQ(one.put(), 1);
  events.kick(ours);
  EXPECT_TRUE(source.arm());
  EXPECT_TRUE(masked());
  one.answer();
  EXPECT_FALSE(source.arm());
  EXPECT_FALSE(masked());
  EXPECT_EQ(source.counters().events.get(), 1U);
  EXPECT_EQ(source.counters().spurious.get(), 0U);
}

TEST_F(RingSource, DeliversAKickThatCameWhileThePortWasMasked) {
  EXPECT_FALSE(source.arm());
  events.kick(ours);
  events.kick(ours);  // pending
  EXPECT_FALSE(source.arm());
  EXPECT_EQ(events.fired.size(), 1U);
}

TEST_F(RingSource, DrawsOneKickForAllRequestsThatAPollerTakes) {
  EXPECT_FALSE(source.arm());
  source.disarm();
  int kicks = 0;
  for (int i = 0; i < 100; ++i) {
    kicks += one.put();
    one.answer();
  }
  EXPECT_EQ(kicks, 1);
  events.kick(ours);
  EXPECT_FALSE(source.arm());
  EXPECT_EQ(source.progress(), 100U);
  EXPECT_EQ(source.counters().suppressed.get(), 99U);
  EXPECT_EQ(source.counters().events.get(), 1U);
  EXPECT_EQ(source.counters().spurious.get(), 0U);
}

TEST_F(RingSource, CountsSuppressedRequestsOfAPollerThatNeverArms) {
  one.put(5);
  one.answer();
  EXPECT_EQ(source.progress(), 5U);
  EXPECT_EQ(source.counters().suppressed.get(), 5U);
}

TEST_F(RingSource, LetsTheFirstSpuriousEventPassAndDelaysFurtherOnesWithGrowingDelay) {
  EXPECT_FALSE(source.arm());
  events.kick(ours);
  EXPECT_FALSE(source.arm());
  EXPECT_FALSE(masked());
  EXPECT_EQ(source.counters().spurious.get(), 1U);
  for (const auto delay : {50us, 100us, 200us, 300us, 300us}) {
    events.kick(ours);
    EXPECT_FALSE(source.arm());
    EXPECT_TRUE(masked());
    ASSERT_TRUE(source.deadline());
    EXPECT_EQ(*source.deadline(), clock_now + delay);
    clock_now += delay - 1ns;
    EXPECT_FALSE(source.arm());
    EXPECT_TRUE(masked());
    clock_now += 1ns;
    EXPECT_FALSE(source.arm());
    EXPECT_FALSE(masked());
    EXPECT_FALSE(source.deadline());
  }
  EXPECT_EQ(source.counters().spurious.get(), 6U);
  EXPECT_EQ(source.counters().delayed.get(), 5U);
}

TEST_F(RingSource, LeavesNoDeadlineInThePastWhenItsRingIsNotWantedAnyMore) {
  EXPECT_FALSE(source.arm());
  for (int i = 0; i < 2; ++i) {
    events.kick(ours);
    EXPECT_FALSE(source.arm());
  }
  ASSERT_TRUE(source.deadline());
  source.want(0);
  clock_now += 1s;
  EXPECT_FALSE(source.arm());
  EXPECT_FALSE(source.deadline());
  EXPECT_TRUE(masked());
}

TEST_F(RingSource, ServesARealRequestInAStormAndStartsOver) {
  EXPECT_FALSE(source.arm());
  for (int i = 0; i < 3; ++i) {
    events.kick(ours);
    EXPECT_FALSE(source.arm());
    clock_now += source.deadline() ? *source.deadline() - clock_now : 0ns;
    EXPECT_FALSE(source.arm());
  }
  events.kick(ours);
  EXPECT_FALSE(source.arm());
  ASSERT_TRUE(source.deadline());
  one.put();
  EXPECT_TRUE(source.arm());  // found although the delay runs
  one.answer();
  EXPECT_FALSE(source.arm());
  EXPECT_FALSE(source.deadline());
  EXPECT_FALSE(masked());
  events.kick(ours);
  EXPECT_FALSE(source.arm());
  EXPECT_FALSE(masked());  // the first one again
}

TEST_F(RingSource, KeepsTheDelayBoundedForAnyNumberOfKicks) {
  EXPECT_FALSE(source.arm());
  for (int i = 0; i < 5000; ++i) {
    events.kick(ours);
    EXPECT_FALSE(source.arm());
    if (source.deadline()) {
      ASSERT_LE(*source.deadline() - clock_now, 300us);
      clock_now = *source.deadline();
      EXPECT_FALSE(source.arm());
    }
    ASSERT_FALSE(masked());
  }
  EXPECT_EQ(source.counters().delayed.get(), 4999U);
}

TEST_F(RingSource, IgnoresStalePorts) {
  EXPECT_FALSE(source.arm());
  events.fired = {3, 9, 3};
  EXPECT_FALSE(source.arm());
  EXPECT_TRUE(events.fired.empty());
  EXPECT_EQ(source.counters().events.get(), 0U);
  EXPECT_EQ(events.unmasks, 1);
}

TEST_F(RingSource, LooksAtStalePortsEvenWhileItsOwnIsMasked) {
  source.want(0);
  EXPECT_FALSE(source.arm());
  events.fired = {3};
  EXPECT_FALSE(source.arm());
  EXPECT_TRUE(events.fired.empty());  // else the descriptor would stay readable
}

TEST_F(RingSource, HoldsNotificationsBackUntilTheDistance) {
  source.want(4);
  EXPECT_FALSE(source.arm());
  EXPECT_EQ(one.put(3), 0);
  EXPECT_FALSE(source.arm());
  EXPECT_EQ(one.put(), 1);
  events.kick(ours);
  EXPECT_TRUE(source.arm());
}

TEST_F(RingSource, LimitsTheDistanceToWhatTheFrontendCanPut) {
  one.put(static_cast<int>(one.f.size()) - 2);
  one.b.take(100, [](auto& request) {
    protocol::request copy;
    request.fetch(copy);
    request.owe(0).abandon();  // in flight
  });
  source.want(100);
  EXPECT_FALSE(source.arm());
  EXPECT_EQ(one.put(2), 1);
  EXPECT_TRUE(source.arm());
}

TEST_F(RingSource, DoesNotCallAnEventBeforeTheDistanceSpurious) {
  EXPECT_FALSE(source.arm());
  source.want(4);
  one.put();
  events.kick(ours);
  EXPECT_FALSE(source.arm());
  EXPECT_EQ(source.counters().spurious.get(), 0U);
}

TEST_F(RingSource, NeitherArmsNorLooksAtARingThatIsNotWanted) {
  one.put(3);
  source.want(0);
  EXPECT_FALSE(source.arm());  // backpressure: what is there cannot be taken
  EXPECT_TRUE(masked());
  source.want(1);
  EXPECT_TRUE(source.arm());
}

TEST_F(RingSource, UnmasksWhereOneOfTwoRingsIsWanted) {
  one.put();
  both.want<0>(0);
  EXPECT_FALSE(both.arm());
  EXPECT_FALSE(masked());
  EXPECT_EQ(two.put(), 1);
  events.kick(ours);
  EXPECT_TRUE(both.arm());
  both.want<1>(0);
  EXPECT_FALSE(both.arm());
  EXPECT_TRUE(masked());  // nobody is waited for
}

TEST_F(RingSource, ArmsBothRingsEvenWhenTheFirstHasWork) {
  one.put();
  two.put();
  two.answer();
  EXPECT_TRUE(both.arm());
  EXPECT_EQ(two.put(), 1);
}

TEST_F(RingSource, TellsOnceThatARingIsBroken) {
  EXPECT_FALSE(source.arm());
  pvring::ring::shared_index<std::uint32_t>(one.memory.data())
      .store(1000, std::memory_order_relaxed);
  EXPECT_TRUE(source.arm());
  EXPECT_NE(one.b.broken(), pvring::protocol_error::none);
  events.kick(ours);
  EXPECT_FALSE(source.arm());
  EXPECT_TRUE(masked());  // its kicks are of no interest any more
}

TEST_F(RingSource, CountsRequestsAcrossTheWrapOfTheIndices) {
  ends late;
  late.f = front(late.memory, 0xfffffffe);
  late.b = back(late.memory, 0xfffffffe);
  wait::ring_source<fake_events, back> wrapping(options, events, ours, late.b);
  late.put(4);
  late.answer();
  EXPECT_EQ(wrapping.progress(), 4U);
}

}  // namespace
