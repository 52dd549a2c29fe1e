// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include <pvring/aio/detail/cursor.hpp>

namespace aio_test {
namespace {

using pvring::aio::detail::cursor;

std::vector<iovec> vectors(std::string& room, const std::vector<std::size_t>& lengths) {
  std::vector<iovec> out;
  std::size_t at = 0;
  for (const std::size_t n : lengths) {
    out.push_back({room.data() + at, n});
    at += n;
  }
  return out;
}

TEST(cursor, gives_whole_entries_where_it_can_and_a_run_where_not) {
  std::string room(1000, 'x');
  const auto buffers = vectors(room, {100, 200, 300});
  cursor at(buffers);
  EXPECT_EQ(at.next().entries.data(), buffers.data());
  EXPECT_EQ(at.next().bytes, 600U);
  at.advance(150);
  auto piece = at.next();
  EXPECT_TRUE(piece.entries.empty());
  EXPECT_EQ(piece.address, room.data() + 150);
  EXPECT_EQ(piece.bytes, 150U);
  at.advance(150);
  piece = at.next();  // a single entry is a run
  EXPECT_TRUE(piece.entries.empty());
  EXPECT_EQ(piece.address, room.data() + 300);
  EXPECT_EQ(piece.bytes, 300U);
  at.advance(300);
  EXPECT_TRUE(at.at_end());
}

TEST(cursor, skips_empty_buffers) {
  std::string room(100, 'x');
  auto buffers = vectors(room, {0, 0, 10, 0, 20, 0});
  cursor at(buffers);
  EXPECT_EQ(at.next().bytes, 30U);
  at.advance(10);
  EXPECT_EQ(at.next().bytes, 20U);
  at.advance(20);
  EXPECT_TRUE(at.at_end());
  buffers = vectors(room, {0, 0});
  EXPECT_TRUE(cursor(buffers).at_end());
  EXPECT_TRUE(cursor().at_end());
}

TEST(cursor, stops_at_the_kernels_limits) {
  std::string room(4096, 'x');
  const std::vector<iovec> many(4096, iovec{room.data(), 1});
  cursor at(many);
  std::size_t pieces = 0;
  while (!at.at_end()) {
    const auto piece = at.next();
    EXPECT_EQ(piece.entries.size(), 1024U);
    at.advance(piece.bytes);
    ++pieces;
  }
  EXPECT_EQ(pieces, 4U);

  // Lengths only: nothing is touched.
  const std::vector<iovec> large = {{room.data(), cursor::most_bytes + 10}, {room.data(), 1}};
  at = cursor(large);
  EXPECT_EQ(at.next().bytes, cursor::most_bytes);
  at.advance(cursor::most_bytes);
  EXPECT_EQ(at.next().bytes, 10U);
  const std::vector<iovec> two = {
      {room.data(), cursor::most_bytes - 1}, {room.data(), 2}, {room.data(), 1}};
  at = cursor(two);
  EXPECT_EQ(at.next().bytes, cursor::most_bytes - 1);
  EXPECT_EQ(at.next().entries.size(), 1U);
}

TEST(cursor, reaches_the_end_whatever_the_steps) {
  std::string room(64, 'x');
  const auto buffers = vectors(room, {7, 0, 1, 16, 3});
  for (std::uint64_t step = 1; step <= 27; ++step) {
    cursor at(buffers);
    std::uint64_t done = 0;
    while (!at.at_end()) {
      const auto piece = at.next();
      const auto* start = piece.entries.empty() ? piece.address : piece.entries[0].iov_base;
      EXPECT_EQ(start, room.data() + done);
      const std::uint64_t n = std::min(step, piece.bytes);
      at.advance(n);
      done += n;
    }
    EXPECT_EQ(done, 27U);
  }
}

TEST(cursor, zeroes_exactly_what_it_is_told) {
  for (std::uint64_t advanced = 0; advanced < 20; ++advanced) {
    for (std::uint64_t skip = 0; advanced + skip <= 30; ++skip) {
      std::string room(40, 'x');
      const auto buffers = vectors(room, {7, 0, 1, 19, 3});
      cursor at(buffers);
      at.advance(advanced);
      at.zero_from(skip, 30 - advanced - skip);
      EXPECT_EQ(room, std::string(advanced + skip, 'x') + std::string(30 - advanced - skip, '\0') +
                          std::string(10, 'x'));
    }
  }
}

}  // namespace
}  // namespace aio_test
