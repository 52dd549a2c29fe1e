// SPDX-License-Identifier: MIT
#include "pvring/platform/xen/port_gate.hpp"

#include <gtest/gtest.h>

namespace pvring::platform::detail {
namespace {

using next = port_gate::next;

TEST(PortGate, KeepsWhatFiresBeforeTheFirstUnmask) {
  port_gate gate;
  gate.add(5);
  EXPECT_FALSE(gate.arrived(5));
  EXPECT_TRUE(gate.is_kept(5));
  EXPECT_EQ(gate.take_ready(), std::nullopt);
  EXPECT_EQ(gate.unmask(5), next::fire);
  EXPECT_TRUE(gate.has_ready());
  EXPECT_EQ(gate.take_ready(), 5U);
  EXPECT_FALSE(gate.has_ready());
  EXPECT_EQ(gate.unmask(5), next::ask_kernel);
}

TEST(PortGate, MasksWhatHasFired) {
  port_gate gate;
  gate.add(5);
  EXPECT_EQ(gate.unmask(5), next::ask_kernel);
  EXPECT_TRUE(gate.arrived(5));
  EXPECT_FALSE(gate.arrived(5));
  EXPECT_EQ(gate.unmask(5), next::fire);
}

TEST(PortGate, AnUnmaskOfWhatIsToFireChangesNothing) {
  port_gate gate;
  gate.add(5);
  EXPECT_FALSE(gate.arrived(5));
  EXPECT_EQ(gate.unmask(5), next::fire);
  EXPECT_EQ(gate.unmask(5), next::nothing);
  EXPECT_EQ(gate.take_ready(), 5U);
  EXPECT_EQ(gate.take_ready(), std::nullopt);
}

TEST(PortGate, IgnoresPortsThatAreNone) {
  port_gate gate;
  gate.add(5);
  EXPECT_FALSE(gate.arrived(6));
  EXPECT_FALSE(gate.contains(6));
  EXPECT_FALSE(gate.remove(6));
  EXPECT_EQ(gate.unmask(6), next::nothing);
  gate.defer(6);
  EXPECT_FALSE(gate.has_ready());
}

TEST(PortGate, ForgetsAPortWithWhatItHadToSay) {
  port_gate gate;
  for (const port p : {9U, 3U, 5U}) {
    gate.add(p);
    EXPECT_EQ(gate.unmask(p), next::ask_kernel);
    EXPECT_TRUE(gate.arrived(p));
    gate.defer(p);
    gate.defer(p);
  }
  EXPECT_TRUE(gate.remove(5));
  EXPECT_EQ(gate.take_ready(), 3U);
  EXPECT_EQ(gate.take_ready(), 9U);
  EXPECT_EQ(gate.take_ready(), std::nullopt);
  gate.add(5);
  EXPECT_FALSE(gate.is_kept(5));
}

}  // namespace
}  // namespace pvring::platform::detail
