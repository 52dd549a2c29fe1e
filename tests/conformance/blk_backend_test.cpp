// SPDX-License-Identifier: MIT
// What every block backend has to do for a strict frontend, over every strategy, ABI, number of
// queues and size of ring. The composition that is tested is the library's own.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "pvring/testing/block_load.hpp"
#include "support/served_disk.hpp"

namespace pvring::test {
namespace {

using testing::block_completion;
using testing::block_model;
using testing::block_segment;
namespace operation = protocol::blkif::operation;
using protocol::blkif::abi;

constexpr std::uint64_t disk_bytes = 8U << 20U;
constexpr std::uint64_t disk_sectors = disk_bytes / 512;

using parameters = std::tuple<const char*, abi, std::uint32_t, std::uint32_t>;

class BlkBackend : public ::testing::TestWithParam<parameters> {
 protected:
  void SetUp() override {
    const auto& [strategy, wire, queues, pages] = GetParam();
    testing::make_content(image_.bytes(), 0, 7);
    const auto order = static_cast<std::uint32_t>(std::countr_zero(pages));
    disk_ = std::make_unique<served_disk<memory_config>>(
        image_, blk::options{.max_queues = 4, .max_ring_page_order = 4, .strategy = strategy},
        testing::strict_options{.abi = wire,
                                .queues = queues,
                                .ring_page_order = order,
                                .max_indirect_segments = 256,
                                .guard_pages = true});
    ASSERT_TRUE(disk_->frontend().connected());
    ASSERT_EQ(disk_->frontend().queue_count(), queues);
    ASSERT_EQ(disk_->frontend().ring_pages(), pages);
    ASSERT_EQ(disk_->frontend().device().sectors, disk_sectors);
    ASSERT_EQ(disk_->frontend().device().persistent,
              std::string_view(strategy) == "persistent_pool");
    ASSERT_EQ(disk_->frontend().device().max_indirect_segments, 256U);
    for (const blk::queue_statistics& queue : disk_->backend().statistics()) {
      ASSERT_EQ(queue.strategy, strategy);
    }
  }
  void TearDown() override {
    if (disk_) {
      disk_->close();
    }
  }

  [[nodiscard]] std::uint32_t queues() { return disk_->frontend().queue_count(); }

  /// Runs `work(i)` for each queue at the same time.
  template <class Work>
  void on_all_queues(Work&& work) {
    std::vector<std::jthread> threads;
    for (std::uint32_t i = 0; i < queues(); ++i) {
      threads.emplace_back([&work, i] {
        try {
          work(i);
        } catch (const testing::block_failure& e) {
          ADD_FAILURE() << "queue " << i << ", sector " << e.sector() << ": " << e.what();
        }
      });
    }
  }

  std::optional<std::int16_t> write(std::uint32_t queue, std::uint64_t sector,
                                    const std::vector<block_segment>& segments,
                                    std::uint64_t version, bool indirect = false) {
    return disk_->perform(
        queue,
        {.operation = operation::write,
         .sector = sector,
         .segments = segments,
         .indirect = indirect},
        [&](std::size_t offset, std::span<std::byte> bytes) {
          testing::make_content(bytes, sector + offset / 512, version);
        },
        [](const block_completion&) {});
  }

  /// The bytes of a read; empty when it failed.
  std::vector<std::byte> read(std::uint32_t queue, std::uint64_t sector,
                              const std::vector<block_segment>& segments, bool indirect = false) {
    std::vector<std::byte> bytes;
    (void)disk_->perform(
        queue,
        {.operation = operation::read,
         .sector = sector,
         .segments = segments,
         .indirect = indirect},
        [](std::size_t, std::span<std::byte>) {},
        [&](const block_completion& end) {
          if (end.okay()) {
            bytes.resize(end.sectors * 512);
            end.copy_to(bytes);
          }
        });
    return bytes;
  }

  [[nodiscard]] std::vector<std::byte> content(std::uint64_t sector, std::uint64_t sectors,
                                               std::uint64_t version) {
    std::vector<std::byte> bytes(sectors * 512);
    testing::make_content(bytes, sector, version);
    return bytes;
  }

  aio::memory_image image_{disk_bytes};
  std::unique_ptr<served_disk<memory_config>> disk_;
};

TEST_P(BlkBackend, ReadsTheWholeDisk) {
  on_all_queues([&](std::uint32_t i) {
    // Each queue reads everything.
    testing::strict_queue& queue = disk_->queue(i);
    const auto segments = testing::segments_for(88);
    std::uint64_t next = 0;
    std::uint64_t seen = 0;
    while (seen < disk_sectors) {
      for (bool put = true; put && next < disk_sectors;) {
        const std::uint64_t here = std::min<std::uint64_t>(88, disk_sectors - next);
        put = queue
                  .submit({.sector = next,
                           .segments = here == 88 ? segments : testing::segments_for(here)})
                  .has_value();
        next += put ? here : 0;
      }
      queue.publish();
      const std::size_t ended = queue.poll([&](const block_completion& end) {
        ASSERT_TRUE(end.okay()) << "sector " << end.sector << ": status " << end.status;
        seen += end.sectors;
        end.for_each_part([&](std::size_t offset, std::span<const std::byte> bytes) {
          const std::byte* const expected = image_.bytes().data() + end.sector * 512 + offset;
          ASSERT_EQ(std::memcmp(bytes.data(), expected, bytes.size()), 0)
              << "sector " << end.sector;
        });
      });
      if (ended == 0) {
        ASSERT_FALSE(disk_->frontend().disabled()) << disk_->frontend().violations_text();
        queue.wait(std::chrono::milliseconds(100));
      }
    }
  });
}

TEST_P(BlkBackend, KeepsEveryWriteOfAMixedLoad) {
  auto models =
      testing::share_out(0, disk_sectors, queues(), 8, testing::after_discard::old_or_zeroes);
  for (const bool scattered : {false, true}) {
    on_all_queues([&](std::uint32_t i) {
      testing::block_load load(disk_->queue(i), {{&models[i]}},
                               {.seed = i + (scattered ? 100U : 1U),
                                .depth = 24,
                                .write_percent = 45,
                                .discard_percent = 5,
                                .requests_per_flush = 50,
                                .scattered = scattered});
      load.run_requests(400);
      EXPECT_EQ(load.counts().requests(), 400U);
      EXPECT_GT(load.counts().discards, 0U);
      EXPECT_GT(load.counts().flushes, 0U);
    });
  }
  disk_->close();
  for (block_model& model : models) {
    const auto wrong =
        model.check(model.first_sector(),
                    image_.bytes().subspan(model.first_sector() * 512, model.sectors() * 512));
    EXPECT_FALSE(wrong) << wrong->what;
  }
}

TEST_P(BlkBackend, AnswersFlushesWithAndWithoutData) {
  EXPECT_EQ(disk_->perform(0, {.operation = operation::flush}), 0);
  const auto segments = testing::segments_for(8);
  const auto status = disk_->perform(
      0, {.operation = operation::flush, .sector = 64, .segments = segments},
      [](std::size_t offset, std::span<std::byte> bytes) {
        testing::make_content(bytes, 64 + offset / 512, 1);
      },
      [](const block_completion&) {});
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read(0, 64, segments), content(64, 8, 1));
}

TEST_P(BlkBackend, DiscardsNoMoreThanItWasTold) {
  ASSERT_TRUE(disk_->frontend().device().discard);
  EXPECT_EQ(disk_->perform(0, {.operation = operation::discard, .sector = 1000, .sectors = 16}), 0);
  EXPECT_EQ(read(0, 992, testing::segments_for(8)), content(992, 8, 7));
  EXPECT_EQ(read(0, 1016, testing::segments_for(8)), content(1016, 8, 7));
  EXPECT_EQ(read(0, 1000, testing::segments_for(16)), std::vector<std::byte>(16 * 512));
}

TEST_P(BlkBackend, TransfersIndirectRequestsOfUpTo256Segments) {
  std::uint64_t version = 100;
  for (const std::size_t count : {1U, 11U, 12U, 33U, 255U, 256U}) {
    const std::uint32_t queue = static_cast<std::uint32_t>(count) % queues();
    // Each queue has a place of its own: ThreadSanitizer cannot see that an answer through one ring
    // comes before a request through another one, as both ends map the rings at addresses of their
    // own.
    const std::uint64_t at = 3 + queue * (disk_sectors / queues());
    // Whole pages; then parts of pages of every kind.
    std::vector<block_segment> whole(count);
    std::vector<block_segment> parts;
    for (std::size_t i = 0; i < count; ++i) {
      const auto first = static_cast<std::uint8_t>(i * 5 % 8);
      parts.push_back({first, static_cast<std::uint8_t>(first + i * 3 % (8U - first))});
    }
    for (const auto& segments : {whole, parts}) {
      std::uint64_t sectors = 0;
      for (const block_segment& one : segments) {
        sectors += one.sectors();
      }
      ++version;
      ASSERT_EQ(write(queue, at, segments, version, true), 0) << count << " segments";
      ASSERT_EQ(read(queue, at, segments, true), content(at, sectors, version))
          << count << " segments";
      EXPECT_EQ(read(queue, at + sectors, testing::segments_for(1)).size(), 512U);
    }
  }
}

TEST_P(BlkBackend, RefusesWhatLiesBeyondTheDisk) {
  const auto segments = testing::segments_for(8);
  for (const std::uint64_t sector :
       {disk_sectors - 7, disk_sectors, ~std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
    EXPECT_EQ(
        disk_->perform(0, {.operation = operation::read, .sector = sector, .segments = segments}),
        -1);
    EXPECT_EQ(
        disk_->perform(0, {.operation = operation::write, .sector = sector, .segments = segments}),
        -1);
    EXPECT_EQ(disk_->perform(0, {.operation = operation::discard, .sector = sector, .sectors = 8}),
              -1);
  }
  EXPECT_EQ(read(0, disk_sectors - 8, segments), content(disk_sectors - 8, 8, 7));
}

TEST_P(BlkBackend, AnswersUnknownOperationsAsNotSupportedAndGoesOn) {
  const auto segments = testing::segments_for(8);
  for (const int what : {2, 4, 7, 77, 255}) {
    EXPECT_EQ(disk_->perform(queues() - 1, {.operation = static_cast<std::uint8_t>(what),
                                            .sector = 0,
                                            .segments = segments}),
              -2)
        << "operation " << what;
  }
  EXPECT_EQ(read(queues() - 1, 0, segments), content(0, 8, 7));
}

TEST_P(BlkBackend, ConnectsAnewAfterTheFrontendClosed) {
  ASSERT_EQ(write(0, 8, testing::segments_for(8), 55), 0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(disk_->frontend().close());
    disk_->frontend().reopen();
    ASSERT_TRUE(disk_->frontend().connect()) << disk_->frontend().error();
    EXPECT_EQ(read(queues() - 1, 8, testing::segments_for(8)), content(8, 8, 55));
  }
}

std::string name_of(const ::testing::TestParamInfo<parameters>& info) {
  const auto& [strategy, wire, queues, pages] = info.param;
  return std::string(strategy) + (wire == abi::x86_32 ? "_x86_32" : "_x86_64") + "_queues" +
         std::to_string(queues) + "_pages" + std::to_string(pages);
}

INSTANTIATE_TEST_SUITE_P(EveryWay, BlkBackend,
                         ::testing::Combine(::testing::Values("batched_copy", "persistent_pool",
                                                              "map_each"),
                                            ::testing::Values(abi::x86_64, abi::x86_32),
                                            ::testing::Values(1U, 4U), ::testing::Values(1U, 16U)),
                         name_of);

}  // namespace
}  // namespace pvring::test
