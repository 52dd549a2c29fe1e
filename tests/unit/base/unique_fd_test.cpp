// SPDX-License-Identifier: MIT
// A descriptor has one owner, who closes it once.
#include "pvring/base/unique_fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <type_traits>
#include <utility>

namespace {

using pvring::unique_fd;

static_assert(!std::is_copy_constructible_v<unique_fd>);
static_assert(!std::is_copy_assignable_v<unique_fd>);
static_assert(std::is_nothrow_move_constructible_v<unique_fd>);
static_assert(std::is_nothrow_move_assignable_v<unique_fd>);
static_assert(!std::is_convertible_v<int, unique_fd>);

int open_one() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

TEST(UniqueFd, ClosesAtItsEnd) {
  const int fd = open_one();
  {
    const unique_fd owner(fd);
    EXPECT_TRUE(owner);
    EXPECT_EQ(owner.get(), fd);
  }
  EXPECT_FALSE(is_open(fd));
}

TEST(UniqueFd, NoneIsNotClosed) {
  const unique_fd none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.get(), -1);
}

TEST(UniqueFd, ZeroIsADescriptor) {
  unique_fd owner(0);
  EXPECT_TRUE(owner);
  EXPECT_EQ(owner.release(), 0);
}

TEST(UniqueFd, MovingLeavesNothingBehind) {
  unique_fd a(open_one());
  const int fd = a.get();
  unique_fd b(std::move(a));
  EXPECT_EQ(a.get(), -1);  // NOLINT: moved from, and that is what is tested
  EXPECT_EQ(b.get(), fd);
  EXPECT_TRUE(is_open(fd));
}

TEST(UniqueFd, AssigningClosesWhatWasHeld) {
  unique_fd a(open_one());
  unique_fd b(open_one());
  const int of_a = a.get();
  const int of_b = b.get();
  a = std::move(b);
  EXPECT_FALSE(is_open(of_a));
  EXPECT_EQ(a.get(), of_b);
}

TEST(UniqueFd, AssigningToItselfKeepsIt) {
  unique_fd a(open_one());
  const int fd = a.get();
  unique_fd& same = a;
  a = std::move(same);
  EXPECT_EQ(a.get(), fd);
  EXPECT_TRUE(is_open(fd));
}

TEST(UniqueFd, ReleaseHandsItOverOpen) {
  unique_fd a(open_one());
  const int fd = a.release();
  EXPECT_FALSE(a);
  EXPECT_TRUE(is_open(fd));
  a.reset(fd);
  a.reset();
  EXPECT_FALSE(is_open(fd));
}

}  // namespace
