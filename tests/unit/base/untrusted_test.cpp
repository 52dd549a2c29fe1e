// SPDX-License-Identifier: MIT
// A peer's number must be unusable until it was bounded; what does not compile is also in
// tests/compile_fail.
#include "pvring/base/untrusted.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

namespace {

using pvring::untrusted;

// Nothing turns one into a number by accident, in either direction.
static_assert(!std::is_convertible_v<untrusted<std::uint32_t>, std::uint32_t>);
static_assert(!std::is_constructible_v<std::uint64_t, untrusted<std::uint32_t>>);
static_assert(!std::is_convertible_v<std::uint32_t, untrusted<std::uint32_t>>);
static_assert(std::is_trivially_copyable_v<untrusted<std::uint64_t>>);
static_assert(sizeof(untrusted<std::uint64_t>) == sizeof(std::uint64_t));

template <class T>
concept adds = requires(T a, T b) { a + b; };
template <class T>
concept compares = requires(T a, T b) { a < b; };
template <class T>
concept equals = requires(T a, T b) { a == b; };
template <class T>
concept tests = requires(T a) { a ? 1 : 0; };
static_assert(!adds<untrusted<std::uint32_t>>);
static_assert(!compares<untrusted<std::uint32_t>>);
static_assert(!equals<untrusted<std::uint32_t>>);
static_assert(!tests<untrusted<std::uint32_t>>);
static_assert(adds<std::uint32_t> && compares<std::uint32_t> && equals<std::uint32_t> &&
              tests<std::uint32_t>);

TEST(Untrusted, BoundIncludesItself) {
  constexpr untrusted<std::uint16_t> n(11);
  EXPECT_EQ(n.at_most(11), 11);
  EXPECT_EQ(n.at_most(12), 11);
  EXPECT_EQ(n.at_most(10), std::nullopt);
}

TEST(Untrusted, RangeIncludesBothEnds) {
  constexpr untrusted<std::uint8_t> n(5);
  EXPECT_EQ(n.within(5, 5), 5);
  EXPECT_EQ(n.within(0, 255), 5);
  EXPECT_EQ(n.within(6, 255), std::nullopt);
  EXPECT_EQ(n.within(0, 4), std::nullopt);
  EXPECT_EQ(n.within(6, 4), std::nullopt) << "an empty range holds nothing";
}

TEST(Untrusted, LargestValueIsBoundedToo) {
  constexpr untrusted<std::uint64_t> n(UINT64_MAX);
  EXPECT_EQ(n.at_most(UINT64_MAX), UINT64_MAX);
  EXPECT_EQ(n.at_most(UINT64_MAX - 1), std::nullopt);
}

TEST(Untrusted, EchoGivesBackWhatCame) {
  EXPECT_EQ(untrusted<std::uint64_t>(0x1122334455667788U).echo(), 0x1122334455667788U);
  EXPECT_EQ(untrusted<std::uint64_t>().echo(), 0U);
}

}  // namespace
