// SPDX-License-Identifier: MIT
// The real ring_source and the real waiter, run against every schedule of a frontend: a ring and an
// event handle that let the frontend take any number of steps before each shared access. It is what
// binds `wait_model_test.cpp` to the code.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pvring/base/error.hpp"
#include "pvring/platform/event_channel.hpp"
#include "pvring/wait/loop.hpp"
#include "pvring/wait/policy.hpp"
#include "pvring/wait/ring_source.hpp"
#include "pvring/wait/served.hpp"

namespace {

using namespace std::chrono_literals;
using pvring::wait::time_point;

// Sanitizers make the search ten times slower, and there is one thread only: a smaller one does for
// them.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool instrumented = true;
#else
constexpr bool instrumented = false;
#endif

// One line of choices, and then the next one, until all have been taken: a depth-first search that
// runs the code anew for each.
class choices {
 public:
  std::size_t choose(std::size_t of) {
    if (at_ == taken_.size()) {
      taken_.push_back({0, of});
    }
    return taken_[at_++].now;
  }

  // False when there is none left.
  bool next() {
    at_ = 0;
    while (!taken_.empty() && taken_.back().now + 1 == taken_.back().of) {
      taken_.pop_back();
    }
    if (taken_.empty()) {
      return false;
    }
    ++taken_.back().now;
    return true;
  }

 private:
  struct choice {
    std::size_t now;
    std::size_t of;
  };
  std::vector<choice> taken_;
  std::size_t at_ = 0;
};

enum class access : std::uint8_t { take, clear, set_event, look, unmask };

std::ostream& operator<<(std::ostream& out, access a) {
  constexpr std::string_view names[] = {"take", "clear", "set_event", "look", "unmask"};
  return out << names[static_cast<std::size_t>(a)];
}

// What is shared, the frontend that changes it, and what was seen to go wrong. Indices have 8 bits
// and start shortly before they wrap.
struct world {
  static constexpr std::uint8_t start = 0xff;

  choices* schedule = nullptr;
  int requests = 2;
  int strays = 0;                            // kicks without a request
  int other_wakeups = instrumented ? 0 : 1;  // of a sleeper, by its other sources
  bool weak_event_store = false;             // the event index goes through a store buffer
  bool busy_wait = false;

  std::uint8_t producer = start;
  std::uint8_t event = 0;  // one further
  std::optional<std::uint8_t> buffered_event;
  bool masked = true;
  bool pending = false;
  bool readable = false;
  int frontend_at = 0;
  int kicks_decided = 0;
  bool found_nothing = false;  // by the last look since the event index was set
  std::string wrong;
  std::vector<access> trace;

  bool frontend_has_steps() const {
    return requests != 0 || frontend_at != 0 || strays != 0 || buffered_event;
  }

  // Before each shared access: the frontend goes on by any number of steps.
  void before(access what) {
    while (frontend_has_steps() && schedule->choose(2) == 1) {
      frontend_step();
    }
    trace.push_back(what);
  }

  void frontend_step() {
    std::array<std::function<void()>, 3> possible;
    std::size_t count = 0;
    if (frontend_at != 0 || requests != 0) {
      possible[count++] = [this] { request_step(); };
    }
    if (strays != 0) {
      possible[count++] = [this] {
        --strays;
        kick();
      };
    }
    if (buffered_event) {
      possible[count++] = [this] { event = *std::exchange(buffered_event, std::nullopt); };
    }
    possible[count == 1 ? 0 : schedule->choose(count)]();
  }

  void request_step() {
    switch (frontend_at) {
      case 0:
        --requests;
        ++producer;
        frontend_at = 1;
        break;
      case 1:
        frontend_at = event == producer ? 2 : 0;
        kicks_decided += event == producer ? 1 : 0;
        break;
      default:
        kick();
        frontend_at = 0;
    }
  }

  void kick() {
    if (masked) {
      pending = true;
    } else {
      masked = true;
      readable = true;
    }
  }
};

struct ring_double {
  world& w;
  std::uint8_t consumer = world::start;

  std::uint8_t request_consumer() const noexcept { return consumer; }
  std::size_t size() const noexcept { return 8; }
  pvring::protocol_error broken() const noexcept { return pvring::protocol_error::none; }

  void set_event(std::uint8_t distance) noexcept {
    w.before(access::set_event);
    w.found_nothing = false;
    const auto at = static_cast<std::uint8_t>(consumer + distance);
    if (w.weak_event_store) {
      w.buffered_event = at;
    } else {
      w.event = at;
    }
  }
  bool look(std::uint8_t distance) noexcept {
    w.before(access::look);
    const bool there = static_cast<std::uint8_t>(w.producer - consumer) >= distance;
    w.found_nothing = !there;
    return there;
  }
  // As back_ring::arm does it.
  bool arm(std::uint8_t distance) noexcept {
    set_event(distance);
    return look(distance);
  }
  bool has_requests() const noexcept { return w.producer != consumer; }

  std::size_t take_one() noexcept {
    w.before(access::take);
    if (w.producer == consumer) {
      return 0;
    }
    ++consumer;
    return 1;
  }
};

struct events_double {
  world& w;

  int fd() noexcept { return 3; }
  pvring::platform::port bind(pvring::domain_id, pvring::platform::port) { return 1; }
  void unbind(pvring::platform::port) noexcept {}
  void notify(pvring::platform::port) noexcept {}
  std::optional<pvring::platform::port> pending() noexcept {
    w.before(access::clear);
    return std::exchange(w.readable, false) ? std::optional<pvring::platform::port>(1)
                                            : std::nullopt;
  }
  void unmask(pvring::platform::port) noexcept {
    w.before(access::unmask);
    if (!w.found_nothing) {
      w.wrong = "unmasked before a look found nothing";
    }
    w.masked = false;
    if (std::exchange(w.pending, false)) {
      w.kick();
    }
  }
};

// The clock moves on when it is looked at, so that a window runs out, except once, when the
// schedule says so and the polling goes on.
choices* clock_schedule = nullptr;
time_point clock_now;
int clock_stands = 0;
time_point unsteady_clock() noexcept {
  if (clock_schedule != nullptr && clock_stands != 0 && clock_schedule->choose(2) == 1) {
    --clock_stands;
  } else {
    clock_now += 60us;
  }
  return clock_now;
}

using real_source = pvring::wait::ring_source<events_double, ring_double>;

// arm() as a sequence of steps, so that steps can be left out or swapped.
struct stepped_source {
  events_double& events;
  ring_double& ring;
  std::vector<access> steps;
  bool masked = true;

  int fd() noexcept { return events.fd(); }
  void disarm() noexcept {}
  bool arm() noexcept {
    bool work = false;
    for (const access step : steps) {
      switch (step) {
        case access::clear:
          masked |= events.pending().has_value();
          break;
        case access::set_event:
          ring.set_event(1);
          break;
        case access::look:
          work = ring.look(1);
          break;
        default:
          if (!work && std::exchange(masked, false)) {
            events.unmask(1);
          }
      }
    }
    return work;
  }
};

template <class Source>
struct queue_double {
  ring_double& ring;
  Source& source;

  std::size_t service(std::size_t) noexcept { return ring.take_one(); }
  std::optional<time_point> deadline() noexcept { return std::nullopt; }
  template <class F>
  void for_each_source(F&& f) noexcept {
    f(source);
  }
};

// Serves until nothing can happen any more. Returns what went wrong.
template <class Source>
std::string serve(world& w, ring_double& ring, Source& source, const pvring::wait::policy& policy) {
  clock_now = time_point{} + 1h;
  clock_stands = instrumented ? 0 : 1;
  clock_schedule = policy.kind() == pvring::wait::policy_kind::adaptive ? w.schedule : nullptr;
  queue_double<Source> queue{ring, source};
  pvring::wait::waiter waiter(queue, policy, {.now = &unsteady_clock});
  int sleeps = 0;
  bool served = false;
  for (int turns = 0; !served; ++turns) {
    if (turns == 100) {
      return "never comes to rest";
    }
    if (!waiter.turn()) {
      // A busy poller never sleeps: it is done when nothing is left.
      if (w.busy_wait && w.frontend_has_steps()) {
        w.frontend_step();
      } else {
        served = w.busy_wait && w.producer == ring.consumer;
      }
      continue;
    }
    ++sleeps;
    while (!w.readable) {
      if (w.other_wakeups != 0 && w.schedule->choose(2) == 1) {
        --w.other_wakeups;
        break;
      }
      const bool timer = waiter.deadline().has_value();
      if (w.frontend_has_steps() && (!timer || w.schedule->choose(2) == 0)) {
        w.frontend_step();
      } else if (timer) {
        clock_now = std::max(clock_now, *waiter.deadline());
        break;
      } else if (w.producer != ring.consumer) {
        return "sleeps for ever with work";
      } else {
        served = true;
        break;
      }
    }
  }
  if (w.kicks_decided > sleeps + 1) {
    return "drew more kicks than it slept";
  }
  return w.wrong;
}

struct outcome {
  std::string wrong;  // of the first schedule that shows something
  std::size_t schedules = 0;
};

// `make(world, events, ring)` makes the source.
template <class Make>
outcome explore(const world& initial, const pvring::wait::policy& policy, Make&& make) {
  choices schedule;
  outcome result;
  do {
    world w = initial;
    w.schedule = &schedule;
    w.busy_wait = policy.kind() == pvring::wait::policy_kind::busy;
    ring_double ring{w};
    events_double events{w};
    decltype(auto) source = make(events, ring);
    result.wrong = serve(w, ring, source, policy);
    ++result.schedules;
  } while (result.wrong.empty() && schedule.next());
  return result;
}

const auto real = [](events_double& events, ring_double& ring) {
  return real_source({.first_delay = 50us, .longest_delay = 100us, .now = &unsteady_clock}, events,
                     1, ring);
};

auto stepped(std::vector<access> steps) {
  return [steps = std::move(steps)](events_double& events, ring_double& ring) {
    return stepped_source{events, ring, steps};
  };
}

const std::vector<access> right_order = {access::clear, access::set_event, access::look,
                                         access::unmask};

TEST(RingSourceSchedules, ArmTakesTheStepsOfTheModelInItsOrder) {
  choices schedule;
  world w;
  w.requests = 0;
  w.schedule = &schedule;
  ring_double ring{w};
  events_double events{w};
  real_source source(events, 1, ring);
  EXPECT_FALSE(source.arm());
  EXPECT_EQ(w.trace, right_order);
}

TEST(RingSourceSchedules, EventLosesNoWakeUp) {
  const outcome o = explore(world{}, pvring::wait::event{}, real);
  EXPECT_EQ(o.wrong, "");
  EXPECT_GT(o.schedules, 1000U);
  RecordProperty("schedules", static_cast<int>(o.schedules));
}

TEST(RingSourceSchedules, EventLosesNoWakeUpWithStrayKicks) {
  world w;
  w.requests = 1;
  w.strays = 2;  // the second in a row is delayed
  const outcome o = explore(w, pvring::wait::event{}, real);
  EXPECT_EQ(o.wrong, "");
  EXPECT_GT(o.schedules, 1000U);
  RecordProperty("schedules", static_cast<int>(o.schedules));
}

TEST(RingSourceSchedules, AdaptiveLosesNoWakeUp) {
  const outcome o =
      explore(world{}, pvring::wait::adaptive{.start = 50us, .max = 100us, .idle = 1ms}, real);
  EXPECT_EQ(o.wrong, "");
  EXPECT_GT(o.schedules, 1000U);
  RecordProperty("schedules", static_cast<int>(o.schedules));
}

TEST(RingSourceSchedules, BusyFindsEverythingForOneKick) {
  world w;
  w.requests = 3;
  const outcome o = explore(w, pvring::wait::busy{}, real);
  EXPECT_EQ(o.wrong, "");
  EXPECT_GT(o.schedules, 20U);
}

TEST(RingSourceSchedules, AnEventIndexStoreThatIsNotSeqCstIsCaught) {
  world w;
  w.weak_event_store = true;
  EXPECT_EQ(explore(w, pvring::wait::event{}, real).wrong, "sleeps for ever with work");
}

// Every order of the four steps: clear and set_event may be swapped; nothing else may.
TEST(RingSourceSchedules, EveryOtherOrderIsCaught) {
  std::vector<access> order = right_order;
  std::sort(order.begin(), order.end());
  std::size_t right = 0;
  world w;
  w.other_wakeups = 1;  // an event that is cleared too late is one that woke nobody
  do {
    const auto place = [&order](access a) { return std::find(order.begin(), order.end(), a); };
    const bool allowed = place(access::clear) < place(access::look) &&
                         place(access::set_event) < place(access::look) &&
                         place(access::look) < place(access::unmask);
    right += allowed ? 1 : 0;
    EXPECT_EQ(explore(w, pvring::wait::event{}, stepped(order)).wrong.empty(), allowed)
        << testing::PrintToString(order);
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(right, 2U);
}

TEST(RingSourceSchedules, EveryMissingStepIsCaught) {
  for (const access missing : right_order) {
    std::vector<access> steps = right_order;
    std::erase(steps, missing);
    EXPECT_NE(explore(world{}, pvring::wait::event{}, stepped(steps)).wrong, "") << missing;
  }
}

}  // namespace
