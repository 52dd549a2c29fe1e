// SPDX-License-Identifier: MIT
// The power fails, many times, at random moments, and storage keeps a random part of what no flush
// had made durable. Whatever an acknowledged flush covered has to be there. Storage that forgets or
// postpones flushes must be found out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "pvring/testing/volatile_cache_engine.hpp"
#include "support/served_disk.hpp"

namespace pvring::test {
namespace {

struct cached_config : default_config {
  using engine = testing::volatile_cache_engine;
};

constexpr std::uint64_t blocks = 64;  // of 8 sectors
constexpr std::uint64_t sectors = blocks * 8;

// Writes numbered versions of blocks, flushes now and then, and knows what has to be there after a
// cut.
class guest {
 public:
  guest(served_disk<cached_config>& disk, std::uint32_t seed)
      : disk_(disk), random_(seed), written_(blocks), sent_(blocks), covered_(blocks) {}

  void work(int steps) {
    auto& queue = disk_.queue();
    const auto segments = testing::segments_for(8);
    for (int step = 0; step < steps; ++step) {
      if (random_() % 6 == 0) {
        // Covers what was answered before it is submitted.
        if (queue.submit(
                {.operation = protocol::blkif::operation::flush, .cookie = next_cookie_})) {
          flushes_[next_cookie_++] = written_;
        }
      } else {
        const std::uint64_t block = random_() % blocks;
        if (busy_.contains(block)) {
          continue;  // two versions of a block in flight may be written in either order
        }
        const std::uint64_t version = ++version_;
        if (queue.submit({.operation = protocol::blkif::operation::write,
                          .sector = block * 8,
                          .segments = segments,
                          .cookie = next_cookie_},
                         [version](std::size_t offset, std::span<std::byte> bytes) {
                           for (std::size_t at = 0; at < bytes.size(); at += 512) {
                             std::memset(bytes.data() + at, 0, 512);
                             std::memcpy(bytes.data() + at, &version, sizeof version);
                           }
                           (void)offset;
                         })) {
          busy_.insert({block, version});
          sent_[block] = version;
          writes_[next_cookie_++] = block;
        }
      }
      if (random_() % 4 == 0) {
        queue.publish();
        if (random_() % 2 == 0) {
          queue.wait(std::chrono::milliseconds(20));
        }
        collect();
      }
    }
    queue.publish();
    collect();
  }

  // Until nothing is in flight, and then a flush and its answer: the moment at which a flush that
  // was answered too early shows.
  void end_with_a_flush() {
    settle();
    if (disk_.queue().submit(
            {.operation = protocol::blkif::operation::flush, .cookie = next_cookie_})) {
      flushes_[next_cookie_++] = written_;
    }
    settle();
  }

  void collect() {
    disk_.queue().poll([&](const testing::block_completion& end) {
      if (const auto flush = flushes_.find(end.cookie); flush != flushes_.end()) {
        if (end.okay()) {
          ++flushed_;
          for (std::uint64_t block = 0; block < blocks; ++block) {
            covered_[block] = std::max(covered_[block], flush->second[block]);
          }
        }
        flushes_.erase(flush);
      } else if (const auto write = writes_.find(end.cookie); write != writes_.end()) {
        if (end.okay()) {
          written_[write->second] = busy_.at(write->second);
        }
        busy_.erase(write->second);
        writes_.erase(write);
      }
    });
  }

  void settle() {
    disk_.queue().publish();
    for (int i = 0; i < 1000 && disk_.queue().in_flight() != 0; ++i) {
      disk_.queue().wait(std::chrono::milliseconds(20));
      collect();
    }
  }

  // How many sectors lost something that a flush had covered.
  [[nodiscard]] std::size_t losses(const testing::volatile_cache_image& image) const {
    std::size_t lost = 0;
    for (std::uint64_t sector = 0; sector < sectors; ++sector) {
      std::uint64_t version = 0;
      const auto data = image.durable(sector);
      std::memcpy(&version, data.data(), sizeof version);
      EXPECT_LE(version, sent_[sector / 8]) << "a version that nobody wrote";
      lost += version < covered_[sector / 8] ? 1U : 0U;
    }
    return lost;
  }
  [[nodiscard]] std::size_t flushes() const { return flushed_; }

 private:
  served_disk<cached_config>& disk_;
  std::mt19937 random_;
  std::vector<std::uint64_t> written_;  // acknowledged versions
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> covered_;  // by an acknowledged flush
  std::map<std::uint64_t, std::vector<std::uint64_t>> flushes_;
  std::map<std::uint64_t, std::uint64_t> writes_;
  std::map<std::uint64_t, std::uint64_t> busy_;
  std::uint64_t next_cookie_ = 1;
  std::uint64_t version_ = 0;
  std::size_t flushed_ = 0;
};

struct outcome {
  std::size_t lost = 0;
  std::size_t flushes = 0;
};

outcome cut_many_times(const testing::volatile_cache_options& options, int cuts,
                       std::string_view strategy) {
  outcome all;
  for (int cut = 0; cut < cuts; ++cut) {
    std::mt19937 random(static_cast<std::uint32_t>(cut) * 7919U + 1U);
    testing::volatile_cache_image image(sectors * 512, options);
    served_disk<cached_config> disk(image, {.strategy = std::string(strategy)}, {});
    guest load(disk, static_cast<std::uint32_t>(cut));
    for (int i = 0; i < 8; ++i) {
      load.work(static_cast<int>(20 + random() % 60));
    }
    if (cut % 3 == 0) {
      load.end_with_a_flush();
    }
    load.collect();  // what is acknowledged up to here, at the latest
    image.cut(random);
    all.lost += load.losses(image);
    all.flushes += load.flushes();
  }
  return all;
}

class PowerCut : public ::testing::TestWithParam<const char*> {};

TEST_P(PowerCut, loses_nothing_that_an_acknowledged_flush_covered) {
  const outcome honest = cut_many_times({}, 60, GetParam());
  EXPECT_EQ(honest.lost, 0U);
  EXPECT_GT(honest.flushes, 60U) << "or nothing was tested";
}
INSTANTIATE_TEST_SUITE_P(every, PowerCut,
                         ::testing::Values("batched_copy", "map_each", "persistent_pool"));

TEST(PowerCutCheck, finds_storage_that_forgets_its_flushes) {
  EXPECT_GT(cut_many_times({.flush_lies = true}, 20, "").lost, 0U);
}
TEST(PowerCutCheck, finds_storage_that_answers_flushes_before_they_are_done) {
  EXPECT_GT(cut_many_times({.flush_early = true}, 60, "").lost, 0U);
}

}  // namespace
}  // namespace pvring::test
