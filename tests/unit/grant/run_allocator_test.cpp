// SPDX-License-Identifier: MIT
// Runs from a bitmap: held against a plain vector of flags over random histories, and at the edges
// of its words.
#include "pvring/grant/run_allocator.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace {

using pvring::grant::run_allocator;

TEST(run_allocator, hands_out_every_unit_exactly_once) {
  run_allocator runs(130);
  std::vector<bool> seen(130);
  for (int i = 0; i < 130; ++i) {
    const auto unit = runs.take(1);
    ASSERT_TRUE(unit);
    ASSERT_FALSE(seen.at(*unit));
    seen.at(*unit) = true;
  }
  EXPECT_FALSE(runs.take(1));
  EXPECT_EQ(runs.free_units(), 0U);
}

TEST(run_allocator, finds_a_run_across_words) {
  run_allocator runs(192);
  ASSERT_EQ(runs.take(192), 0U);
  runs.give_back(60, 72);
  EXPECT_EQ(runs.take(72), 60U);
  EXPECT_FALSE(runs.take(1));
}

TEST(run_allocator, finds_a_run_that_starts_before_the_place_of_the_last_one) {
  run_allocator runs(64);
  ASSERT_EQ(runs.take(40), 0U);  // the hint is now 40
  runs.give_back(30, 10);
  EXPECT_EQ(runs.take(34), 30U);
}

TEST(run_allocator, does_not_find_what_is_not_there_in_one_piece) {
  run_allocator runs(64);
  ASSERT_TRUE(runs.take(64));
  for (std::uint32_t unit = 0; unit < 64; unit += 2) {
    runs.give_back(unit, 1);
  }
  EXPECT_EQ(runs.free_units(), 32U);
  EXPECT_FALSE(runs.take(2));
  EXPECT_TRUE(runs.take(1));
}

TEST(run_allocator, has_no_units_past_its_end) {
  run_allocator runs(65);
  EXPECT_TRUE(runs.take(65));
  run_allocator small(3);
  EXPECT_FALSE(small.take(4));
  EXPECT_TRUE(small.take(3));
}

TEST(run_allocator, agrees_with_plain_flags_over_random_histories) {
  std::mt19937 random(1);
  for (const std::uint32_t units : {1U, 63U, 64U, 65U, 200U}) {
    run_allocator runs(units);
    std::vector<bool> taken(units);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> held;
    for (int step = 0; step < 20000; ++step) {
      if (random() % 2 == 0 || held.empty()) {
        const std::uint32_t count = 1 + static_cast<std::uint32_t>(random() % (units / 3 + 1));
        // What there is, by the plain way.
        bool possible = false;
        std::uint32_t length = 0;
        for (std::uint32_t unit = 0; unit < units; ++unit) {
          length = taken[unit] ? 0 : length + 1;
          possible |= length >= count;
        }
        const auto first = runs.take(count);
        ASSERT_EQ(first.has_value(), possible);
        if (first) {
          for (std::uint32_t unit = *first; unit < *first + count; ++unit) {
            ASSERT_FALSE(taken.at(unit));
            taken[unit] = true;
          }
          held.emplace_back(*first, count);
        }
      } else {
        const std::size_t which = random() % held.size();
        const auto [first, count] = held[which];
        held[which] = held.back();
        held.pop_back();
        runs.give_back(first, count);
        for (std::uint32_t unit = first; unit < first + count; ++unit) {
          taken[unit] = false;
        }
      }
    }
  }
}

}  // namespace
