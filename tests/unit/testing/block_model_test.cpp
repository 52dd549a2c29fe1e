// SPDX-License-Identifier: MIT
// The model of a disk's content: what it accepts, what it finds, and which requests it keeps apart.
#include "pvring/testing/block_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace pvring::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> content(std::uint64_t sector, std::uint64_t sectors, std::uint64_t version) {
  std::vector<std::byte> bytes(sectors * 512);
  make_content(bytes, sector, version);
  return bytes;
}

void write(block_model& model, std::uint64_t sector, std::uint64_t sectors, std::uint64_t version,
           bool okay = true) {
  ASSERT_TRUE(model.begin_write(sector, sectors));
  model.carries(sector, content(sector, sectors, version));
  model.end_write(sector, sectors, okay);
}

TEST(BlockContent, DiffersBetweenSectorsAndVersions) {
  std::set<content_id> seen;
  for (std::uint64_t sector = 0; sector < 100; ++sector) {
    for (std::uint64_t version = 0; version < 20; ++version) {
      seen.insert(content_of(content(sector, 1, version)));
    }
  }
  EXPECT_EQ(seen.size(), 2000U);
}

TEST(BlockContent, IsOtherWhereAnyBitIs) {
  auto bytes = content(1, 1, 1);
  const content_id original = content_of(bytes);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      bytes[at] ^= std::byte(1U << bit);
      EXPECT_NE(content_of(bytes), original) << "byte " << at << ", bit " << bit;
      bytes[at] ^= std::byte(1U << bit);
    }
  }
}

TEST(BlockContent, OfSeveralSectorsIsThatOfEach) {
  const auto together = content(5, 3, 2);
  EXPECT_EQ(content_of(std::span(together).subspan(512, 512)), content_of(content(6, 1, 2)));
}

TEST(BlockModel, TakesWhatIsReadFirstForRightAndThenInsistsOnIt) {
  block_model model(100, 50);
  EXPECT_FALSE(model.check(110, content(110, 4, 1)));
  EXPECT_EQ(model.learnt(), 4U);
  EXPECT_FALSE(model.check(110, content(110, 4, 1)));
  EXPECT_EQ(model.verified(), 4U);
  auto changed = content(110, 4, 1);
  changed[2 * 512 + 100] ^= std::byte{1};
  const auto wrong = model.check(110, changed);
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->sector, 112U);
  EXPECT_THAT(wrong->what, HasSubstr("sector 112"));
}

TEST(BlockModel, ExpectsWhatWasWritten) {
  block_model model(0, 64);
  write(model, 8, 8, 1);
  write(model, 12, 8, 2);
  EXPECT_FALSE(model.check(8, content(8, 4, 1)));
  EXPECT_FALSE(model.check(12, content(12, 8, 2)));
  const auto stale = model.check(12, content(12, 8, 1));
  ASSERT_TRUE(stale);
  EXPECT_THAT(stale->what, HasSubstr("version 1"));
  const auto misplaced = model.check(12, content(13, 1, 2));
  ASSERT_TRUE(misplaced);
  EXPECT_THAT(misplaced->what, HasSubstr("version 2 of sector 13"));
  const auto zeroes = model.check(12, std::vector<std::byte>(512));
  ASSERT_TRUE(zeroes);
  EXPECT_THAT(zeroes->what, HasSubstr("zeroes"));
}

TEST(BlockModel, ExpectsNothingOfWhatAFailedWriteMayHaveTorn) {
  block_model model(0, 8);
  write(model, 0, 8, 1);
  write(model, 2, 1, 2, false);
  EXPECT_FALSE(model.check(2, content(77, 1, 77)));
  EXPECT_EQ(model.undetermined(), 1U);
  EXPECT_TRUE(model.check(3, content(77, 1, 77)));
  write(model, 2, 1, 3);
  EXPECT_TRUE(model.check(2, content(77, 1, 77)));
}

TEST(BlockModel, ExpectsOldContentOrZeroesAfterADiscardWhereThatWasSaid) {
  for (const auto how : {after_discard::anything, after_discard::old_or_zeroes}) {
    block_model model(0, 8, how);
    write(model, 0, 8, 1);
    ASSERT_TRUE(model.begin_discard(2, 2));
    model.end_discard(2, 2);
    EXPECT_FALSE(model.check(2, content(2, 2, 1)));
    EXPECT_FALSE(model.check(2, std::vector<std::byte>(1024)));
    EXPECT_EQ(model.check(2, content(3, 1, 9)).has_value(), how == after_discard::old_or_zeroes);
    EXPECT_TRUE(model.check(1, std::vector<std::byte>(512)));
    // Written again it is as certain as ever.
    write(model, 2, 1, 4);
    EXPECT_TRUE(model.check(2, std::vector<std::byte>(512)));
  }
}

TEST(BlockModel, ExpectsNothingAfterTheDiscardOfSomethingUnknown) {
  block_model model(0, 8, after_discard::old_or_zeroes);
  ASSERT_TRUE(model.begin_discard(0, 1));
  model.end_discard(0, 1);
  EXPECT_FALSE(model.check(0, content(0, 1, 5)));
  EXPECT_FALSE(model.check(0, content(0, 1, 6)));
}

TEST(BlockModel, KeepsRequestsApartWhoseOrderMatters) {
  block_model model(0, 64);
  ASSERT_TRUE(model.begin_read(0, 16));
  EXPECT_TRUE(model.begin_read(8, 16));
  EXPECT_FALSE(model.begin_write(15, 1));
  EXPECT_FALSE(model.begin_discard(23, 8));
  ASSERT_TRUE(model.begin_write(24, 8));
  EXPECT_FALSE(model.begin_read(20, 8));
  EXPECT_FALSE(model.begin_write(31, 4));
  model.end_read(0, 16);
  EXPECT_FALSE(model.begin_write(8, 8));
  EXPECT_TRUE(model.begin_write(0, 8));
  model.end_read(8, 16);
  EXPECT_TRUE(model.begin_write(8, 8));
  model.cancel(24, 8);
  EXPECT_TRUE(model.begin_read(24, 8));
}

TEST(BlockModel, RefusesAClaimAsAWhole) {
  block_model model(0, 16);
  ASSERT_TRUE(model.begin_write(8, 1));
  EXPECT_FALSE(model.begin_write(4, 8));
  EXPECT_TRUE(model.begin_write(4, 4)) << "nothing is left of the one that was refused";
}

TEST(BlockModel, ForgetsOnDemand) {
  block_model model(0, 8);
  write(model, 0, 8, 1);
  model.forget(1, 2);
  EXPECT_FALSE(model.check(1, content(1, 2, 5)));
  EXPECT_TRUE(model.check(1, content(1, 2, 1)));
}

TEST(BlockModel, IsSharedOutWithoutGapsOrOverlaps) {
  const auto models = share_out(100, 1003, 4, 8);
  ASSERT_EQ(models.size(), 4U);
  std::uint64_t next = 100;
  for (const block_model& model : models) {
    EXPECT_EQ(model.first_sector(), next);
    EXPECT_TRUE(model.contains(next, model.sectors()));
    EXPECT_FALSE(model.contains(next, model.sectors() + 1));
    EXPECT_FALSE(model.contains(next - 1, 1));
    next += model.sectors();
  }
  EXPECT_EQ(next, 1103U);
}

}  // namespace
}  // namespace pvring::testing
