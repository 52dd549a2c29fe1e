// SPDX-License-Identifier: MIT
// An exhaustive check that no wake-up is lost: every interleaving of a frontend, an engine, a
// mailbox's producer and a sleeper, one shared access at a time. Every step that the sleeper needs
// is then taken out, moved or weakened, and the check must fail. `ring_source_schedules_test.cpp`
// binds the sleeper's steps to the real code.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

// What a sleeper does, one shared access each.
enum class op : std::uint8_t {
  disarm_box,      // store armed = false
  serve_ring,      // take one request, submit it to the engine
  reap,            // take one completion
  serve_box,       // take one handle
  again_if_found,  // the pass found work: another pass
  look_on,         // polling: another pass, or go on to arming
  move_event,      // (mutants only) renew the event index although nobody will sleep
  clear_port,      // take what has fired: the port is masked
  arm_ring,        // store the event index
  look_ring,       // load the producer index
  unmask,          // unless the look found work, or a delay runs
  clear_engine,    // read the engine's eventfd
  look_engine,     // load what is complete
  clear_box,       // read the mailbox's eventfd
  announce_box,    // store armed = true
  look_box,        // load what is in the box
  again_if_work,   // a look found work: another pass
  sleep,           // until a descriptor is readable, or the delay is over
};

enum class policy { event, adaptive, busy };

enum class violation { none, lost_wakeup, second_kick, early_unmask, never_quiet };

std::ostream& operator<<(std::ostream& out, violation v) {
  constexpr std::string_view names[] = {"none", "lost wake-up", "second kick", "early unmask",
                                        "never quiet"};
  return out << names[static_cast<std::size_t>(v)];
}

// Sanitizers make the search ten times slower and have little to see in it: one thread, no memory
// but containers'.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool instrumented = true;
#else
constexpr bool instrumented = false;
#endif

// The machine as it should be, and the switches by which mutants differ.
struct machine {
  policy waits = policy::event;
  std::vector<op> steps = {
      op::disarm_box,    op::serve_ring,  op::reap,      op::serve_box,    op::again_if_found,
      op::look_on,       op::clear_port,  op::arm_ring,  op::look_ring,    op::unmask,
      op::clear_engine,  op::look_engine, op::clear_box, op::announce_box, op::look_box,
      op::again_if_work, op::sleep};
  bool unmask_despite_work = false;  // the look's result is ignored
  bool delay_has_deadline = true;    // the sleep ends when the delay is over
  bool weak_event_store = false;     // the event index goes through a store buffer
  bool weak_producer_store = false;  // the frontend's producer index does
  bool weak_announce = false;        // the mailbox's flag does
  bool weak_push = false;            // the pushed handle does
  bool frontend_reads_event_first = false;
  bool producer_checks_first = false;  // armed flag before the push

  std::uint8_t requests = instrumented ? 1 : 2;
  std::uint8_t handles = 1;
  std::uint8_t stray_kicks = 1;  // kicks without a request

  void remove(op which) { std::erase(steps, which); }
  void swap(op a, op b) { std::iter_swap(find(a), find(b)); }
  void move_behind(op which, op place) {
    remove(which);
    steps.insert(find(place) + 1, which);
  }
  void insert_before(op which, op place) { steps.insert(find(place), which); }
  std::vector<op>::iterator find(op which) { return std::find(steps.begin(), steps.end(), which); }
};

constexpr std::uint8_t nothing = 0xff;

// One state. Bytes only, so that equality and hash are those of the bytes.
struct state {
  // frontend; its producer index is seen by others once it has left the buffer
  std::uint8_t front_at = 0;  // 0 at rest, then the steps of one request
  std::uint8_t front_sent = 0;
  std::uint8_t front_crossed = 0;
  std::uint8_t front_buffer = nothing;
  std::uint8_t strays = 0;
  // shared ring
  std::uint8_t producer = 0;
  std::uint8_t event = 1;
  // port, as bind leaves it
  std::uint8_t pending = 0;
  std::uint8_t masked = 1;
  std::uint8_t port_fd = 0;
  // engine
  std::uint8_t in_flight = 0;
  std::uint8_t complete = 0;
  std::uint8_t engine_at = 0;
  std::uint8_t engine_fd = 0;
  // mailbox and its producer
  std::uint8_t boxed = 0;
  std::uint8_t armed = 0;
  std::uint8_t box_at = 0;
  std::uint8_t box_sent = 0;
  std::uint8_t box_saw_armed = 0;
  std::uint8_t box_buffer = 0;  // a handle that is not visible yet
  std::uint8_t box_fd = 0;
  // sleeper
  std::uint8_t at = 0;
  std::uint8_t consumer = 0;
  std::uint8_t found = 0;
  std::uint8_t knows_masked = 1;
  std::uint8_t fired = 0;   // taken from the port, not judged
  std::uint8_t judged = 0;  // consumer at the last judgement
  std::uint8_t looked = 0;  // since arming: 0 not, 1 nothing there, 2 work
  std::uint8_t work = 0;    // some look since the last pass found work
  std::uint8_t delay = 0;
  std::uint8_t event_buffer = nothing;
  std::uint8_t armed_buffer = 0;
  // what the properties need
  std::uint8_t kicks =
      0;  // decided since the sleeper last armed for a sleep; at most 2 is remembered
  std::uint8_t unmasked_early = 0;

  bool operator==(const state&) const = default;
};
static_assert(sizeof(state) == 34);

struct hash_bytes {
  std::size_t operator()(const state& s) const noexcept {
    return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&s), sizeof s});
  }
};

struct edge {
  std::uint32_t to;
  std::uint32_t from;
  auto operator<=>(const edge&) const = default;
};

class explorer {
 public:
  explicit explorer(machine of) : m_(std::move(of)) {}

  // Whether `sought` can happen, after whatever else happens.
  bool finds(violation sought) {
    return explore([sought](violation v) { return v == sought; }) == sought;
  }

  // The first violation met.
  violation first() {
    return explore([](violation v) { return v != violation::none; });
  }

  [[nodiscard]] std::size_t states() const { return states_.size(); }

 private:
  template <class Enough>
  violation explore(Enough&& enough) {
    visit(state{});
    for (std::size_t i = 0; i < states_.size(); ++i) {
      from_ = static_cast<std::uint32_t>(i);
      const state s = states_[i];
      if (const violation v = broken(s); v != violation::none && enough(v)) {
        return v;
      }
      frontend(s);
      stray(s);
      engine(s);
      producer(s);
      buffers(s);
      sleeper(s);
    }
    return always_can_come_to_rest() ? violation::none : violation::never_quiet;
  }

  void visit(const state& to) {
    const auto [found, fresh] = known_.try_emplace(to, static_cast<std::uint32_t>(states_.size()));
    if (fresh) {
      states_.push_back(to);
    }
    edges_.push_back({found->second, from_});
  }

  // Nobody else has a step to finish. More requests may come or may not: nobody may count on them.
  static bool others_at_rest(const state& s) {
    return s.front_at == 0 && s.front_buffer == nothing && s.engine_at == 0 && s.in_flight == 0 &&
           s.box_at == 0 && s.box_buffer == 0 && s.event_buffer == nothing && s.armed_buffer == 0;
  }
  static bool has_work(const state& s) {
    return s.producer != s.consumer || s.complete != 0 || s.boxed != 0;
  }

  bool asleep(const state& s) const { return m_.steps[s.at] == op::sleep && !can_wake(s); }
  bool can_wake(const state& s) const {
    return s.port_fd != 0 || s.engine_fd != 0 || s.box_fd != 0 ||
           (s.delay != 0 && m_.delay_has_deadline);
  }

  violation broken(const state& s) const {
    if (s.kicks > 1) {
      return violation::second_kick;
    }
    if (s.unmasked_early != 0) {
      return violation::early_unmask;
    }
    // In flight counts as "will wake": the completion is a step of the engine's that always comes.
    return asleep(s) && others_at_rest(s) && has_work(s) ? violation::lost_wakeup : violation::none;
  }

  // Whatever has happened, all can become still: everything served, and the sleeper asleep (busy:
  // still looking).
  bool always_can_come_to_rest() const {
    std::vector<edge> back = edges_;
    std::sort(back.begin(), back.end());
    std::vector<char> reaches(states_.size(), 0);
    std::vector<std::uint32_t> open;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const state& s = states_[i];
      if (others_at_rest(s) && !has_work(s) && (m_.waits == policy::busy || asleep(s))) {
        reaches[i] = 1;
        open.push_back(static_cast<std::uint32_t>(i));
      }
    }
    while (!open.empty()) {
      const std::uint32_t to = open.back();
      open.pop_back();
      for (auto e = std::lower_bound(back.begin(), back.end(), edge{to, 0});
           e != back.end() && e->to == to; ++e) {
        if (std::exchange(reaches[e->from], char{1}) == 0) {
          open.push_back(e->from);
        }
      }
    }
    return std::count(reaches.begin(), reaches.end(), 0) == 0;
  }

  static void kick(state& s) {
    if (s.masked != 0) {
      s.pending = 1;
    } else {
      s.masked = 1;  // firing masks
      s.port_fd = 1;
    }
  }

  // Publish, load the event index, notify if it was crossed.
  void frontend(state s) {
    const bool event_first = m_.frontend_reads_event_first;
    const auto publish = [&] {
      ++s.front_sent;
      (m_.weak_producer_store ? s.front_buffer : s.producer) = s.front_sent;
    };
    const auto decide = [&](int next) {
      s.front_crossed = s.event == next ? 1 : 0;
      s.kicks = static_cast<std::uint8_t>(std::min(2, s.kicks + s.front_crossed));
    };
    switch (s.front_at) {
      case 0:
        if (s.front_sent == m_.requests || s.front_buffer != nothing) {
          return;
        }
        event_first ? decide(s.front_sent + 1) : publish();
        s.front_at = 1;
        break;
      case 1:
        event_first ? publish() : decide(s.front_sent);
        s.front_at = s.front_crossed != 0 ? 2 : 0;
        break;
      default:
        kick(s);
        s.front_crossed = 0;
        s.front_at = 0;
    }
    visit(s);
  }

  void stray(state s) {
    if (s.strays != m_.stray_kicks) {
      ++s.strays;
      kick(s);
      visit(s);
    }
  }

  void engine(state s) {
    if (s.engine_at == 0 && s.in_flight != 0) {
      --s.in_flight;
      ++s.complete;
      s.engine_at = 1;
      visit(s);
    } else if (s.engine_at == 1) {
      s.engine_fd = 1;
      s.engine_at = 0;
      visit(s);
    }
  }

  // Push, then take the armed flag away, then write the descriptor if it was set.
  void producer(state s) {
    const bool check_first = m_.producer_checks_first;
    const auto push = [&] {
      ++s.box_sent;
      ++(m_.weak_push ? s.box_buffer : s.boxed);
    };
    const auto check = [&] { s.box_saw_armed = std::exchange(s.armed, std::uint8_t{0}); };
    switch (s.box_at) {
      case 0:
        if (s.box_sent == m_.handles || s.box_buffer != 0) {
          return;
        }
        check_first ? check() : push();
        s.box_at = 1;
        break;
      case 1:
        check_first ? push() : check();
        s.box_at = s.box_saw_armed != 0 ? 2 : 0;
        break;
      default:
        s.box_fd = 1;
        s.box_saw_armed = 0;
        s.box_at = 0;
    }
    visit(s);
  }

  // Weakened stores become visible at any later time.
  void buffers(const state& s) {
    if (s.front_buffer != nothing) {
      state t = s;
      t.producer = std::exchange(t.front_buffer, nothing);
      visit(t);
    }
    if (s.event_buffer != nothing) {
      state t = s;
      t.event = std::exchange(t.event_buffer, nothing);
      visit(t);
    }
    if (s.armed_buffer != 0) {
      state t = s;
      t.armed = 1;
      t.armed_buffer = 0;
      visit(t);
    }
    if (s.box_buffer != 0) {
      state t = s;
      ++t.boxed;
      --t.box_buffer;
      visit(t);
    }
  }

  static void start_pass(state& s) {
    s.at = 0;
    s.found = 0;
    s.work = 0;
    s.looked = 0;
    s.unmasked_early = 0;
  }

  void sleeper(state s) {
    const op what = m_.steps[s.at];
    // A second store to the same word waits for the first to leave the buffer.
    if ((what == op::arm_ring || what == op::move_event) && s.event_buffer != nothing) {
      return;
    }
    if ((what == op::announce_box || what == op::disarm_box) && s.armed_buffer != 0) {
      return;
    }
    ++s.at;
    const auto note_work = [&s](bool there) { s.work |= there ? 1 : 0; };
    switch (what) {
      case op::disarm_box:
        s.armed = 0;
        break;
      case op::serve_ring:
        if (s.producer != s.consumer) {
          ++s.consumer;
          ++s.in_flight;
          s.found = 1;
        }
        break;
      case op::reap:
        if (s.complete != 0) {
          --s.complete;
          s.found = 1;
        }
        break;
      case op::serve_box:
        if (s.boxed != 0) {
          --s.boxed;
          s.found = 1;
        }
        break;
      case op::again_if_found:
        if (s.found != 0) {
          start_pass(s);
        }
        break;
      case op::look_on:
        if (m_.waits != policy::event) {
          state again = s;
          start_pass(again);
          visit(again);
        }
        if (m_.waits == policy::busy) {
          return;
        }
        break;
      case op::move_event:
        s.event = static_cast<std::uint8_t>(s.consumer + 1);
        break;
      case op::clear_port:
        if (std::exchange(s.port_fd, std::uint8_t{0}) != 0) {
          s.knows_masked = 1;
          s.fired = 1;
        }
        break;
      case op::arm_ring:
        (m_.weak_event_store ? s.event_buffer : s.event) =
            static_cast<std::uint8_t>(s.consumer + 1);
        s.looked = 0;
        s.kicks = 0;
        break;
      case op::look_ring:
        s.looked = s.producer != s.consumer ? 2 : 1;
        note_work(s.looked == 2);
        break;
      case op::unmask:
        unmask(s);
        return;
      case op::clear_engine:
        s.engine_fd = 0;
        break;
      case op::look_engine:
        note_work(s.complete != 0);
        break;
      case op::clear_box:
        s.box_fd = 0;
        break;
      case op::announce_box:
        (m_.weak_announce ? s.armed_buffer : s.armed) = 1;
        break;
      case op::look_box:
        note_work(s.boxed != 0);
        break;
      case op::again_if_work:
        if (s.work != 0) {
          start_pass(s);
        }
        break;
      case op::sleep:
        if (!can_wake(s)) {
          return;
        }
        start_pass(s);
    }
    visit(s);
  }

  // Judges the event that was taken, and may start a delay, or find that one is over: when, is not
  // modelled.
  void unmask(state s) {
    const bool found_work = s.looked == 2;
    if (found_work && !m_.unmask_despite_work) {
      visit(s);
      return;
    }
    if (s.judged != s.consumer) {
      s.judged = s.consumer;
      s.delay = 0;
      s.fired = 0;
    }
    if (s.knows_masked != 0 && (s.delay != 0 || std::exchange(s.fired, std::uint8_t{0}) != 0)) {
      state later = s;
      later.delay = 1;
      visit(later);
    }
    s.delay = 0;
    if (std::exchange(s.knows_masked, std::uint8_t{0}) != 0) {
      s.unmasked_early = s.looked == 1 ? 0 : 1;
      s.masked = 0;
      if (std::exchange(s.pending, std::uint8_t{0}) != 0) {
        kick(s);
      }
    }
    visit(s);
  }

  machine m_;
  std::uint32_t from_ = 0;
  std::vector<state> states_;
  std::vector<edge> edges_;
  std::unordered_map<state, std::uint32_t, hash_bytes> known_;
};

std::string describe(policy p) {
  return p == policy::event ? "Event" : p == policy::busy ? "Busy" : "Adaptive";
}

class WaitModel : public testing::TestWithParam<policy> {};

TEST_P(WaitModel, LosesNoWakeUpAndDrawsAtMostOneKickPerSleep) {
  machine m;
  m.waits = GetParam();
  explorer e(m);
  EXPECT_EQ(e.first(), violation::none);
  EXPECT_GT(e.states(), instrumented ? 400U : 4000U);  // the model has not collapsed
  RecordProperty("states", static_cast<int>(e.states()));
}

TEST_P(WaitModel, HoldsForMoreRequestsWithoutMailbox) {
  machine m;
  m.waits = GetParam();
  m.requests = instrumented ? 2 : 3;
  m.handles = 0;
  EXPECT_EQ(explorer(m).first(), violation::none);
}

INSTANTIATE_TEST_SUITE_P(Policies, WaitModel,
                         testing::Values(policy::event, policy::adaptive, policy::busy),
                         [](const auto& of) { return describe(of.param); });

// What a mutant is played with: no more than it takes to show the fault.
struct cast {
  std::uint8_t requests = 0;
  std::uint8_t handles = 0;
};
constexpr cast ring_only{.requests = 2, .handles = 0};
// A wake-up by the box after the last completion, without which completions hide the loss.
constexpr cast with_box{.requests = 2, .handles = 1};
constexpr cast box_only{.requests = 0, .handles = 2};

struct mutant {
  std::string name;
  cast with;
  std::function<void(machine&)> change;
  violation expected;

  friend std::ostream& operator<<(std::ostream& out, const mutant& m) { return out << m.name; }
};

class WaitMutant : public testing::TestWithParam<mutant> {};

TEST_P(WaitMutant, IsCaught) {
  for (const policy p : {policy::event, policy::adaptive}) {
    machine m;
    m.waits = p;
    m.stray_kicks = 0;
    m.requests = GetParam().with.requests;
    m.handles = GetParam().with.handles;
    GetParam().change(m);
    EXPECT_TRUE(explorer(m).finds(GetParam().expected))
        << describe(p) << " does not show: " << GetParam().expected;
  }
}

auto without(op which) {
  return [which](machine& m) { m.remove(which); };
}
auto swapped(op a, op b) {
  return [a, b](machine& m) { m.swap(a, b); };
}
auto moved_behind(op which, op place) {
  return [which, place](machine& m) { m.move_behind(which, place); };
}
auto with(bool machine::*which) {
  return [which](machine& m) { m.*which = true; };
}

INSTANTIATE_TEST_SUITE_P(
    Ring, WaitMutant,
    testing::Values(
        mutant{"WithoutClear", ring_only, without(op::clear_port), violation::never_quiet},
        mutant{"WithoutArm", ring_only, without(op::arm_ring), violation::lost_wakeup},
        mutant{"WithoutLook", with_box, without(op::look_ring), violation::lost_wakeup},
        mutant{"WithoutUnmask", ring_only, without(op::unmask), violation::lost_wakeup},
        mutant{"LookBeforeArm", with_box, swapped(op::arm_ring, op::look_ring),
               violation::lost_wakeup},
        mutant{"ClearAfterLook", ring_only, moved_behind(op::clear_port, op::look_ring),
               violation::lost_wakeup},
        mutant{"ClearAfterUnmask", ring_only, moved_behind(op::clear_port, op::unmask),
               violation::lost_wakeup},
        mutant{"UnmaskBeforeLook", ring_only, swapped(op::unmask, op::look_ring),
               violation::early_unmask},
        mutant{"UnmaskBeforeArm", ring_only, moved_behind(op::unmask, op::clear_port),
               violation::early_unmask},
        mutant{"UnmaskDespiteWork", ring_only, with(&machine::unmask_despite_work),
               violation::early_unmask},
        mutant{"DelayWithoutDeadline", ring_only, [](machine& m) { m.delay_has_deadline = false; },
               violation::lost_wakeup},
        mutant{"EventIndexStoreNotSeqCst", ring_only, with(&machine::weak_event_store),
               violation::lost_wakeup},
        mutant{"ProducerIndexStoreNotSeqCst", ring_only, with(&machine::weak_producer_store),
               violation::lost_wakeup},
        mutant{"FrontendReadsEventIndexFirst", ring_only,
               with(&machine::frontend_reads_event_first), violation::lost_wakeup}),
    [](const auto& of) { return of.param.name; });

INSTANTIATE_TEST_SUITE_P(Engine, WaitMutant,
                         testing::Values(mutant{"WithoutClear", ring_only,
                                                without(op::clear_engine), violation::never_quiet},
                                         mutant{"WithoutLook", ring_only, without(op::look_engine),
                                                violation::lost_wakeup},
                                         mutant{"ClearAfterLook", ring_only,
                                                swapped(op::clear_engine, op::look_engine),
                                                violation::lost_wakeup}),
                         [](const auto& of) { return of.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Mailbox, WaitMutant,
    testing::Values(
        mutant{"WithoutClear", box_only, without(op::clear_box), violation::never_quiet},
        mutant{"WithoutAnnounce", box_only, without(op::announce_box), violation::lost_wakeup},
        mutant{"WithoutLook", box_only, without(op::look_box), violation::lost_wakeup},
        mutant{"LookBeforeAnnounce", box_only, swapped(op::announce_box, op::look_box),
               violation::lost_wakeup},
        mutant{"ClearAfterLook", box_only, moved_behind(op::clear_box, op::look_box),
               violation::lost_wakeup},
        mutant{"DisarmAfterLook", box_only, moved_behind(op::disarm_box, op::look_box),
               violation::lost_wakeup},
        mutant{"AnnounceNotSeqCst", box_only, with(&machine::weak_announce),
               violation::lost_wakeup},
        mutant{"PushNotSeqCst", box_only, with(&machine::weak_push), violation::lost_wakeup},
        mutant{"ProducerChecksFirst", box_only, with(&machine::producer_checks_first),
               violation::lost_wakeup}),
    [](const auto& of) { return of.param.name; });

INSTANTIATE_TEST_SUITE_P(Sleeper, WaitMutant,
                         testing::Values(mutant{"IgnoresWhatArmingFinds", ring_only,
                                                without(op::again_if_work), violation::lost_wakeup},
                                         mutant{"SleepsUnarmed", ring_only,
                                                moved_behind(op::sleep, op::look_on),
                                                violation::lost_wakeup}),
                         [](const auto& of) { return of.param.name; });

// Without the second pass arming finds what is left. The step saves system calls, and no wake-up
// depends on it.
TEST(WaitModelEquivalents, ArmingAfterEachPassLosesNothing) {
  machine m;
  m.remove(op::again_if_found);
  EXPECT_EQ(explorer(m).first(), violation::none);
}

// Renewing the event index in a pass costs a kick for each request that a poller takes.
TEST(WaitModelKicks, MovingTheEventIndexWhilePollingIsCaught) {
  for (const policy p : {policy::adaptive, policy::busy}) {
    machine m;
    m.waits = p;
    m.requests = 3;
    m.handles = 0;
    m.insert_before(op::move_event, op::look_on);
    EXPECT_TRUE(explorer(m).finds(violation::second_kick)) << describe(p);
  }
}

}  // namespace
