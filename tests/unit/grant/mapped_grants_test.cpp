// SPDX-License-Identifier: MIT
#include "pvring/grant/mapped_grants.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "scripted_mapper.hpp"

namespace pvring::test {
namespace {

using grant::mapped_entry;
using table_type = grant::mapped_grants<scripted_mapper>;

class MappedGrants : public ::testing::Test {
 protected:
  MappedGrants() {
    for (platform::grant_reference i = 0; i < 200; ++i) {
      mapper.peer[i * 7];
    }
  }
  scripted_mapper mapper;
};

TEST_F(MappedGrants, adds_all_or_none) {
  table_type table(mapper, 1, 4);
  std::vector<mapped_entry> good{{.reference = 7}, {.reference = 14, .read_only = true}};
  EXPECT_TRUE(table.add(good));
  EXPECT_TRUE(good[0].done && good[1].done);
  EXPECT_EQ(table.size(), 2U);
  const auto refused = [&](std::vector<mapped_entry> entries) {
    EXPECT_FALSE(table.add(entries));
    for (const mapped_entry& e : entries) {
      EXPECT_FALSE(e.done);
    }
    EXPECT_EQ(table.size(), 2U);
    EXPECT_EQ(mapper.mapped_pages, 2U);
  };
  refused({{.reference = 21}, {.reference = 1}});                      // is none
  refused({{.reference = 21}, {.reference = 21}});                     // twice
  refused({{.reference = 21}, {.reference = 7}});                      // is there
  refused({{.reference = 21}, {.reference = 28}, {.reference = 35}});  // no room
  EXPECT_NE(table.find(7, true), nullptr);
  EXPECT_EQ(table.find(14, true), nullptr) << "is for reading";
  EXPECT_NE(table.find(14, false), nullptr);
  EXPECT_EQ(table.find(21, false), nullptr);
}

TEST_F(MappedGrants, removes_what_is_there_and_nobody_uses) {
  table_type table(mapper, 1, 4);
  std::vector<mapped_entry> some{{.reference = 0}, {.reference = 7}, {.reference = 14}};
  ASSERT_TRUE(table.add(some));
  table.use(*table.find(7, false));
  std::vector<mapped_entry> gone{{.reference = 0}, {.reference = 7}, {.reference = 70}};
  EXPECT_EQ(table.remove(gone), 1U);
  EXPECT_TRUE(gone[0].done);
  EXPECT_FALSE(gone[1].done || gone[2].done);
  table.let_go(*table.find(7, false));
  EXPECT_EQ(table.remove(gone), 1U);
  EXPECT_EQ(table.size(), 1U);
  EXPECT_EQ(table.counters().removed.get(), 2U);
  table.clear();
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(mapper.mapped_pages, 0U);
}

TEST_F(MappedGrants, does_as_ordered) {
  table_type table(mapper, 1, 4);
  std::vector<mapped_entry> some{{.reference = 0}, {.reference = 7}};
  grant::mapping_order order{.add = true, .entries = some};
  table.perform(order);
  EXPECT_TRUE(order.okay);
  EXPECT_EQ(order.count, 2U);
  table.perform(order);  // once more: they are there
  EXPECT_FALSE(order.okay);
  EXPECT_EQ(order.count, 0U);
  order.add = false;
  table.perform(order);
  EXPECT_TRUE(order.okay);
  EXPECT_EQ(order.count, 2U);
}

// Against a set: what is found, counted and mapped is always the same.
TEST_F(MappedGrants, finds_what_a_set_would_whatever_comes_and_goes) {
  table_type table(mapper, 1, 64);
  std::set<platform::grant_reference> model;
  std::mt19937 random(3);
  for (int step = 0; step < 50'000; ++step) {
    const auto reference = static_cast<platform::grant_reference>(random() % 200 * 7);
    std::vector<mapped_entry> one{{.reference = reference}};
    if (random() % 2 == 0) {
      const bool expected = model.size() < 64 && !model.contains(reference);
      ASSERT_EQ(table.add(one), expected);
      if (expected) {
        model.insert(reference);
      }
    } else {
      ASSERT_EQ(table.remove(one), model.erase(reference));
    }
    ASSERT_EQ(table.size(), model.size());
    const auto other = static_cast<platform::grant_reference>(random() % 200 * 7);
    const auto* const found = table.find(other, true);
    ASSERT_EQ(found != nullptr, model.contains(other));
    if (found != nullptr) {
      ASSERT_EQ(found->reference, other);
    }
  }
  ASSERT_EQ(mapper.mapped_pages, model.size());
}

}  // namespace
}  // namespace pvring::test
