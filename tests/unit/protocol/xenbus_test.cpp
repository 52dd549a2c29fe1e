// SPDX-License-Identifier: MIT
// A state node holds one digit; anything else that a peer writes there is no state.
#include "pvring/protocol/xenbus.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

namespace {

using pvring::protocol::parse_xenbus_state;
using pvring::protocol::to_digit;
using pvring::protocol::xenbus_state;

TEST(XenbusState, DigitAndStateAreTheSameBothWays) {
  std::set<std::string_view> names;
  for (int i = 0; i <= 8; ++i) {
    const auto state = static_cast<xenbus_state>(i);
    EXPECT_EQ(to_digit(state), '0' + i);
    EXPECT_EQ(parse_xenbus_state(std::string(1, to_digit(state))), state);
    EXPECT_TRUE(names.insert(to_string(state)).second);
  }
  EXPECT_EQ(to_string(xenbus_state::init_wait), "InitWait");
  EXPECT_EQ(to_string(xenbus_state::reconfigured), "Reconfigured");
}

TEST(XenbusState, WhatIsNoDigitOfAStateIsRefused) {
  for (const std::string_view value :
       {"", "9", "-1", "+4", "04", "4 ", " 4", "4\n", "10", "x", "Connected", "\xb4"}) {
    EXPECT_EQ(parse_xenbus_state(value), std::nullopt) << value;
  }
  EXPECT_EQ(parse_xenbus_state(std::string_view("4\0", 2)), std::nullopt);
  EXPECT_EQ(parse_xenbus_state(std::string_view("\0", 1)), std::nullopt);
}

TEST(XenbusState, NumberThatIsNoStateHasTheNameOfNone) {
  EXPECT_EQ(to_string(static_cast<xenbus_state>(200)), "Unknown");
}

}  // namespace
