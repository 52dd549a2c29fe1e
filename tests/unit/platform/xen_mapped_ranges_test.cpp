// SPDX-License-Identifier: MIT
#include "pvring/platform/xen/mapped_ranges.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace pvring::platform::detail {
namespace {

mapping at(std::size_t page, std::uint32_t count) {
  return {reinterpret_cast<std::byte*>(page * page_size), count};
}

TEST(MappedRanges, KnowsExactlyWhatWasMapped) {
  mapped_ranges ranges(8);
  ranges.insert(at(10, 3));
  EXPECT_TRUE(ranges.contains(at(10, 3)));
  EXPECT_FALSE(ranges.contains(at(10, 2)));
  EXPECT_FALSE(ranges.contains(at(11, 3)));
  EXPECT_FALSE(ranges.contains(at(0, 0)));
  EXPECT_FALSE(ranges.contains(at(99, 0)));
  EXPECT_EQ(ranges.pages(), 3U);
  ranges.erase(at(10, 3));
  EXPECT_FALSE(ranges.contains(at(10, 3)));
  EXPECT_EQ(ranges.maps(), 0U);
}

TEST(MappedRanges, AQuotaOfNothingIsPossible) {
  mapped_ranges ranges(0);
  EXPECT_EQ(ranges.quota(), 0U);
  EXPECT_FALSE(ranges.contains(at(1, 1)));
}

TEST(MappedRanges, AgreesWithAMapAfterManyChanges) {
  constexpr std::size_t quota = 64;
  mapped_ranges ranges(quota);
  std::map<std::size_t, std::uint32_t> expected;
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t page = 1 + random() % 100;
    const auto count = static_cast<std::uint32_t>(1 + random() % 4);
    if (const auto known = expected.find(page); known != expected.end()) {
      ranges.erase(at(page, known->second));
      expected.erase(known);
    } else if (ranges.pages() + count <= quota) {
      ranges.insert(at(page, count));
      expected[page] = count;
    }
    ASSERT_EQ(ranges.maps(), expected.size());
    for (std::size_t p = 1; p <= 100; ++p) {
      const auto known = expected.find(p);
      ASSERT_EQ(ranges.contains(at(p, known != expected.end() ? known->second : 1)),
                known != expected.end());
    }
  }
  ASSERT_FALSE(expected.empty());
  std::size_t drained = 0;
  ranges.drain([&](mapping) { ++drained; });
  EXPECT_EQ(drained, expected.size());
  EXPECT_EQ(ranges.maps(), 0U);
  EXPECT_EQ(ranges.pages(), 0U);
}

}  // namespace
}  // namespace pvring::platform::detail
