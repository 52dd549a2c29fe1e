// SPDX-License-Identifier: MIT
// The runner's thread: it starts where it should, serves what it is woken for, survives signals,
// and stops from anywhere, any number of times.

#include "pvring/wait/runner.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "pvring/base/unique_fd.hpp"

namespace {

using namespace std::chrono_literals;
namespace wait = pvring::wait;

// Something to serve whose only source is an eventfd: each post is one piece of work.
struct posted {
  pvring::unique_fd bell{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::atomic<std::size_t> waiting{0};
  std::atomic<std::size_t> served{0};
  std::atomic<std::size_t> passes{0};
  std::function<void()> in_pass;
  std::atomic<std::chrono::steady_clock::rep> timer{0};

  void post() {
    waiting.fetch_add(1);
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(bell.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }

  int fd() const noexcept { return bell.get(); }
  bool arm() noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto cleared = ::read(bell.get(), &count, sizeof count);
    return waiting.load() != 0;
  }
  void disarm() noexcept {}

  std::size_t service(std::size_t) noexcept {
    passes.fetch_add(1);
    passes.notify_all();
    if (in_pass) {
      in_pass();
    }
    if (const auto at = timer.load();
        at != 0 && std::chrono::steady_clock::now().time_since_epoch().count() >= at) {
      timer.store(0);
      timer.notify_all();
    }
    const std::size_t work = waiting.exchange(0);
    served.fetch_add(work);
    served.notify_all();
    return work;
  }
  std::optional<wait::time_point> deadline() noexcept {
    const auto at = timer.load();
    return at == 0 ? std::nullopt
                   : std::optional<wait::time_point>(
                         wait::time_point(std::chrono::steady_clock::duration(at)));
  }
  template <class F>
  void for_each_source(F&& f) noexcept {
    f(*this);
  }

  void wait_until_served(std::size_t count) {
    for (std::size_t n = served.load(); n < count; n = served.load()) {
      served.wait(n);
    }
  }
  void wait_for_a_pass(std::size_t after) {
    while (passes.load() <= after) {
      passes.wait(after);
    }
  }
};

class Runner : public testing::TestWithParam<const char*> {
 protected:
  wait::runner_options options() const { return {.wait = wait::policy::parse(GetParam())}; }
};

INSTANTIATE_TEST_SUITE_P(Policies, Runner,
                         testing::Values("event", "busy", "adaptive",
                                         "adaptive:start=1us,max=1s,idle=1s"),
                         [](const auto& of) { return "Policy" + std::to_string(of.index); });

TEST_P(Runner, ServesWhatIsPosted) {
  posted queue;
  queue.post();  // before it starts
  wait::runner runner(queue, options());
  for (std::size_t i = 1; i < 200; ++i) {
    queue.wait_until_served(i);
    queue.post();
  }
  queue.wait_until_served(200);
  runner.stop();
  EXPECT_EQ(queue.served.load(), 200U);
  EXPECT_GE(runner.counters().passes.get(), 200U);
}

TEST_P(Runner, StopsFromACallback) {
  posted queue;
  wait::runner<posted>* self = nullptr;
  std::atomic<bool> ready{false};
  queue.in_pass = [&] {
    ready.wait(false);
    EXPECT_TRUE(self->on_own_thread());
    self->stop();
    self->stop();
  };
  wait::runner runner(queue, options());
  self = &runner;
  ready.store(true);
  ready.notify_all();
  queue.wait_for_a_pass(0);
  runner.stop();
  EXPECT_TRUE(runner.stopped());
  EXPECT_FALSE(runner.on_own_thread());
  EXPECT_EQ(queue.passes.load(), 1U);
}

TEST_P(Runner, StopsFromManyThreadsWhileEventsArrive) {
  for (int round = 0; round < 20; ++round) {
    posted queue;
    wait::runner runner(queue, options());
    std::vector<std::thread> others;
    others.emplace_back([&] {
      while (!runner.stopped()) {
        queue.post();
      }
    });
    for (int i = 0; i < 3; ++i) {
      others.emplace_back([&] { runner.stop(); });
    }
    for (std::thread& t : others) {
      t.join();
    }
    const std::size_t passes = queue.passes.load();
    runner.stop();
    EXPECT_EQ(queue.passes.load(), passes);
  }
}

TEST_P(Runner, RunsAPassForAKick) {
  posted queue;
  wait::runner runner(queue, options());
  for (int i = 0; i < 20; ++i) {
    const std::size_t before = queue.passes.load();
    runner.kick();
    queue.wait_for_a_pass(before);
  }
}

TEST_P(Runner, RunsAPassAtADeadline) {
  posted queue;
  queue.timer.store((std::chrono::steady_clock::now() + 2ms).time_since_epoch().count());
  const auto at = queue.timer.load();
  wait::runner runner(queue, options());
  queue.timer.wait(at);
  EXPECT_EQ(queue.timer.load(), 0);
}

[[maybe_unused]] std::atomic<int> signals{0};

// Not under ThreadSanitizer: it holds signals back, and loses one now and then, whatever is tried.
#ifndef __SANITIZE_THREAD__
TEST_P(Runner, GoesOnAfterSignals) {
  // The thread blocks signals. This one is let through, as a tracer's stops are.
  struct sigaction count {};
  count.sa_handler = [](int) { signals.fetch_add(1); };
  ::sigaction(SIGUSR1, &count, nullptr);
  posted queue;
  std::atomic<pthread_t> thread{};
  std::atomic<bool> ready{false};
  queue.in_pass = [&] {
    if (!ready.load()) {
      sigset_t usr1;
      ::sigemptyset(&usr1);
      ::sigaddset(&usr1, SIGUSR1);
      ::pthread_sigmask(SIG_UNBLOCK, &usr1, nullptr);
      thread.store(::pthread_self());
      ready.store(true);
      ready.notify_all();
    }
  };
  wait::runner runner(queue, options());
  ready.wait(false);
  for (std::size_t i = 1; i <= 100; ++i) {
    const int before = signals.load();
    ASSERT_EQ(::pthread_kill(thread.load(), SIGUSR1), 0);
    while (signals.load() == before) {
      std::this_thread::yield();
    }
    queue.post();
    queue.wait_until_served(i);
  }
  runner.stop();
  EXPECT_EQ(queue.served.load(), 100U);
}
#endif

TEST(RunnerThread, SleepsWhenThereIsNothing) {
  posted queue;
  wait::runner runner(queue, {.wait = wait::event{}});
  queue.post();
  queue.wait_until_served(1);
  while (runner.counters().sleeps.get() == 0) {
    std::this_thread::yield();
  }
  const std::uint64_t wakeups = runner.wakeups().get();
  runner.kick();
  while (runner.wakeups().get() == wakeups) {
    std::this_thread::yield();
  }
}

TEST(RunnerThread, HasItsNameAndTakesNoSignals) {
  posted queue;
  std::atomic<bool> asked{false};
  std::array<char, 16> name{};
  sigset_t blocked;
  std::atomic<bool> named{false};
  queue.in_pass = [&] {
    if (named.load() && !asked.load()) {
      ::pthread_getname_np(::pthread_self(), name.data(), name.size());
      ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
      asked.store(true);
      asked.notify_all();
    }
  };
  wait::runner runner(queue, {.name = "a name of more than fifteen characters"});
  named.store(true);
  runner.kick();
  asked.wait(false);
  runner.stop();
  EXPECT_STREQ(name.data(), "a name of more ");
  EXPECT_EQ(::sigismember(&blocked, SIGTERM), 1);
}

TEST(RunnerThread, RunsOnTheCpuThatItIsPinnedTo) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  unsigned cpu = 0;
  while (!CPU_ISSET(cpu, &allowed)) {
    ++cpu;
  }
  posted queue;
  std::atomic<int> cpus{0};
  std::atomic<unsigned> on{~0U};
  queue.in_pass = [&] {
    cpu_set_t mine;
    ::sched_getaffinity(0, sizeof mine, &mine);
    cpus.store(CPU_COUNT(&mine));
    on.store(static_cast<unsigned>(::sched_getcpu()));
  };
  wait::runner runner(queue, {.cpu = cpu});
  queue.wait_for_a_pass(0);
  runner.stop();
  EXPECT_EQ(cpus.load(), 1);
  EXPECT_EQ(on.load(), cpu);
}

TEST(RunnerThread, RefusesACpuThatIsNotThereAndNamesIt) {
  posted queue;
  for (const unsigned cpu : {1000U, 1000000U}) {
    try {
      wait::runner runner(queue, {.name = "disk-0", .cpu = cpu});
      ADD_FAILURE() << "accepted";
    } catch (const std::system_error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("disk-0"), std::string::npos) << what;
      EXPECT_NE(what.find("CPU " + std::to_string(cpu)), std::string::npos) << what;
    }
  }
  EXPECT_EQ(queue.passes.load(), 0U);
}

}  // namespace
