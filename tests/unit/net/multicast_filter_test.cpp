// SPDX-License-Identifier: MIT
#include "pvring/net/multicast_filter.hpp"

#include <gtest/gtest.h>

namespace pvring::net {
namespace {

multicast_filter::address group(std::uint8_t number) {
  return {0x01, 0x00, 0x5e, 0x00, 0x00, number};
}

TEST(MulticastFilter, wants_the_groups_that_were_joined) {
  multicast_filter filter;
  EXPECT_FALSE(filter.wants(group(1)));
  EXPECT_TRUE(filter.add(group(1)));
  EXPECT_TRUE(filter.add(group(1)));
  EXPECT_TRUE(filter.wants(group(1)));
  EXPECT_FALSE(filter.wants(group(2)));
  EXPECT_TRUE(filter.remove(group(1)));
  EXPECT_FALSE(filter.remove(group(1)));
  EXPECT_FALSE(filter.wants(group(1)));
}

TEST(MulticastFilter, has_room_for_64_groups_and_says_when_there_is_none) {
  multicast_filter filter;
  for (std::uint8_t i = 0; i < 64; ++i) {
    EXPECT_TRUE(filter.add(group(i)));
  }
  EXPECT_FALSE(filter.add(group(64)));
  EXPECT_TRUE(filter.add(group(63)));
  EXPECT_TRUE(filter.remove(group(10)));
  EXPECT_TRUE(filter.add(group(64)));
  filter.clear();
  EXPECT_FALSE(filter.wants(group(64)));
}

TEST(MulticastFilter, takes_only_addresses_of_groups) {
  multicast_filter filter;
  EXPECT_FALSE(filter.add({0x00, 0x16, 0x3e, 0x00, 0x00, 0x01}));
  EXPECT_FALSE(filter.add({}));
}

}  // namespace
}  // namespace pvring::net
