// SPDX-License-Identifier: MIT
#include "pvring/xenbus/node.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>

#include "scripted_store.hpp"

namespace pvring::xenbus {
namespace {

// A reader of nodes needs all of node_access, and a number that is unsigned.
struct read_only_access {
  std::optional<std::string> read(std::string_view) { return std::nullopt; }
};
template <class Access, class T>
concept readable = requires(Access& access) { read_unsigned<T>(access, "/a", domain_id{0}); };
static_assert(readable<test::scripted_store, std::uint32_t>);
static_assert(readable<test::scripted_store::transaction, std::uint64_t>);
static_assert(!readable<test::scripted_store, int>);
static_assert(!readable<read_only_access, std::uint32_t>);

struct Node : testing::Test {
  test::store_tree tree;
  test::scripted_store store{tree};

  std::string complaint(std::string_view value, bounds<std::uint32_t> within = {}) {
    tree.put("/a/b", value);
    try {
      (void)read_unsigned<std::uint32_t>(store, "/a/b", 7, within);
    } catch (const node_error& e) {
      EXPECT_EQ(e.node(), "/a/b");
      EXPECT_EQ(e.value(), value);
      EXPECT_EQ(e.domain(), 7);
      return e.what();
    }
    return "accepted";
  }
};

TEST_F(Node, ANumberIsDecimalDigitsAndNothingElse) {
  for (const std::string_view text : {"", " 1", "1 ", "+1", "-1", "-0", "0x1", "1.0", "1e3", "1,",
                                      "one", "\t1", "1\n", "4294967296", "99999999999999999999"}) {
    EXPECT_EQ(parse_unsigned<std::uint32_t>(text), std::nullopt) << text;
  }
  using namespace std::string_view_literals;
  EXPECT_EQ(parse_unsigned<std::uint32_t>("1\0"sv), std::nullopt);
  EXPECT_EQ(parse_unsigned<std::uint32_t>("0"), 0U);
  EXPECT_EQ(parse_unsigned<std::uint32_t>("007"), 7U);
  EXPECT_EQ(parse_unsigned<std::uint32_t>("4294967295"), 4294967295U);
  EXPECT_EQ(parse_unsigned<std::uint64_t>("18446744073709551615"),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parse_unsigned<std::uint64_t>("18446744073709551616"), std::nullopt);
  EXPECT_EQ(parse_unsigned<std::uint8_t>("256"), std::nullopt);
}

TEST_F(Node, ANumberOutsideItsBoundsIsRefused) {
  EXPECT_EQ(parse_unsigned<std::uint32_t>("1", {2, 4}), std::nullopt);
  EXPECT_EQ(parse_unsigned<std::uint32_t>("2", {2, 4}), 2U);
  EXPECT_EQ(parse_unsigned<std::uint32_t>("4", {2, 4}), 4U);
  EXPECT_EQ(parse_unsigned<std::uint32_t>("5", {2, 4}), std::nullopt);
}

TEST_F(Node, AnErrorNamesNodeValueDomainAndRemedy) {
  EXPECT_EQ(complaint("65", {1, 4}),
            "node /a/b (written by domain 7) is '65': write a decimal number from 1 to 4");
  EXPECT_EQ(
      complaint("x\x01y"),
      "node /a/b (written by domain 7) is 'x?y': write a decimal number from 0 to 4294967295");
  EXPECT_NE(complaint("").find("it is there, but empty"), std::string::npos);
  EXPECT_LT(complaint(std::string(100000, '9')).size(), 300U);
}

TEST_F(Node, AMissingNumberIsAnErrorNothingOrTheFallback) {
  EXPECT_THROW((void)read_unsigned<std::uint32_t>(store, "/none", 7), node_error);
  EXPECT_EQ(find_unsigned<std::uint32_t>(store, "/none", 7), std::nullopt);
  EXPECT_EQ(read_unsigned_or<std::uint32_t>(store, "/none", 7, 42), 42U);
}

TEST_F(Node, AMalformedNumberIsNeverReplacedByTheFallback) {
  tree.put("/a", "many");
  EXPECT_THROW((void)read_unsigned_or<std::uint32_t>(store, "/a", 7, 42), node_error);
  EXPECT_THROW((void)find_unsigned<std::uint32_t>(store, "/a", 7), node_error);
  EXPECT_THROW((void)read_flag_or(store, "/a", 7, false), node_error);
}

TEST_F(Node, AFlagIsAnyNumberButZero) {
  tree.put("/zero", "0");
  tree.put("/one", "1");
  tree.put("/two", "2");
  EXPECT_FALSE(read_flag_or(store, "/zero", 7, true));
  EXPECT_TRUE(read_flag_or(store, "/one", 7, false));
  EXPECT_TRUE(read_flag_or(store, "/two", 7, false));
  EXPECT_TRUE(read_flag_or(store, "/none", 7, true));
  EXPECT_FALSE(read_flag_or(store, "/none", 7, false));
}

TEST_F(Node, TextHasToBeThereAndToSaySomething) {
  tree.put("/empty", "");
  tree.put("/text", "disk.img");
  EXPECT_EQ(read_text(store, "/text", 0, "write a path"), "disk.img");
  EXPECT_THROW((void)read_text(store, "/empty", 0, "write a path"), node_error);
  EXPECT_THROW((void)read_text(store, "/none", 0, "write a path"), node_error);
}

// Case 44: the ABI that a frontend names.
TEST_F(Node, AChoiceIsOneOfItsNamesOrTheDocumentedFallback) {
  constexpr std::array<std::string_view, 3> abis{"x86_64-abi", "x86_32-abi", "arm-abi"};
  const auto choose = [&] { return read_one_of(store, "/protocol", 7, abis, 1); };
  EXPECT_EQ(choose(), 1U);
  tree.put("/protocol", "x86_64-abi");
  EXPECT_EQ(choose(), 0U);
  tree.put("/protocol", "arm-abi");
  EXPECT_EQ(choose(), 2U);
  for (const std::string_view odd : {"", "x86_64-abi ", "X86_64-ABI", "x86_64", "garbage"}) {
    tree.put("/protocol", odd);
    EXPECT_THROW((void)choose(), node_error) << odd;
  }
  try {
    (void)choose();
  } catch (const node_error& e) {
    EXPECT_STREQ(e.what(),
                 "node /protocol (written by domain 7) is 'garbage': "
                 "write one of 'x86_64-abi' 'x86_32-abi' 'arm-abi'");
  }
}

TEST_F(Node, AStateThatIsNoneIsUnknown) {
  EXPECT_EQ(read_state(store, "/dev"), xenbus_state::unknown);
  tree.put("/dev/state", "4");
  EXPECT_EQ(read_state(store, "/dev"), xenbus_state::connected);
  for (const std::string_view odd : {"", "9", "-1", "44", " 4", "four"}) {
    tree.put("/dev/state", odd);
    EXPECT_EQ(read_state(store, "/dev"), xenbus_state::unknown) << odd;
  }
}

TEST_F(Node, AStateThatMayNotBeReadIsUnknownAndAnyOtherFailureIsThrown) {
  tree.put("/dev/state", "4");
  tree.broken_path = "/dev";
  tree.error = EACCES;
  EXPECT_EQ(read_state(store, "/dev"), xenbus_state::unknown);
  EXPECT_EQ(read_if_allowed(store, "/dev/state"), std::nullopt);
  tree.error = EIO;
  EXPECT_THROW((void)read_state(store, "/dev"), std::system_error);
}

// Case 97: a node rewritten with the same value.
TEST_F(Node, ANodeIsWrittenOnlyIfItChanges) {
  EXPECT_TRUE(write_if_changed(store, "/a", std::string_view("1")));
  EXPECT_FALSE(write_if_changed(store, "/a", std::string_view("1")));
  EXPECT_FALSE(write_if_changed(store, "/a", 1U));
  EXPECT_TRUE(write_if_changed(store, "/a", std::uint64_t{1} << 40));
  EXPECT_EQ(tree.get("/a"), "1099511627776");
  EXPECT_EQ(tree.written("/a"), 2);
  // A node that is there and empty is not a missing one.
  EXPECT_TRUE(write_if_changed(store, "/empty", std::string_view()));
  EXPECT_TRUE(tree.has("/empty"));
  EXPECT_FALSE(write_if_changed(store, "/empty", std::string_view()));
}

TEST_F(Node, JoinPutsOneSlashBetweenNames) {
  EXPECT_EQ(join("/a"), "/a");
  EXPECT_EQ(join("/a", "b"), "/a/b");
  EXPECT_EQ(join("/a", std::string("b"), std::string_view("c")), "/a/b/c");
}

TEST_F(Node, APathFromTheStoreIsUsedOnlyWhenItIsWhole) {
  EXPECT_TRUE(is_absolute_path("/local/domain/0/backend/vbd/3/51712"));
  EXPECT_TRUE(is_absolute_path("/a"));
  for (const std::string_view odd :
       {"", "/", "a", "a/b", "/a/", "//a", "/a//b", "/a b", "/a\n", "/a/../b", "/a:b"}) {
    EXPECT_FALSE(is_absolute_path(odd)) << odd;
  }
  EXPECT_TRUE(is_absolute_path("/" + std::string(longest_path - 1, 'a')));
  EXPECT_FALSE(is_absolute_path("/" + std::string(longest_path, 'a')));
}

}  // namespace
}  // namespace pvring::xenbus
