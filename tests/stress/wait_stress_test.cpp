// SPDX-License-Identifier: MIT
// Two threads play ping-pong over a real ring, real eventfds and a real mailbox, in each wait
// policy: a lost wake-up is a round that never ends, and fails by time-out. Kicks are counted
// against entries into polling.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "pvring/aio/mailbox.hpp"
#include "pvring/base/unique_fd.hpp"
#include "pvring/ring/back_ring.hpp"
#include "pvring/ring/front_ring.hpp"
#include "pvring/wait/loop.hpp"
#include "pvring/wait/policy.hpp"
#include "pvring/wait/ring_source.hpp"
#include "pvring/wait/runner.hpp"

namespace {

namespace wait = pvring::wait;

// In each policy: as many rounds, or as many as fit into the time, which is what sanitizers and
// busy machines get.
constexpr std::uint64_t most_rounds = 100'000;
constexpr std::uint64_t least_rounds = 200;
constexpr auto enough = std::chrono::milliseconds(800);
constexpr auto time_out = std::chrono::seconds(60);

struct protocol {
  struct request {
    std::uint64_t number = 0;
  };
  using response = request;
  using echo = std::uint64_t;
  using status = int;
  static constexpr std::size_t slot_bytes = 8;
  static void fetch(pvring::ring::slot_source from, request& to) noexcept {
    to.number = from.load<std::uint64_t>(0);
  }
  static void store(pvring::ring::slot_sink to, const echo& number, status) noexcept {
    to.store(0, number);
  }
  static void store_request(pvring::ring::slot_sink to, const request& r) noexcept {
    to.store(0, r.number);
  }
  static response fetch_response(pvring::ring::slot_source from) noexcept {
    return {from.load<std::uint64_t>(0)};
  }
};

// One port behind an eventfd. Both flags share a word, so of a kick and an unmask that meet one
// sees both.
class eventfd_port {
 public:
  // The peer.
  void kick() noexcept {
    kicks_.fetch_add(1, std::memory_order_relaxed);
    if (flags_.fetch_or(is_pending) == 0) {
      ring_bell();
    }
  }
  std::uint64_t kicks() const noexcept { return kicks_.load(std::memory_order_relaxed); }

  // The owner; a model of platform::event_channel.
  int fd() noexcept { return bell_.get(); }
  pvring::platform::port bind(pvring::domain_id, pvring::platform::port p) { return p; }
  void unbind(pvring::platform::port) noexcept {}
  void notify(pvring::platform::port) noexcept {}
  std::optional<pvring::platform::port> pending() noexcept {
    std::uint64_t count = 0;
    if (::read(bell_.get(), &count, sizeof count) < 0) {
      return std::nullopt;
    }
    flags_.store(is_masked);
    return 0;
  }
  void unmask(pvring::platform::port) noexcept {
    if ((flags_.fetch_and(static_cast<std::uint8_t>(~is_masked)) & is_pending) != 0) {
      ring_bell();
    }
  }

 private:
  static constexpr std::uint8_t is_masked = 1;
  static constexpr std::uint8_t is_pending = 2;

  void ring_bell() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(bell_.get(), &one, sizeof one);
  }

  pvring::unique_fd bell_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::atomic<std::uint8_t> flags_{is_masked};
  std::atomic<std::uint64_t> kicks_{0};
};
static_assert(pvring::platform::event_channel<eventfd_port>);

using back = pvring::ring::back_ring<protocol>;

// Answers every request, and acknowledges every handle in the mailbox.
struct queue {
  back ring;
  eventfd_port& own;
  eventfd_port& peer;
  wait::ring_source<eventfd_port, back> source{own, 0, ring};
  pvring::aio::mailbox<std::uint64_t> box{4};
  std::atomic<std::uint64_t> acknowledged{0};

  queue(std::span<std::byte> memory, eventfd_port& own_port, eventfd_port& peer_port)
      : ring(memory), own(own_port), peer(peer_port) {}

  std::size_t service(std::size_t budget) noexcept {
    std::size_t work = ring.take(budget, [this](auto& taken) {
      protocol::request request;
      taken.fetch(request);
      ring.respond(taken.owe(request.number).settle(0));
    });
    if (ring.publish()) {
      peer.kick();
    }
    work += box.consume(
        [this](std::uint64_t handle) { acknowledged.store(handle, std::memory_order_release); });
    return work;
  }
  std::optional<wait::time_point> deadline() noexcept { return std::nullopt; }
  template <class F>
  void for_each_source(F&& f) noexcept {
    f(source);
    f(box);
  }
};

class frontend {
 public:
  frontend(std::span<std::byte> memory, eventfd_port& own, eventfd_port& peer)
      : ring_(memory), own_(own), peer_(peer) {}

  // Puts `count` requests and waits for their answers, asleep or by looking. False after the
  // time-out.
  bool round(std::uint64_t count, bool asleep) {
    for (std::uint64_t i = 0; i < count; ++i) {
      ring_.put({next_ + i});
      if (i % 2 == 1 && ring_.publish()) {
        peer_.kick();
      }
    }
    if (ring_.publish()) {
      peer_.kick();
    }
    const std::uint64_t until = next_ + count;
    const auto give_up = std::chrono::steady_clock::now() + time_out;
    while (take() != until) {
      if (asleep ? !sleep() : std::chrono::steady_clock::now() > give_up) {
        return false;
      }
      std::this_thread::yield();
    }
    return true;
  }

 private:
  std::uint64_t take() {
    ring_.take(ring_.size(), [this](const protocol::response& r) {
      EXPECT_EQ(r.number, next_);
      ++next_;
    });
    return next_;
  }

  bool sleep() {
    (void)own_.pending();
    if (ring_.arm()) {
      return true;
    }
    own_.unmask(0);
    pollfd bell{.fd = own_.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&bell, 1, static_cast<int>(std::chrono::milliseconds(time_out).count())) == 1;
  }

  pvring::ring::front_ring<protocol> ring_;
  eventfd_port& own_;
  eventfd_port& peer_;
  std::uint64_t next_ = 0;
};

std::uint64_t next_random(std::uint64_t& state) {  // xorshift
  state ^= state << 13U;
  state ^= state >> 7U;
  state ^= state << 17U;
  return state;
}

class WaitStress : public testing::TestWithParam<const char*> {};

TEST_P(WaitStress, NoRoundIsLost) {
  alignas(64) std::array<std::byte, 4096> memory{};
  eventfd_port to_back;
  eventfd_port to_front;
  frontend front(memory, to_front, to_back);
  queue back_end(memory, to_back, to_front);
  wait::runner runner(back_end, {.wait = wait::policy::parse(GetParam())});

  std::uint64_t random = 88172645463325252U;
  std::uint64_t handle = 0;
  const auto started = std::chrono::steady_clock::now();
  std::uint64_t n = 0;
  for (; n < most_rounds; ++n) {
    if (n >= least_rounds && n % 16 == 0 && std::chrono::steady_clock::now() - started > enough) {
      break;
    }
    next_random(random);
    ASSERT_TRUE(front.round(1 + random % 4, random / 4 % 2 == 0)) << "round " << n << " was lost";
    if (random / 8 % 8 == 0) {
      back_end.box.push(++handle);
      const auto give_up = std::chrono::steady_clock::now() + time_out;
      while (back_end.acknowledged.load(std::memory_order_acquire) != handle) {
        ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "handle " << handle << " was lost";
        std::this_thread::yield();
      }
    }
  }
  runner.stop();

  // The first kick needs no arming. Each arming draws one kick at most, whether a sleep followed or
  // not.
  const wait::waiter_counters& w = runner.counters();
  EXPECT_LE(to_back.kicks(), 1 + w.sleeps.get() + w.found_armed.get());
  RecordProperty("rounds", static_cast<int>(n));
  RecordProperty("kicks", static_cast<int>(to_back.kicks()));
  RecordProperty("sleeps", static_cast<int>(w.sleeps.get()));
  RecordProperty("polls_paid", static_cast<int>(w.polls_paid.get()));
  RecordProperty("spurious", static_cast<int>(back_end.source.counters().spurious.get()));
}

INSTANTIATE_TEST_SUITE_P(Policies, WaitStress,
                         testing::Values("event", "busy", "adaptive",
                                         // windows that open and run out all the time
                                         "adaptive:start=1us,max=4us,idle=50us"),
                         [](const auto& of) { return "Policy" + std::to_string(of.index); });

// A frontend with its backend's queue.
struct pair {
  alignas(64) std::array<std::byte, 4096> memory{};
  eventfd_port to_back;
  eventfd_port to_front;
  frontend front{memory, to_front, to_back};
  queue back_end{memory, to_back, to_front};
};

TEST(WaitStressLoop, AnEpollLoopServesTwoQueuesWithDifferentPolicies) {
  pair one;
  pair two;
  std::atomic<bool> running{true};
  const pvring::unique_fd quit(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  std::thread loop([&] {
    wait::waiter first(one.back_end, wait::adaptive{});
    wait::waiter second(two.back_end, wait::event{});
    const pvring::unique_fd epoll(::epoll_create1(EPOLL_CLOEXEC));
    const auto add = [&epoll](int fd) {
      epoll_event readable{.events = EPOLLIN, .data = {.fd = fd}};
      ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &readable), 0);
    };
    add(quit.get());
    for (const int fd : first.fds()) {
      add(fd);
    }
    for (const int fd : second.fds()) {
      add(fd);
    }
    while (running.load()) {
      const bool first_sleeps = first.turn();
      const bool second_sleeps = second.turn();
      int timeout = 0;
      if (first_sleeps && second_sleeps) {
        timeout = first.timeout_ms();
        const int other = second.timeout_ms();
        timeout = timeout < 0 || (other >= 0 && other < timeout) ? other : timeout;
      }
      epoll_event event{};
      ::epoll_wait(epoll.get(), &event, 1, timeout);
    }
  });
  std::uint64_t random = 88172645463325252U;
  const auto started = std::chrono::steady_clock::now();
  for (std::uint64_t n = 0; n < least_rounds || std::chrono::steady_clock::now() - started < enough;
       ++n) {
    next_random(random);
    const bool lost =
        !(random % 2 == 0 ? one : two).front.round(1 + random / 2 % 4, random / 8 % 2 == 0);
    EXPECT_FALSE(lost) << "round " << n;
    if (lost) {
      break;
    }
  }
  running.store(false);
  const std::uint64_t wake = 1;
  ASSERT_EQ(::write(quit.get(), &wake, sizeof wake), static_cast<ssize_t>(sizeof wake));
  loop.join();
}

// A frontend that kicks without end, with a request now and then: it is served, and its kicks cost
// next to nothing.
TEST(WaitStressStorm, KicksWithoutRequestsCauseFewPasses) {
  pair storming;
  wait::runner runner(storming.back_end, {.wait = wait::event{}});
  const auto started = std::chrono::steady_clock::now();
  std::uint64_t requests = 0;
  std::uint64_t kicks = 0;
  while (requests < 10 || std::chrono::steady_clock::now() - started < enough / 2) {
    ASSERT_TRUE(storming.front.round(1, true));
    ++requests;
    for (int i = 0; i < 10'000; ++i) {
      storming.to_back.kick();
    }
    kicks += 10'000;
  }
  const auto elapsed = std::chrono::steady_clock::now() - started;
  runner.stop();
  // Between two requests: the request's own passes, an event for free, then 50us, 100us ... 10ms
  // apart. Each event costs a pass, and so does each end of a delay.
  const std::uint64_t most =
      requests * 30 + static_cast<std::uint64_t>(elapsed / std::chrono::milliseconds(5));
  EXPECT_LE(runner.counters().passes.get(), most) << kicks << " kicks, " << requests << " requests";
  EXPECT_GT(storming.back_end.source.counters().delayed.get(), 0U);
}

}  // namespace
