// SPDX-License-Identifier: MIT
// Messages that name what is wrong, where, and what to do; and that a peer cannot fill with
// rubbish.
#include "pvring/base/error.hpp"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace {

using pvring::node_error;
using pvring::protocol_error;

static_assert(std::is_base_of_v<std::runtime_error, pvring::configuration_error>);
static_assert(std::is_base_of_v<pvring::configuration_error, node_error>);

TEST(ProtocolError, EachHasItsOwnName) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(protocol_error::packet_bad_extra); ++i) {
    const std::string_view name = to_string(static_cast<protocol_error>(i));
    EXPECT_NE(name, "unknown protocol error") << i;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(to_string(static_cast<protocol_error>(200)), "unknown protocol error");
}

TEST(NodeError, NamesNodeValueDomainAndRemedy) {
  const node_error error("device/vbd/51712/ring-page-order", "17", 3,
                         "a number from 0 to 4 is accepted");
  EXPECT_STREQ(error.what(),
               "node device/vbd/51712/ring-page-order (written by domain 3) is '17': a number from "
               "0 to 4 is accepted");
  EXPECT_EQ(error.node(), "device/vbd/51712/ring-page-order");
  EXPECT_EQ(error.value(), "17");
  EXPECT_EQ(error.domain(), 3);
}

TEST(NodeError, SaysThatANodeIsMissing) {
  const node_error error("a/b", "", 0, "write it");
  EXPECT_STREQ(error.what(), "node a/b (written by domain 0) is missing: write it");
}

TEST(NodeError, PrintsAPeersValueShortAndHarmless) {
  const std::string value = std::string("\x1b[2J\n\0\x7f\xff", 8) + std::string(5000, 'x');
  const node_error error("n", value, 1, "r");
  const std::string what = error.what();
  EXPECT_LT(what.size(), 200U);
  for (const char c : what) {
    EXPECT_TRUE(c >= ' ' && c < '\x7f') << static_cast<int>(c);
  }
  EXPECT_NE(what.find("...'"), std::string::npos) << "it says that there was more";
  EXPECT_EQ(error.value(), value) << "the value itself is whole";
}

}  // namespace
