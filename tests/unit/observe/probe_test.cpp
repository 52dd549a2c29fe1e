// SPDX-License-Identifier: MIT
// Probes must be usable as statements in any place, with or without <sys/sdt.h>.
#include "pvring/observe/probe.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace {

int probed(std::uint32_t slot) {
  const int only_for_the_probe = 3;
  PVRING_PROBE(entered);
  PVRING_PROBE1(one, slot);
  PVRING_PROBE2(two, slot, only_for_the_probe);
  if (slot != 0)
    PVRING_PROBE3(three, slot, 2, 3);
  else
    PVRING_PROBE4(four, slot, 2, 3, 4);
  return static_cast<int>(slot);
}

TEST(Probe, IsAStatementThatChangesNothing) {
  EXPECT_EQ(probed(0), 0);
  EXPECT_EQ(probed(5), 5);
}

#ifndef STAP_PROBE4
TEST(Probe, ArgumentsAreNotEvaluatedWhereThereAreNoProbes) {
  int evaluated = 0;
  PVRING_PROBE2(two, ++evaluated, ++evaluated);
  EXPECT_EQ(evaluated, 0);
}
#endif

}  // namespace
