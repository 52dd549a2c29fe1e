// SPDX-License-Identifier: MIT
// The waiter's decisions, over scripted sources and a clock that is moved by hand: when to look
// again, when to arm, when to sleep, and whose window learns from what.

#include "pvring/wait/loop.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
namespace wait = pvring::wait;

wait::time_point clock_now;
wait::time_point manual_clock() noexcept { return clock_now; }

struct fake_source {
  int descriptor = 0;
  bool work = false;  // what arm() finds
  int arms = 0;
  int disarms = 0;
  int fd() noexcept { return descriptor; }
  bool arm() noexcept {
    ++arms;
    return work;
  }
  void disarm() noexcept { ++disarms; }
};
struct ring_like : fake_source {
  std::uint64_t taken = 0;
  std::optional<wait::time_point> delayed;
  std::uint64_t progress() noexcept { return taken; }
  std::optional<wait::time_point> deadline() noexcept { return delayed; }
};
struct engine_like : fake_source {
  std::size_t flying = 0;
  std::size_t in_flight() noexcept { return flying; }
};

struct fake_queue {
  ring_like ring;
  engine_like engine;
  fake_source mailbox;
  std::size_t next = 0;  // work of the next pass
  std::size_t budget = 0;
  std::optional<wait::time_point> timer;

  fake_queue() {
    ring.descriptor = 10;
    engine.descriptor = 11;
    mailbox.descriptor = 12;
  }
  std::size_t service(std::size_t b) noexcept {
    budget = b;
    return std::exchange(next, 0);
  }
  std::optional<wait::time_point> deadline() noexcept { return timer; }
  template <class F>
  void for_each_source(F&& f) noexcept {
    f(ring);
    f(engine);
    f(mailbox);
  }
};

constexpr wait::adaptive options{.start = 20us, .max = 200us, .idle = 10ms};

class Waiter : public testing::Test {
 public:
  fake_queue queue;
  void SetUp() override { clock_now = wait::time_point{} + 1h; }

  using waiter = wait::waiter<fake_queue>;
  static constexpr std::size_t ring = 0;
  static constexpr std::size_t engine = 1;
  static constexpr std::size_t mailbox = 2;

  // A wait of that length, at the end of which the ring has a request, or the engine a completion.
  void ring_after(waiter& w, std::chrono::nanoseconds waited) {
    (void)w.turn();
    clock_now += waited;
    queue.next = 1;
    ++queue.ring.taken;
    ++queue.engine.flying;  // as a pass does that submits what it takes
    EXPECT_FALSE(w.turn());
    queue.engine.flying = 0;
  }
  void engine_after(waiter& w, std::chrono::nanoseconds waited) {
    queue.engine.flying = 1;
    (void)w.turn();
    clock_now += waited;
    queue.next = 1;
    queue.engine.flying = 0;
    EXPECT_FALSE(w.turn());
  }
  void mailbox_after(waiter& w, std::chrono::nanoseconds waited) {
    (void)w.turn();
    clock_now += waited;
    queue.next = 1;
    EXPECT_FALSE(w.turn());
  }
  int arms() const { return queue.ring.arms + queue.engine.arms + queue.mailbox.arms; }
};

TEST_F(Waiter, ByEventSleepsAfterAPassThatFoundNothing) {
  waiter w(queue, wait::event{}, {.budget = 5});
  EXPECT_EQ(std::vector<int>(w.fds().begin(), w.fds().end()), (std::vector<int>{10, 11, 12}));
  queue.next = 3;
  EXPECT_FALSE(w.turn());
  EXPECT_EQ(queue.budget, 5U);
  EXPECT_FALSE(w.idle());
  EXPECT_EQ(arms(), 0);
  EXPECT_TRUE(w.turn());
  EXPECT_TRUE(w.idle());
  EXPECT_EQ(arms(), 3);
  EXPECT_EQ(w.counters().passes.get(), 2U);
  EXPECT_EQ(w.counters().idle_passes.get(), 1U);
  EXPECT_EQ(w.counters().sleeps.get(), 1U);
}

TEST_F(Waiter, DisarmsOnceAfterASleep) {
  waiter w(queue, wait::event{});
  EXPECT_TRUE(w.turn());
  queue.next = 1;
  EXPECT_FALSE(w.turn());
  queue.next = 1;
  EXPECT_FALSE(w.turn());
  EXPECT_EQ(queue.ring.disarms, 1);
  EXPECT_EQ(queue.mailbox.disarms, 1);
}

TEST_F(Waiter, DoesNotSleepWhenArmingFindsWork) {
  waiter w(queue, wait::event{});
  queue.ring.work = true;
  EXPECT_FALSE(w.turn());
  EXPECT_EQ(arms(), 3);  // the others as well
  EXPECT_EQ(w.counters().found_armed.get(), 1U);
  EXPECT_EQ(w.counters().sleeps.get(), 0U);
}

TEST_F(Waiter, BusyNeitherArmsNorSleeps) {
  waiter w(queue, wait::busy{});
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(w.turn());
  }
  EXPECT_EQ(arms(), 0);
}

TEST_F(Waiter, AdaptiveStartsByEvent) {
  waiter w(queue, options, {.now = &manual_clock});
  EXPECT_TRUE(w.turn());
  EXPECT_EQ(w.counters().polls_unpaid.get(), 0U);
}

TEST_F(Waiter, AdaptivePollsForAsLongAsTheWindowOnceWorkCameSoon) {
  waiter w(queue, options, {.now = &manual_clock});
  ring_after(w, 30us);
  EXPECT_EQ(w.window_of(ring).length(), 20us);
  const int armed = arms();
  EXPECT_FALSE(w.turn());
  clock_now += 19us;
  EXPECT_FALSE(w.turn());
  EXPECT_EQ(arms(), armed);
  clock_now += 1us;
  EXPECT_TRUE(w.turn());
  EXPECT_EQ(w.counters().polls_unpaid.get(), 1U);
  EXPECT_EQ(w.counters().polls_paid.get(), 0U);
}

TEST_F(Waiter, AdaptiveCountsPollsThatPaid) {
  waiter w(queue, options, {.now = &manual_clock});
  ring_after(w, 30us);
  ring_after(w, 15us);
  EXPECT_EQ(w.counters().polls_paid.get(), 1U);
  EXPECT_EQ(w.window_of(ring).length(), 40us);
  EXPECT_EQ(w.counters().polls_unpaid.get(), 0U);
}

TEST_F(Waiter, AnEmptyWakeUpDoesNotStartPollingAgain) {
  waiter w(queue, options, {.now = &manual_clock});
  ring_after(w, 30us);
  (void)w.turn();
  clock_now += 20us;
  EXPECT_TRUE(w.turn());
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(w.turn());  // woken by a kick without work
  }
  EXPECT_EQ(w.counters().polls_unpaid.get(), 1U);
}

TEST_F(Waiter, AnIdleDeviceStopsPolling) {
  waiter w(queue, options, {.now = &manual_clock});
  for (int i = 0; i < 10; ++i) {
    ring_after(w, 100us);
  }
  EXPECT_EQ(w.window_of(ring).length(), 200us);
  ring_after(w, 20ms);
  EXPECT_EQ(w.window_of(ring).length(), 0ns);
  EXPECT_TRUE(w.turn());  // at once
}

TEST_F(Waiter, WindowsBelongToTheirSources) {
  waiter w(queue, options, {.now = &manual_clock});
  for (int i = 0; i < 10; ++i) {
    engine_after(w, 100us);
    ring_after(w, 1ms);
  }
  EXPECT_EQ(w.window_of(engine).length(), 200us);
  EXPECT_EQ(w.window_of(ring).length(), 0ns);
  EXPECT_EQ(w.window_of(mailbox).length(), 0ns);
  // With nothing in flight the engine's window is no reason to poll.
  EXPECT_TRUE(w.turn());
}

TEST_F(Waiter, CreditsTheEngineWhenAPassSubmitsAsMuchAsItReaps) {
  waiter w(queue, options, {.now = &manual_clock});
  queue.engine.flying = 2;
  (void)w.turn();
  clock_now += 50us;
  queue.next = 1;
  EXPECT_FALSE(w.turn());
  EXPECT_EQ(w.window_of(engine).length(), 20us);
  EXPECT_EQ(w.window_of(ring).length(), 0ns);
}

TEST_F(Waiter, CreditsASourceThatShowsNothingWhenNoOtherMoved) {
  waiter w(queue, options, {.now = &manual_clock});
  mailbox_after(w, 50us);
  EXPECT_EQ(w.window_of(mailbox).length(), 20us);
  EXPECT_EQ(w.window_of(ring).length(), 0ns);
  ring_after(w, 50us);  // the mailbox's window ran out for that
  EXPECT_EQ(w.window_of(mailbox).length(), 0ns);
  EXPECT_EQ(w.window_of(ring).length(), 20us);
}

TEST_F(Waiter, SleepsUntilTheFirstOfAllDeadlines) {
  waiter w(queue, wait::event{}, {.now = &manual_clock});
  EXPECT_EQ(w.timeout_ms(), -1);
  EXPECT_FALSE(w.timeout());
  queue.timer = clock_now + 1500us;
  EXPECT_EQ(w.timeout(), std::optional<std::chrono::nanoseconds>(1500us));
  EXPECT_EQ(w.timeout_ms(), 2);
  queue.ring.delayed = clock_now + 50us;
  EXPECT_EQ(w.deadline(), queue.ring.delayed);
  EXPECT_EQ(w.timeout_ms(), 1);
  clock_now += 60us;
  EXPECT_EQ(w.timeout(), std::optional<std::chrono::nanoseconds>(0ns));
  EXPECT_EQ(w.timeout_ms(), 0);
  queue.ring.delayed.reset();
  queue.timer = clock_now + 24h * 365;
  EXPECT_EQ(w.timeout_ms(), 24 * 3600 * 1000);
}

}  // namespace
