// SPDX-License-Identifier: MIT
// Case 34: a long discard goes to the kernel in pieces, is answered once, and is an error when any
// piece was.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <string>
#include <vector>

#include <pvring/aio/detail/blocking_io.hpp>
#include <pvring/base/unique_fd.hpp>

#include "fake_kernel.hpp"

namespace seam {
namespace {

namespace detail = pvring::aio::detail;
using fake::range_call;

constexpr std::uint64_t gib = std::uint64_t{1} << 30U;
constexpr unsigned long punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

using ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

TEST(in_pieces, covers_a_range_once_in_order_in_pieces_of_a_gib) {
  const auto pieces_of = [](std::uint64_t offset, std::uint64_t length) {
    ranges out;
    EXPECT_EQ(detail::in_pieces(offset, length,
                                [&](std::uint64_t at, std::uint64_t n) {
                                  out.emplace_back(at, n);
                                  return 0;
                                }),
              0);
    return out;
  };
  EXPECT_EQ(pieces_of(512, 0), ranges());
  EXPECT_EQ(pieces_of(512, 1024), (ranges{{512, 1024}}));
  EXPECT_EQ(pieces_of(0, gib), (ranges{{0, gib}}));
  EXPECT_EQ(pieces_of(512, gib + 512), (ranges{{512, gib}, {gib + 512, 512}}));
  EXPECT_EQ(pieces_of(0, 3 * gib), (ranges{{0, gib}, {gib, gib}, {2 * gib, gib}}));
  // More than 32 bits of bytes, and of sectors.
  EXPECT_EQ(pieces_of(0, 8 * gib).size(), 8U);
  EXPECT_EQ(pieces_of(5 * gib, 2048 * gib).back(), std::pair(2052 * gib, gib));
}

TEST(in_pieces, ends_with_the_first_error) {
  for (const unsigned fatal : {1U, 2U, 3U}) {
    unsigned calls = 0;
    EXPECT_EQ(
        detail::in_pieces(
            0, 3 * gib, [&](std::uint64_t, std::uint64_t) { return ++calls == fatal ? -EIO : 0; }),
        -EIO);
    EXPECT_EQ(calls, fatal);
  }
}

class long_range : public testing::Test {
 protected:
  ~long_range() override { kernel_.stop(); }
  fake::kernel& kernel_ = fake::the_kernel();
  const int no_file_ = -1;
};

TEST_F(long_range, of_a_discard_is_an_error_when_its_second_piece_is_and_nothing_follows) {
  kernel_.script({0, EIO, 0});
  EXPECT_EQ(detail::discard_file(no_file_, false, 512, 4 * gib), -EIO);
  EXPECT_EQ(kernel_.calls(), (std::vector<range_call>{{punch, 512, gib}, {punch, gib + 512, gib}}));

  kernel_.script({0, EIO, 0});
  EXPECT_EQ(detail::discard_file(no_file_, true, 512, 4 * gib), -EIO);
  EXPECT_EQ(kernel_.calls(),
            (std::vector<range_call>{{BLKDISCARD, 512, gib}, {BLKDISCARD, gib + 512, gib}}));
}

TEST_F(long_range, of_a_discard_is_not_supported_when_any_piece_says_so_in_whatever_way) {
  for (const int way : {EOPNOTSUPP, ENOTTY, ENODEV, ENOSYS}) {
    kernel_.script({0, way});
    EXPECT_EQ(detail::discard_file(no_file_, false, 0, 2 * gib), -EOPNOTSUPP);
  }
}

// Case 115.
TEST_F(long_range, repeats_only_the_piece_that_a_signal_interrupted) {
  kernel_.script({0, EINTR, EINTR, 0, 0});
  EXPECT_EQ(detail::discard_file(no_file_, false, 0, 3 * gib), 0);
  EXPECT_EQ(kernel_.calls(), (std::vector<range_call>{{punch, 0, gib},
                                                      {punch, gib, gib},
                                                      {punch, gib, gib},
                                                      {punch, gib, gib},
                                                      {punch, 2 * gib, gib}}));
}

TEST_F(long_range, of_zeroes_is_an_error_when_its_second_piece_is_and_nothing_follows) {
  for (const bool block : {false, true}) {
    kernel_.script({0, ENOSPC, 0});
    EXPECT_EQ(detail::zero_file(no_file_, block, 0, 3 * gib), -ENOSPC);
    EXPECT_EQ(kernel_.calls().size(), 2U);
    EXPECT_EQ(kernel_.calls().back().offset, gib);
  }
}

TEST_F(long_range, of_zeroes_is_written_by_hand_only_where_a_piece_is_not_supported) {
  const pvring::unique_fd file(::memfd_create("pieces", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(gib + 8192)), 0);
  const std::string text(8192, 'x');
  ASSERT_EQ(::pwrite(file.get(), text.data(), text.size(), static_cast<off_t>(gib)), 8192);
  ASSERT_EQ(::pwrite(file.get(), text.data(), 4096, 0), 4096);
  kernel_.script({0, EOPNOTSUPP});
  EXPECT_EQ(detail::zero_file(file.get(), false, 0, gib + 4096), 0);
  std::string back(8192, '\0');
  ASSERT_EQ(::pread(file.get(), back.data(), back.size(), static_cast<off_t>(gib)), 8192);
  EXPECT_EQ(back, std::string(4096, '\0') + std::string(4096, 'x'));
  ASSERT_EQ(::pread(file.get(), back.data(), 4096, 0), 4096);
  EXPECT_EQ(back[0], 'x') << "the first piece was the kernel's";
}

// Without a script: the real kernel refuses the second piece, which ends beyond all file offsets.
TEST_F(long_range, of_a_discard_is_an_error_when_the_kernel_refuses_its_second_piece) {
  const pvring::unique_fd file(::memfd_create("pieces", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 4096), 0);
  const std::uint64_t near_the_end = (static_cast<std::uint64_t>(LLONG_MAX) - 2 * gib + 1) + 4096;
  EXPECT_EQ(detail::discard_file(file.get(), false, near_the_end, gib), 0);
  EXPECT_EQ(detail::discard_file(file.get(), false, near_the_end, 2 * gib), -EFBIG);
}

}  // namespace
}  // namespace seam
