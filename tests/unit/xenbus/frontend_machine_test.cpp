// SPDX-License-Identifier: MIT
#include "pvring/xenbus/frontend_machine.hpp"

#include <gtest/gtest.h>

#include <string>

namespace pvring::xenbus {
namespace {

using enum xenbus_state;

static_assert(react(frontend_situation{initialising, init_wait, false, true}) ==
              frontend_action::prepare);

constexpr xenbus_state states[] = {unknown, initialising, init_wait,     initialised, connected,
                                   closing, closed,       reconfiguring, reconfigured};

struct input : frontend_situation {
  [[nodiscard]] std::string text() const {
    return "own " + std::string(protocol::to_string(own)) + ", backend " +
           std::string(protocol::to_string(backend)) + (rings ? ", rings" : "") +
           (idle ? ", idle" : "");
  }
};

template <class Check>
void for_every_input(Check check) {
  for (const xenbus_state own : states) {
    for (const xenbus_state backend : states) {
      for (const bool rings : {false, true}) {
        for (const bool idle : {false, true}) {
          check(input{{own, backend, rings, idle}});
        }
      }
    }
  }
}

frontend_action expected(const input& in) {
  const bool gone = in.backend == unknown || in.backend == closed;
  switch (in.own) {
    case initialising:
      return in.backend == init_wait ? frontend_action::prepare
             : in.backend == closing ? frontend_action::give_up
                                     : frontend_action::none;
    case initialised:
    case connected:
      if (!in.rings) {
        return frontend_action::close;
      }
      if (gone) {
        return frontend_action::give_up;
      }
      if (in.backend == closing) {
        return frontend_action::close;
      }
      if (in.backend == connected) {
        return in.own == connected ? frontend_action::reread : frontend_action::connect;
      }
      return frontend_action::none;
    case closing:
      return gone      ? frontend_action::give_up
             : in.idle ? frontend_action::leave
                       : frontend_action::none;
    case closed:
      return in.rings && in.backend != closing && in.backend != connected ? frontend_action::release
                                                                          : frontend_action::none;
    default:
      return frontend_action::give_up;
  }
}

TEST(FrontendMachine, EveryPairHasItsReaction) {
  int pairs = 0;
  for_every_input([&](const input& in) {
    ++pairs;
    EXPECT_EQ(to_string(react(in)), to_string(expected(in))) << in.text();
  });
  EXPECT_EQ(pairs, 9 * 9 * 2 * 2);
}

TEST(FrontendMachine, RingsStayWhileABackendMayStillHaveThemMapped) {
  for_every_input([](const input& in) {
    const frontend_action next = react(in);
    if (in.rings && (in.backend == connected || in.backend == closing) && in.own >= initialised &&
        in.own <= closed && in.own != init_wait) {
      EXPECT_NE(next, frontend_action::release) << in.text();
      EXPECT_NE(next, frontend_action::give_up) << in.text();
    }
  });
}

TEST(FrontendMachine, ADeviceInUseStaysInClosing) {
  EXPECT_EQ(react(frontend_situation{closing, closing, true, false}), frontend_action::none);
  EXPECT_EQ(react(frontend_situation{closing, closing, true, true}), frontend_action::leave);
}

}  // namespace
}  // namespace pvring::xenbus
