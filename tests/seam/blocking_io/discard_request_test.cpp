// SPDX-License-Identifier: MIT
// Case 34 through the ring: one request, one answer, however many pieces the discard takes.
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "fake_kernel.hpp"
#include "support/served_disk.hpp"

namespace seam {
namespace {

using pvring::test::served_disk;
namespace operation = pvring::protocol::blkif::operation;

constexpr std::uint64_t gib = std::uint64_t{1} << 30U;
constexpr std::uint64_t disk_bytes = 10 * gib;

/// A sparse file that is gone with the object.
class sparse_file {
 public:
  sparse_file() {
    const pvring::unique_fd fd(::mkstemp(path_.data()));
    EXPECT_TRUE(fd);
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(disk_bytes)), 0);
  }
  sparse_file(const sparse_file&) = delete;
  sparse_file& operator=(const sparse_file&) = delete;
  ~sparse_file() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = "/dev/shm/pvring_seam_XXXXXX";
};

class discard_request : public testing::Test {
 protected:
  discard_request() : image_(file_.path()), disk_(image_, {}, {}) {}
  ~discard_request() override {
    fake::the_kernel().stop();
    disk_.close();
  }
  std::optional<std::int16_t> discard(std::uint64_t sector, std::uint64_t sectors) {
    return disk_.perform(0,
                         {.operation = operation::discard, .sector = sector, .sectors = sectors});
  }

  sparse_file file_;
  pvring::aio::file_image image_;
  served_disk<pvring::default_config> disk_;
};

TEST_F(discard_request, of_8_gib_is_one_answer_to_8_pieces) {
  ASSERT_NE(image_.discard_granularity(), 0U);
  EXPECT_EQ(discard(0, 0x1000000), 0) << "by the real kernel";
  fake::the_kernel().script({});
  EXPECT_EQ(discard(0, 0x1000000), 0);
  const auto calls = fake::the_kernel().calls();
  ASSERT_EQ(calls.size(), 8U);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].offset, i * gib);
    EXPECT_EQ(calls[i].length, gib);
  }
  EXPECT_EQ(disk_.backend().statistics()[0].discards, 2U);
}

TEST_F(discard_request, is_answered_with_an_error_when_its_second_piece_fails) {
  fake::the_kernel().script({0, EIO});
  EXPECT_EQ(discard(0, 0x1000000), -1);
  EXPECT_EQ(fake::the_kernel().calls().size(), 2U);
  EXPECT_EQ(disk_.backend().statistics()[0].failed, 1U);
  EXPECT_EQ(discard(0, 0x1000000), 0) << "the next one is another one";
}

TEST_F(discard_request, beyond_the_end_is_refused_without_a_call_however_long) {
  fake::the_kernel().script({});
  constexpr std::uint64_t sectors = disk_bytes / 512;
  EXPECT_EQ(discard(0, sectors + 1), -1);
  EXPECT_EQ(discard(0, std::uint64_t{1} << 32U), -1);
  EXPECT_EQ(discard(8, ~std::uint64_t{0} - 7), -1) << "the sum is 0 in 64 bits";
  EXPECT_EQ(discard(std::uint64_t{1} << 55U, std::uint64_t{1} << 55U), -1)
      << "the bytes are 0 in 64 bits";
  EXPECT_EQ(discard(sectors, 1), -1);
  EXPECT_TRUE(fake::the_kernel().calls().empty());
  EXPECT_EQ(discard(0, sectors), 0);
  EXPECT_EQ(fake::the_kernel().calls().size(), 10U);
}

}  // namespace
}  // namespace seam
