// SPDX-License-Identifier: MIT
#include "pvring/platform/emulated/mapping_table.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace pvring::platform::detail {
namespace {

// Some page's address; nothing is ever read there.
std::byte* page(std::size_t number) {
  static std::vector<std::byte> memory(128 * page_size);
  return memory.data() + number * page_size;
}

TEST(MappingTable, FindsWhatItHoldsAndForgetsWhatIsErased) {
  mapping_table table(8);
  const std::vector<grant_reference> references{10, 11, 12};
  table.insert(page(100), 2, references);
  ASSERT_NE(table.find(page(100)), nullptr);
  EXPECT_EQ(table.find(page(100))->count, 3U);
  EXPECT_EQ(table.find(page(100))->domain, 2U);
  EXPECT_EQ(table.find(page(101)), nullptr);
  EXPECT_EQ(table.find(nullptr), nullptr);
  std::multiset<grant_reference> erased;
  table.erase(table.find(page(100)), [&](grant_reference r) { erased.insert(r); });
  EXPECT_EQ(erased, (std::multiset<grant_reference>{10, 11, 12}));
  EXPECT_EQ(table.find(page(100)), nullptr);
  EXPECT_EQ(table.pages(), 0U);
  EXPECT_EQ(table.maps(), 0U);
}

TEST(MappingTable, AgreesWithAMapThroughManyChangesAtFullLoad) {
  mapping_table table(32);
  std::map<std::byte*, std::vector<grant_reference>> model;
  unsigned random = 7;
  for (int i = 0; i < 200'000; ++i) {
    random = random * 1664525 + 1013904223;
    std::byte* at = page(1 + (random >> 8) % 64);
    const std::size_t count = 1 + (random >> 16) % 3;
    if (model.contains(at)) {
      std::multiset<grant_reference> erased;
      const auto* entry = table.find(at);
      ASSERT_NE(entry, nullptr);
      table.erase(entry, [&](grant_reference r) { erased.insert(r); });
      ASSERT_EQ(erased, std::multiset<grant_reference>(model[at].begin(), model[at].end()));
      model.erase(at);
    } else if (table.pages() + count <= 32) {
      std::vector<grant_reference> references(count, random);
      references[0] = random >> 1;
      table.insert(at, 0, references);
      model[at] = references;
    }
    ASSERT_EQ(table.maps(), model.size());
    ASSERT_EQ(table.find(at) != nullptr, model.contains(at));
  }
  ASSERT_FALSE(model.empty());
  table.drain([&](const mapping_table::entry* entry) {
    ASSERT_EQ(model.erase(entry->address), 1U);
    table.erase(entry, [](grant_reference) {});
  });
  EXPECT_TRUE(model.empty());
  EXPECT_EQ(table.maps(), 0U);
  EXPECT_EQ(table.pages(), 0U);
}

}  // namespace
}  // namespace pvring::platform::detail
