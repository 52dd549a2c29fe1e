// SPDX-License-Identifier: MIT
#include <atomic>
#include <set>
#include <thread>

#include "emulated_fixture.hpp"

namespace pvring::platform::test {
namespace {

class EmulatedEvents : public EmulatedMachine {
 public:
  // A bound and unmasked pair.
  struct channel {
    port front;
    port back;
  };
  channel connect() {
    const port front = frontend.alloc_unbound(0);
    const port back = backend.bind(guest_id, front);
    frontend.unmask(front);
    backend.unmask(back);
    return {front, back};
  }

  emulated_events frontend = guest.open_events();
  emulated_events backend = dom0.open_events();
};

TEST_F(EmulatedEvents, AKickMakesTheHandleReadable) {
  const channel c = connect();
  EXPECT_FALSE(is_readable(backend.fd()));
  frontend.notify(c.front);
  EXPECT_TRUE(is_readable(backend.fd()));
  EXPECT_EQ(backend.pending(), c.back);
  EXPECT_FALSE(is_readable(backend.fd()));
  EXPECT_EQ(backend.pending(), std::nullopt);
  backend.unmask(c.back);
  EXPECT_FALSE(is_readable(backend.fd()));
  backend.notify(c.back);
  EXPECT_TRUE(is_readable(frontend.fd()));
  EXPECT_EQ(frontend.pending(), c.front);
}

TEST_F(EmulatedEvents, ABoundPortIsMaskedFromTheStart) {
  const port front = frontend.alloc_unbound(0);
  const port back = backend.bind(guest_id, front);
  frontend.notify(front);
  EXPECT_FALSE(is_readable(backend.fd()));
  EXPECT_EQ(backend.pending(), std::nullopt);
  backend.unmask(back);
  EXPECT_TRUE(is_readable(backend.fd()));
  EXPECT_EQ(backend.pending(), back);
}

TEST_F(EmulatedEvents, APortThatFiredStaysMaskedAndKeepsOneKick) {
  // Case 89: the mark is cleared before the work, so a kick during the work is kept.
  const channel c = connect();
  frontend.notify(c.front);
  EXPECT_EQ(backend.pending(), c.back);
  frontend.notify(c.front);
  frontend.notify(c.front);
  EXPECT_FALSE(is_readable(backend.fd()));
  EXPECT_EQ(backend.pending(), std::nullopt);
  backend.unmask(c.back);
  EXPECT_TRUE(is_readable(backend.fd()));
  EXPECT_EQ(backend.pending(), c.back);
  backend.unmask(c.back);
  EXPECT_EQ(backend.pending(), std::nullopt);
  EXPECT_EQ(backend.counters().refires.get(), 1U);
  EXPECT_EQ(backend.counters().kicks_received.get(), 2U);
}

TEST_F(EmulatedEvents, KicksOfAMaskedPortCostNoSystemCall) {
  const channel c = connect();
  for (int i = 0; i < 1000; ++i) {
    frontend.notify(c.front);
  }
  EXPECT_EQ(frontend.counters().system_calls.get(), 1U);
  EXPECT_EQ(frontend.counters().notifies.get(), 1000U);
  EXPECT_EQ(backend.pending(), c.back);
  EXPECT_EQ(backend.counters().system_calls.get(), 1U);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(backend.pending(), std::nullopt);
  }
  EXPECT_EQ(backend.counters().system_calls.get(), 1U);
}

TEST_F(EmulatedEvents, GuestsAndBackendsAreCountedApart) {
  const channel c = connect();
  frontend.notify(c.front);
  frontend.notify(c.front);
  backend.notify(c.back);
  EXPECT_EQ(machine.guest_notifies(), 2U);
  EXPECT_EQ(machine.backend_notifies(), 1U);
  frontend = guest.open_events();
  EXPECT_EQ(machine.guest_notifies(), 2U);
}

TEST_F(EmulatedEvents, ManyPortsFireBehindOneDescriptorAndNoneTwice) {
  // Case 87: as many ports as the host has, all fired before the first look.
  std::set<port> expected;
  std::vector<channel> channels;
  channels.reserve(2000);
  for (int i = 0; i < 2000; ++i) {
    channels.push_back(connect());
    expected.insert(channels.back().back);
  }
  for (const channel& c : channels) {
    frontend.notify(c.front);
  }
  while (const auto p = backend.pending()) {
    EXPECT_EQ(expected.erase(*p), 1U);
  }
  EXPECT_TRUE(expected.empty());
  EXPECT_FALSE(is_readable(backend.fd()));
}

TEST_F(EmulatedEvents, APortThatStormsDoesNotStarveTheOthers) {
  // Case 85: also where the others come before or after it, or in other words of the table.
  std::vector<channel> channels;
  channels.reserve(2000);
  for (int i = 0; i < 200; ++i) {
    channels.push_back(connect());
  }
  const channel storm = channels[70];
  for (const std::size_t victim :
       {std::size_t{0}, std::size_t{69}, std::size_t{71}, std::size_t{199}}) {
    frontend.notify(storm.front);
    frontend.notify(channels[victim].front);
    bool served = false;
    for (int i = 0; i < 300 && !served; ++i) {
      const auto p = backend.pending();
      ASSERT_TRUE(p);
      served = *p == channels[victim].back;
      backend.unmask(*p);
      frontend.notify(storm.front);
    }
    EXPECT_TRUE(served) << victim;
    while (const auto p = backend.pending()) {
      backend.unmask(*p);
    }
  }
}

TEST_F(EmulatedEvents, BindingNamesBothEndsWhenRefused) {
  const port for_other = frontend.alloc_unbound(9);
  const port taken = frontend.alloc_unbound(0);
  (void)backend.bind(guest_id, taken);
  expect_system_error(EACCES,
                      "domain 0 binding to port " + std::to_string(for_other) + " of domain 3",
                      [&] { (void)backend.bind(guest_id, for_other); });
  expect_system_error(EINVAL, "bound to it already", [&] { (void)backend.bind(guest_id, taken); });
  expect_system_error(EINVAL, "no such port", [&] { (void)backend.bind(4, taken); });
  expect_system_error(EINVAL, "no such port", [&] { (void)backend.bind(guest_id, 0); });
  expect_system_error(EINVAL, "no such port", [&] { (void)backend.bind(guest_id, 4000); });
  expect_system_error(EINVAL, "no such port", [&] { (void)backend.bind(guest_id, 0xffff'ffff); });
  emulated driver_domain{machine, 9};
  emulated_events other = driver_domain.open_events();
  EXPECT_NO_THROW((void)other.bind(guest_id, for_other));
}

TEST_F(EmulatedEvents, PortsThatAreNoneOfOursAreIgnored) {
  const channel c = connect();
  backend.notify(0);
  backend.notify(4000);
  backend.notify(0xffff'ffff);
  backend.notify(c.front);
  backend.unmask(c.front);
  backend.unbind(c.front);
  backend.unbind(12345);
  EXPECT_EQ(frontend.pending(), std::nullopt);
  EXPECT_EQ(backend.counters().notifies.get(), 0U);
  EXPECT_TRUE(frontend.is_bound(c.front));
}

TEST_F(EmulatedEvents, APortCanBeBoundAgainAfterItsPeerClosed) {
  const channel c = connect();
  EXPECT_TRUE(frontend.is_bound(c.front));
  backend.unbind(c.back);
  EXPECT_FALSE(frontend.is_bound(c.front));
  frontend.notify(c.front);  // nobody hears it, and it is no error
  const port again = backend.bind(guest_id, c.front);
  EXPECT_TRUE(frontend.is_bound(c.front));
  backend.unmask(again);
  EXPECT_EQ(backend.pending(), again) << "the kick in between is kept";
  backend.unmask(again);
  EXPECT_EQ(backend.pending(), std::nullopt);
}

TEST_F(EmulatedEvents, AKickThatTheOldEndNeverSawReachesTheNewOne) {
  const channel c = connect();
  frontend.notify(c.front);
  backend = dom0.open_events();
  EXPECT_FALSE(is_readable(backend.fd()));
  const port again = backend.bind(guest_id, c.front);
  backend.unmask(again);
  EXPECT_EQ(backend.pending(), again);
}

TEST_F(EmulatedEvents, ClosingTheOfferedEndLeavesTheOtherWithoutPeer) {
  const channel c = connect();
  frontend.unbind(c.front);
  EXPECT_FALSE(backend.is_bound(c.back));
  backend.notify(c.back);
  expect_system_error(EINVAL, "no such port", [&] { (void)backend.bind(guest_id, c.front); });
}

TEST_F(EmulatedEvents, APortClosedAfterItFiredIsNotReported) {
  // Case 87: a stale number is ignored.
  const channel c = connect();
  const channel other = connect();
  frontend.notify(c.front);
  frontend.notify(other.front);
  backend.unbind(c.back);
  EXPECT_EQ(backend.pending(), other.back);
  EXPECT_EQ(backend.pending(), std::nullopt);
  EXPECT_FALSE(is_readable(backend.fd()));
}

TEST_F(EmulatedEvents, RunningOutOfPortsAndHandlesHasARemedy) {
  expect_system_error(ENOSPC, "ports", [&] {
    for (int i = 0; i < 5000; ++i) {
      (void)frontend.alloc_unbound(0);
    }
  });
  std::vector<emulated_events> all;
  expect_system_error(ENOSPC, "create the host with more", [&] {
    for (int i = 0; i < 100; ++i) {
      all.push_back(dom0.open_events());
    }
  });
}

TEST_F(EmulatedEvents, NoKickIsLostBetweenTwoThreads) {
  // Cases 82, 88, 91: each side sleeps until the other has kicked; a lost kick would stop them for
  // ever.
  constexpr int rounds = 20'000;
  const channel c = connect();
  const auto wait_for = [](emulated_events& events, port p) {
    while (true) {
      const auto fired = events.pending();
      if (fired) {
        EXPECT_EQ(*fired, p);
        events.unmask(p);
        return true;
      }
      pollfd descriptor{events.fd(), POLLIN, 0};
      if (::poll(&descriptor, 1, 10'000) != 1) {
        return false;
      }
    }
  };
  bool heard = true;
  std::thread peer([&] {
    for (int i = 0; i < rounds && heard; ++i) {
      heard = wait_for(frontend, c.front);
      frontend.notify(c.front);
    }
  });
  bool answered = true;
  for (int i = 0; i < rounds && answered; ++i) {
    backend.notify(c.back);
    answered = wait_for(backend, c.back);
  }
  peer.join();
  EXPECT_TRUE(heard);
  EXPECT_TRUE(answered);
}

TEST_F(EmulatedEvents, NoKickIsLostWhileMaskingAndUnmasking) {
  // The kicker counts up before each kick; the backend must see the last count without polling it.
  constexpr std::uint32_t kicks = 200'000;
  const channel c = connect();
  std::atomic<std::uint32_t> published{0};
  std::thread kicker([&] {
    for (std::uint32_t i = 1; i <= kicks; ++i) {
      published.store(i, std::memory_order_relaxed);
      frontend.notify(c.front);
    }
  });
  std::uint32_t seen = 0;
  bool lost = false;
  while (seen != kicks && !lost) {
    if (const auto fired = backend.pending()) {
      backend.unmask(*fired);
      seen = published.load(std::memory_order_relaxed);
      continue;
    }
    pollfd descriptor{backend.fd(), POLLIN, 0};
    lost = ::poll(&descriptor, 1, 10'000) != 1;
  }
  kicker.join();
  EXPECT_FALSE(lost) << "at " << seen;
}

TEST_F(EmulatedEvents, SeveralKickersAndPortsLoseNothing) {
  constexpr int kickers = 3;
  constexpr std::uint32_t kicks = 30'000;
  std::vector<emulated_events> handles;
  std::vector<port> fronts;
  std::vector<port> backs;
  for (int i = 0; i < kickers; ++i) {
    handles.push_back(guest.open_events());
    fronts.push_back(handles.back().alloc_unbound(0));
    backs.push_back(backend.bind(guest_id, fronts.back()));
    backend.unmask(backs.back());
  }
  std::array<std::atomic<std::uint32_t>, kickers> published{};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kickers; ++i) {
    threads.emplace_back([&, i] {
      for (std::uint32_t n = 1; n <= kicks; ++n) {
        published[i].store(n, std::memory_order_relaxed);
        handles[i].notify(fronts[i]);
      }
    });
  }
  std::array<std::uint32_t, kickers> seen{};
  bool lost = false;
  while (!lost && seen != std::array<std::uint32_t, kickers>{kicks, kicks, kicks}) {
    if (const auto fired = backend.pending()) {
      const auto which =
          static_cast<std::size_t>(std::find(backs.begin(), backs.end(), *fired) - backs.begin());
      ASSERT_LT(which, backs.size());
      backend.unmask(*fired);
      seen[which] = published[which].load(std::memory_order_relaxed);
      continue;
    }
    pollfd descriptor{backend.fd(), POLLIN, 0};
    lost = ::poll(&descriptor, 1, 10'000) != 1;
  }
  for (std::thread& t : threads) {
    t.join();
  }
  EXPECT_FALSE(lost);
}

}  // namespace
}  // namespace pvring::platform::test
