// SPDX-License-Identifier: MIT
// Segments as a test lays them out, and the data of a completion.
#include "pvring/testing/block_request.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace pvring::testing {
namespace {

TEST(BlockRequest, LaysSectorsOutAsMemoryInOnePiece) {
  for (std::uint8_t first = 0; first < 8; ++first) {
    for (std::uint64_t sectors = 1; sectors < 40; ++sectors) {
      const auto list = segments_for(sectors, first);
      ASSERT_EQ(list.size(), (sectors + first + 7) / 8);
      EXPECT_EQ(list.front().first_sect, first);
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < list.size(); ++i) {
        EXPECT_LE(list[i].first_sect, list[i].last_sect);
        EXPECT_LT(list[i].last_sect, 8);
        EXPECT_TRUE(i == 0 || list[i].first_sect == 0);
        EXPECT_TRUE(i + 1 == list.size() || list[i].last_sect == 7);
        EXPECT_EQ(list[i].bytes(), list[i].sectors() * 512U);
        sum += list[i].sectors();
      }
      EXPECT_EQ(sum, sectors);
    }
  }
  EXPECT_TRUE(segments_for(0).empty());
}

TEST(BlockRequest, AppendsToAListThatIsThere) {
  std::vector<block_segment> list = segments_for(8);
  append_segments(list, 2, 3);
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[1].first_sect, 3);
  EXPECT_EQ(list[1].last_sect, 4);
  EXPECT_EQ(list[1].offset(), 3U * 512U);
}

TEST(BlockRequest, CompletionsShowPartsInOrder) {
  std::array<std::byte, 8192> pages{};
  pages[512] = std::byte{1};
  pages[4096] = std::byte{2};
  const std::vector<block_completion::part> parts{{pages.data(), {1, 1}},
                                                  {pages.data() + 4096, {0, 1}}};
  block_completion end;
  end.parts = parts;
  std::vector<std::size_t> offsets;
  end.for_each_part(
      [&](std::size_t offset, std::span<const std::byte>) { offsets.push_back(offset); });
  EXPECT_EQ(offsets, (std::vector<std::size_t>{0, 512}));
  std::vector<std::byte> copy(3 * 512);
  end.copy_to(copy);
  EXPECT_EQ(copy[0], std::byte{1});
  EXPECT_EQ(copy[512], std::byte{2});
}

TEST(BlockRequest, OnlyAnAnswerIsOkay) {
  block_completion end;
  EXPECT_TRUE(end.okay());
  EXPECT_TRUE(end.is(protocol::blkif::status::okay));
  end.status = -2;
  EXPECT_TRUE(end.is(protocol::blkif::status::not_supported));
  EXPECT_FALSE(end.okay());
  end.status = 0;
  end.answered = false;
  EXPECT_FALSE(end.okay());
  EXPECT_FALSE(end.is(protocol::blkif::status::okay));
}

}  // namespace
}  // namespace pvring::testing
