// SPDX-License-Identifier: MIT
// One thread counts, any may read: the writer loses nothing, readers see it grow.
#include "pvring/base/counter.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace {

using pvring::counter;

TEST(Counter, Counts) {
  counter c;
  EXPECT_EQ(c.get(), 0U);
  c.add();
  c.add(41);
  EXPECT_EQ(c.get(), 42U);
  c.set(7);
  EXPECT_EQ(c.get(), 7U);
}

TEST(Counter, MayBeReadByAnotherThreadWhileItCounts) {
  counter c;
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    std::uint64_t before = 0;
    while (!stop.load()) {
      const std::uint64_t now = c.get();
      EXPECT_GE(now, before);
      before = now;
    }
  });
  for (int i = 0; i < 200'000; ++i) {
    c.add();
  }
  stop.store(true);
  reader.join();
  EXPECT_EQ(c.get(), 200'000U);
}

}  // namespace
