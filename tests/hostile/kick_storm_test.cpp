// SPDX-License-Identifier: MIT
// Case 85: a frontend that kicks without end. Each kick without work costs its own device less than
// the one before, a request in the storm is served, and others on the same thread are not held up.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "support/two_devices.hpp"

namespace pvring::test {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;
using protocol::xenbus_state;
using testing::scripted_frontend;

using KickStorm = two_devices_of<memory_config>;

// How many events without work a port can deliver in a time: the delay after each doubles from 50
// us to 10 ms, and begins anew with each request.
std::uint64_t most_spurious(std::uint64_t requests, clock::duration time) {
  return (requests + 1) * 10 + static_cast<std::uint64_t>(time / 10ms);
}

protocol::blkif::request unknown_request() {
  protocol::blkif::request unknown{};
  unknown.operation = 99;
  return unknown;
}

TEST_F(KickStorm, is_slowed_down_and_hides_no_request) {
  serve();
  scripted_frontend front(good_.host(), hostile_device);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::init_wait));
  front.write_good_nodes();
  front.go(xenbus_state::initialised);
  ASSERT_TRUE(front.wait_for_backend(xenbus_state::connected));
  std::uint32_t sent = 0;
  std::uint64_t kicks = 0;
  const auto start = clock::now();
  while (clock::now() < start + 500ms) {
    for (int i = 0; i < 1000; ++i) {
      front.kick();
      ++kicks;
    }
    front.put(unknown_request());
    ASSERT_TRUE(front.wait_for_responses(++sent));
  }
  // And for a while there is nothing but kicks.
  const auto end = clock::now() + 300ms;
  while (clock::now() < end) {
    front.kick();
    ++kicks;
  }
  const auto statistics = disk_->statistics();
  const std::uint64_t most = most_spurious(sent, clock::now() - start);
  ASSERT_EQ(statistics.size(), 1U);
  const blk::queue_statistics& queue = statistics[0];
  EXPECT_EQ(queue.requests, sent);
  EXPECT_LE(queue.spurious_events, most) << kicks << " kicks";
  EXPECT_LE(queue.events, queue.spurious_events + 2U * sent + 2);
  EXPECT_LE(queue.unmasks, queue.events + 1) << "an event is taken back into service once";
  EXPECT_LE(queue.passes, 2U * sent) << "of passes that did something";
  EXPECT_LE(queue.sleeps, 2 * queue.events + sent + 2) << "a wake-up for an event, one for a delay";
  EXPECT_GT(kicks, 4 * most) << "too few kicks to be a storm";
  good_device_works(3);
}

constexpr domain_id quiet_domain = 10;
const xenbus::device_identity quiet_device{
    .frontend_domain = quiet_domain, .type = "vbd", .device = blk::xvd('c')};

// Two devices whose queues the test's own thread serves, as a loop of the user's would.
class KickStormOnOneThread : public KickStorm {
 protected:
  struct device {
    device(platform::emulated& dom0, const platform::emulated_host& host, aio::memory_image& image,
           const xenbus::device_identity& who)
        : disk(dom0, {.domain = who.frontend_domain, .device = who.device}, image,
               {.threads = blk::threads::caller}),
          front(host, who) {
      front.write_good_nodes();
      front.go(xenbus_state::initialised);
      const auto end = clock::now() + 10s;
      while (!disk.connected() && clock::now() < end) {
        disk.process();
      }
      EXPECT_TRUE(disk.connected());
    }

    blk::backend<memory_config>& operator*() { return disk; }
    auto& queue() { return *disk.queues().front(); }

    blk::backend<memory_config> disk;
    scripted_frontend front;
    bool again = true;  // its last turn said so
    std::uint64_t turns = 0;
  };

  KickStormOnOneThread() : quiet_guest_(good_.host().create_domain(quiet_domain)) {
    xenbus::create_device(toolstack_, xenbus::describe_vbd(quiet_device, {}));
    stormy_.emplace(dom0_, good_.host(), image_, hostile_device);
    quiet_.emplace(dom0_, good_.host(), quiet_image_, quiet_device);
  }

  // One round of the loop: sleeps at most until a deadline, then a turn for each queue that is due.
  void round(bool may_sleep) {
    std::vector<pollfd> polled;
    int timeout = may_sleep ? 1000 : 0;
    std::vector<std::size_t> first;
    for (device* one : {&*stormy_, &*quiet_}) {
      first.push_back(polled.size());
      for (const int fd : one->queue().fds()) {
        polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
      }
      const int own = one->again ? 0 : one->queue().timeout_ms();
      timeout = own >= 0 ? std::min(timeout, own) : timeout;
    }
    first.push_back(polled.size());
    (void)::poll(polled.data(), polled.size(), timeout);
    std::size_t i = 0;
    for (device* one : {&*stormy_, &*quiet_}) {
      const bool fired = std::any_of(polled.begin() + static_cast<std::ptrdiff_t>(first[i]),
                                     polled.begin() + static_cast<std::ptrdiff_t>(first[i + 1]),
                                     [](const pollfd& p) { return p.revents != 0; });
      ++i;
      if (fired || one->again || one->queue().timeout_ms() == 0) {
        one->again = !one->queue().turn();
        ++one->turns;
      }
    }
  }

  aio::memory_image quiet_image_{1U << 20U};
  platform::emulated_guest quiet_guest_;
  std::optional<device> stormy_;
  std::optional<device> quiet_;
};

TEST_F(KickStormOnOneThread, holds_up_no_other_ring_by_more_than_a_pass) {
  const auto start = clock::now();
  std::uint64_t kicks = 0;
  for (std::uint32_t i = 1; i <= 2000; ++i) {
    for (int n = 0; n < 50; ++n) {
      stormy_->front.kick();
      ++kicks;
    }
    const std::uint64_t before = stormy_->turns;
    quiet_->front.put(unknown_request());
    unsigned rounds = 0;
    while (quiet_->front.response_producer() != i && rounds < 10) {
      round(false);
      ++rounds;
    }
    ASSERT_LE(rounds, 1U) << "request " << i;
    ASSERT_LE(stormy_->turns - before, 1U) << "request " << i;
  }
  const auto storm = stormy_->queue().statistics();
  const std::uint64_t most = most_spurious(0, clock::now() - start);
  EXPECT_LE(storm.spurious_events, most) << kicks << " kicks";
  EXPECT_LE(storm.unmasks, storm.events + 1);
  EXPECT_LE(stormy_->turns, 2 * storm.events + 3) << "a turn for an event, one for a delay";
  EXPECT_EQ(storm.passes, 0U);
  EXPECT_EQ(quiet_->queue().statistics().spurious_events, 0U);
  EXPECT_EQ(quiet_->queue().statistics().requests, 2000U);
}

TEST_F(KickStormOnOneThread, hides_no_request_of_its_own_beyond_one_delay) {
  for (std::uint32_t i = 1; i <= 50; ++i) {
    for (int n = 0; n < 1000; ++n) {
      stormy_->front.kick();
      if (n % 10 == 0) {
        round(false);
      }
    }
    stormy_->front.put(unknown_request());
    unsigned rounds = 0;
    while (stormy_->front.response_producer() != i && rounds < 10) {
      round(true);  // while the port is masked only the end of the delay wakes
      ++rounds;
    }
    ASSERT_LE(rounds, 2U) << "request " << i;
  }
}

}  // namespace
}  // namespace pvring::test
