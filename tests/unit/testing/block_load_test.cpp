// SPDX-License-Identifier: MIT
// The mixed load finds what is wrong with a disk, and finds nothing where nothing is.
#include "pvring/testing/block_load.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "support/served_disk.hpp"

namespace pvring::testing {
namespace {

using test::memory_config;
using test::served_disk;
using ::testing::HasSubstr;

constexpr std::uint64_t sectors = 2048;

// The image is the queue's thread's from serve() to close(): what orders the two ends then is the
// ring, of which ThreadSanitizer sees two mappings.
class BlockLoad : public ::testing::Test {
 protected:
  BlockLoad() { make_content(image_.bytes(), 0, 3); }
  ~BlockLoad() override { disk_->close(); }

  strict_queue& serve() {
    disk_.emplace(image_, blk::options{}, strict_options{.max_indirect_segments = 64});
    return disk_->queue();
  }

  aio::memory_image image_{sectors * 512};
  std::optional<served_disk<memory_config>> disk_;
  block_model model_{0, sectors, after_discard::old_or_zeroes};
};

TEST_F(BlockLoad, DoesWhatItWasToldTo) {
  block_load load(
      serve(), {{&model_}},
      {.depth = 8, .write_percent = 30, .discard_percent = 10, .requests_per_flush = 20});
  load.run_requests(1000);
  const block_load_counts& counts = load.counts();
  EXPECT_EQ(counts.requests(), 1000U);
  EXPECT_EQ(counts.flushes, 50U);
  EXPECT_NEAR(static_cast<double>(counts.writes), 300, 80);
  EXPECT_NEAR(static_cast<double>(counts.discards), 100, 50);
  EXPECT_EQ(counts.latency.count(), 1000U);
  EXPECT_GT(counts.bytes, 0U);
}

TEST_F(BlockLoad, LeavesTheContentOfAnAreaThatIsToKeepIt) {
  const std::vector<std::byte> before(image_.bytes().begin(), image_.bytes().end());
  block_load load(serve(), {{.model = &model_, .keep_content = true}},
                  {.write_percent = 50, .discard_percent = 50, .scattered = true});
  load.run_requests(1000);
  EXPECT_GT(load.counts().writes, 100U);
  EXPECT_EQ(load.counts().discards, 0U);
  disk_->close();
  EXPECT_TRUE(std::equal(before.begin(), before.end(), image_.bytes().begin()));
}

TEST_F(BlockLoad, EndsWhenItsTimeIsOver) {
  block_load load(serve(), {{&model_}}, {});
  const auto start = block_load::clock::now();
  load.run(start + std::chrono::milliseconds(50));
  EXPECT_GE(block_load::clock::now() - start, std::chrono::milliseconds(50));
  EXPECT_EQ(disk_->queue().in_flight(), 0U);
}

TEST_F(BlockLoad, FindsASectorThatChangedBehindItsBack) {
  ASSERT_FALSE(model_.check(0, image_.bytes()));
  image_.bytes()[777 * 512 + 5] ^= std::byte{1};
  block_load load(serve(), {{&model_}}, {.write_percent = 0});
  try {
    load.run_requests(100'000);
    FAIL() << "nothing was found";
  } catch (const block_failure& e) {
    EXPECT_EQ(e.sector(), 777U);
    EXPECT_THAT(e.what(), HasSubstr("wrong content"));
  }
  // What it has left in flight ends without it.
  while (disk_->queue().in_flight() != 0) {
    disk_->queue().poll([](const block_completion&) {});
    disk_->queue().wait(std::chrono::milliseconds(10));
  }
}

}  // namespace
}  // namespace pvring::testing
