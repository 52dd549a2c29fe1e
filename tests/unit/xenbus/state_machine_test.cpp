// SPDX-License-Identifier: MIT
#include "pvring/xenbus/state_machine.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace pvring::xenbus {
namespace {

using enum xenbus_state;

// The machine is usable where nothing can be run.
static_assert(react({initialising, frontend_view::starting, true, connection::none}) ==
              action::go_init_wait);
static_assert(react({connected, frontend_view::closing, true, connection::up}) == action::close);

constexpr xenbus_state states[] = {unknown, initialising, init_wait,     initialised, connected,
                                   closing, closed,       reconfiguring, reconfigured};
constexpr connection links[] = {connection::none, connection::up, connection::draining,
                                connection::drained};

struct input {
  xenbus_state own;
  xenbus_state frontend;
  bool refused;
  bool online;
  connection link;

  [[nodiscard]] action next() const {
    return react({own, view_of(frontend, refused), online, link});
  }
  [[nodiscard]] bool ready() const { return frontend == initialised || frontend == connected; }
  [[nodiscard]] bool wishes() const { return ready() || frontend == initialising; }
  [[nodiscard]] std::string text() const {
    return "own " + std::string(protocol::to_string(own)) + ", frontend " +
           std::string(protocol::to_string(frontend)) + (refused ? " (refused)" : "") +
           (online ? ", online" : ", offline") + ", link " + std::to_string(static_cast<int>(link));
  }
};

template <class Check>
void for_every_input(Check check) {
  for (const xenbus_state own : states) {
    for (const xenbus_state frontend : states) {
      for (const bool refused : {false, true}) {
        for (const bool online : {false, true}) {
          for (const connection link : links) {
            check(input{own, frontend, refused, online, link});
          }
        }
      }
    }
  }
}

action with_rings(const input& in) {
  const bool published = in.own == xenbus_state::connected || in.own == closing;
  const bool refused = in.refused && in.wishes();
  if (in.frontend == unknown || in.frontend == closed ||
      (in.frontend == initialising && !refused)) {
    return action::disconnect;
  }
  if (!published) {
    // Rings without Connected or Closing: publishing was interrupted and is repeated, if somebody
    // waits for it.
    const bool repeat = in.ready() && !refused && (in.own == init_wait || in.own == closed);
    return repeat ? action::connect : action::disconnect;
  }
  if (in.own == xenbus_state::connected) {
    if (in.frontend == closing || refused) {
      return action::close;
    }
    return in.frontend == xenbus_state::connected ? action::reread : action::none;
  }
  if (in.ready() && !refused) {
    return in.online ? action::disconnect : action::none;
  }
  return in.frontend == closing || refused || in.online ? action::none : action::disconnect;
}

action without_rings(const input& in) {
  const bool refused = in.refused && in.wishes();
  if (in.own == closed) {
    if (in.frontend == unknown || !in.online) {
      return action::unregister;
    }
    if (refused) {
      return action::none;
    }
    return in.frontend == initialising ? action::go_init_wait
           : in.ready()                ? action::connect
                                       : action::none;
  }
  if (in.frontend == unknown || in.frontend == closed) {
    return action::go_closed;
  }
  if (in.own == closing) {
    if (in.frontend == closing) {
      return action::none;
    }
    if (!in.online) {
      return action::go_closed;
    }
    if (refused) {
      return action::none;
    }
    return in.frontend == initialising ? action::go_init_wait
           : in.ready()                ? action::connect
                                       : action::none;
  }
  if (in.frontend == closing || refused) {
    return action::close;
  }
  if (in.own == init_wait) {
    return in.ready() ? action::connect : action::none;
  }
  if (in.own == xenbus_state::connected && in.ready()) {
    return action::connect;
  }
  if (in.own == xenbus_state::connected && in.frontend != initialising) {
    return action::go_closed;
  }
  return in.online ? action::go_init_wait : action::go_closed;
}

// Case 97: a table with a defined reaction for every pair.
TEST(StateMachine, EveryPairHasItsReaction) {
  int pairs = 0;
  for_every_input([&](const input& in) {
    ++pairs;
    action expected = action::none;
    if (in.link == connection::drained) {
      expected = action::finish;
    } else if (in.link == connection::up) {
      expected = with_rings(in);
    } else if (in.link == connection::none) {
      expected = without_rings(in);
    }
    EXPECT_EQ(to_string(in.next()), to_string(expected)) << in.text();
  });
  EXPECT_EQ(pairs, 9 * 9 * 2 * 2 * 4);
}

TEST(StateMachine, ClosingAloneTearsNothingDown) {
  for (const xenbus_state own : {xenbus_state::connected, closing}) {
    for (const bool online : {false, true}) {
      const action next = input{own, closing, false, online, connection::up}.next();
      EXPECT_EQ(next, own == closing ? action::none : action::close);
    }
  }
}

TEST(StateMachine, ClosedIsWrittenOnlyWhenNothingIsMapped) {
  for_every_input([](const input& in) {
    if (in.next() == action::go_closed || in.next() == action::unregister ||
        in.next() == action::go_init_wait) {
      EXPECT_EQ(in.link, connection::none) << in.text();
    }
    if (in.next() == action::unregister) {
      EXPECT_EQ(in.own, closed) << in.text();
    }
  });
}

TEST(StateMachine, OnlyAFrontendThatIsReadyAndNotRefusedIsConnected) {
  for_every_input([](const input& in) {
    if (in.next() == action::connect) {
      EXPECT_TRUE(in.ready() && !in.refused) << in.text();
    }
  });
}

TEST(StateMachine, DuplicatesOfAConnectionChangeNothing) {
  EXPECT_EQ((input{xenbus_state::connected, initialised, false, true, connection::up}.next()),
            action::none);
  EXPECT_EQ(
      (input{xenbus_state::connected, xenbus_state::connected, false, true, connection::up}.next()),
      action::reread);
}

// What the port does with an action, as far as the machine sees it.
input apply(input in) {
  switch (in.next()) {
    case action::go_init_wait:
      in.own = init_wait;
      break;
    case action::connect:
      in.link = connection::up;
      in.own = xenbus_state::connected;
      break;
    case action::close:
      in.own = closing;
      break;
    case action::disconnect:
      in.link = connection::draining;
      break;
    case action::finish:
      in.link = connection::none;
      break;
    case action::go_closed:
      in.own = closed;
      break;
    default:
      break;
  }
  if (in.link == connection::draining) {
    in.link = connection::drained;
  }
  return in;
}

TEST(StateMachine, EveryInputComesToRestInAFewSteps) {
  for_every_input([](const input& start) {
    input in = apply(start);
    int steps = 0;
    while (in.next() != action::none && in.next() != action::reread &&
           in.next() != action::unregister) {
      in = apply(in);
      ASSERT_LE(++steps, 6) << start.text();
    }
    if (start.frontend == unknown) {
      EXPECT_EQ(in.next(), action::unregister) << start.text();
    }
    if (start.frontend == closed) {
      EXPECT_EQ(in.own, closed) << start.text();
      EXPECT_EQ(in.next(), start.online ? action::none : action::unregister) << start.text();
    }
    if (start.ready() && start.online && !start.refused) {
      EXPECT_EQ(in.own, xenbus_state::connected) << start.text();
      EXPECT_EQ(in.link, connection::up) << start.text();
    }
    if (start.frontend == initialising && start.online && !start.refused) {
      EXPECT_EQ(in.own, init_wait) << start.text();
    }
  });
}

TEST(StateMachine, ARefusalHoldsUntilTheFrontendDoesSomething) {
  refusal refused;
  EXPECT_FALSE(refused.holds());
  refused.set(initialised);
  refused.observe(initialised);
  EXPECT_TRUE(refused.holds());
  // Initialised and Connected are one wish: a state that was missed is no new attempt.
  refused.observe(xenbus_state::connected);
  EXPECT_TRUE(refused.holds());
  refused.observe(closing);
  EXPECT_FALSE(refused.holds());
  refused.observe(initialised);
  EXPECT_FALSE(refused.holds());
}

TEST(StateMachine, AFrontendThatLeftIsNotRefused) {
  refusal refused;
  refused.set(closed);
  EXPECT_FALSE(refused.holds());
  refused.set(initialising);
  EXPECT_TRUE(refused.holds());
  refused.observe(initialised);
  EXPECT_FALSE(refused.holds());
}

}  // namespace
}  // namespace pvring::xenbus
