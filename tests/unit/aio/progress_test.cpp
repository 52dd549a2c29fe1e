// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <array>

#include <pvring/aio/detail/progress.hpp>

namespace aio_test {
namespace {

using pvring::aio::operation;
using pvring::aio::transfer;
using pvring::aio::detail::progress;
using step = progress::step;

/// An image whose rules a test can set.
struct rules {
  std::uint32_t unit = 512;
  std::uint64_t bytes = 1 << 20;
  std::uint64_t written_to = 0;

  std::uint32_t alignment() const { return unit; }
  bool reads_as_zero(std::uint64_t stopped, std::uint64_t end) const {
    return stopped >= bytes && end <= (bytes + 511) / 512 * 512;
  }
  void written(std::uint64_t end) { written_to = end; }
};

class progress_of : public testing::Test {
 public:
  progress start(operation kind, std::uint64_t offset, std::size_t length) {
    buffer = {room.data(), length};
    work = {};
    work.kind = kind;
    work.offset = offset;
    work.length = length;
    work.buffers = {&buffer, 1};
    return progress(work);
  }

  std::array<char, 8192> room{};
  iovec buffer{};
  transfer work;
  rules image;
};

TEST_F(progress_of, ends_when_everything_was_transferred) {
  progress p = start(operation::write, 1024, 4096);
  EXPECT_EQ(p.next().bytes, 4096U);
  EXPECT_EQ(p.transferred(4096, image), step::whole);
  EXPECT_EQ(work.done, 4096U);
  EXPECT_EQ(image.written_to, 1024U + 4096U);
}

// Case 114: the rest starts on a whole unit, or direct I/O would refuse it.
TEST_F(progress_of, continues_on_a_whole_unit) {
  for (const operation kind : {operation::read, operation::write}) {
    progress p = start(kind, 1024, 4096);
    EXPECT_EQ(p.next().bytes, 4096U);
    EXPECT_EQ(p.transferred(1000, image), step::continued);
    EXPECT_EQ(p.offset(), 1024U + 512U);
    const auto rest = p.next();
    EXPECT_EQ(rest.address, room.data() + 512);
    EXPECT_EQ(rest.bytes, 4096U - 512U);
    EXPECT_EQ(p.transferred(rest.bytes, image), step::whole);
  }
}

TEST_F(progress_of, continues_on_the_byte_where_there_is_no_unit) {
  image.unit = 1;
  progress p = start(operation::read, 0, 4096);
  (void)p.next();
  EXPECT_EQ(p.transferred(1001, image), step::continued);
  EXPECT_EQ(p.offset(), 1001U);
}

// Case 114.
TEST_F(progress_of, does_not_loop_on_less_than_a_unit) {
  progress p = start(operation::read, 0, 4096);
  (void)p.next();
  EXPECT_EQ(p.transferred(511, image), step::failed);
  EXPECT_EQ(p.error(), -EIO);
}

TEST_F(progress_of, pads_the_partial_last_sector_that_direct_io_stopped_in) {
  image.bytes = 320;
  room.fill('x');
  progress p = start(operation::read, 0, 512);
  (void)p.next();
  EXPECT_EQ(p.transferred(320, image), step::whole);
  EXPECT_EQ(room[319], 'x');
  EXPECT_EQ(room[320], '\0');
  EXPECT_EQ(room[511], '\0');
  EXPECT_EQ(room[512], 'x');
}

TEST_F(progress_of, reads_short_as_often_as_it_moves) {
  progress p = start(operation::read, 0, 4096);
  for (int i = 0; i < 7; ++i) {
    (void)p.next();
    EXPECT_EQ(p.transferred(512, image), step::continued);
  }
  EXPECT_EQ(p.next().bytes, 512U);
  EXPECT_EQ(p.transferred(512, image), step::whole);
}

// Case 114.
TEST_F(progress_of, writes_short_once) {
  progress p = start(operation::write, 0, 4096);
  (void)p.next();
  EXPECT_EQ(p.transferred(0, image), step::continued);
  (void)p.next();
  EXPECT_EQ(p.transferred(0, image), step::failed);
  EXPECT_EQ(p.error(), -ENOSPC);

  p = start(operation::write, 0, 4096);
  (void)p.next();
  EXPECT_EQ(p.transferred(512, image), step::continued);
  (void)p.next();
  EXPECT_EQ(p.transferred(512, image), step::failed);
  EXPECT_EQ(p.error(), -EIO);
  EXPECT_EQ(image.written_to, 0U);
}

}  // namespace
}  // namespace aio_test
