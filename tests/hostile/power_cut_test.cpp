// SPDX-License-Identifier: MIT
// The power fails, many times, at random moments, and storage keeps a random part of what no flush
// had made durable. Whatever an acknowledged flush covered has to be there, on whichever queue it
// was written. Storage that forgets or postpones flushes must be found out, and a backend that
// does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "pvring/testing/volatile_cache_engine.hpp"
#include "support/served_disk.hpp"

namespace pvring::test {
namespace {

struct cached_config : default_config {
  using engine = testing::volatile_cache_engine;
};

// What a backend may do wrong with the flushes that its frontend asks for.
enum class flaw {
  forgets,        // answers them, and does nothing
  answers_early,  // answers them at once, and does them with what comes next
  per_queue,      // answers them at once where this queue has written nothing since the last one
};

// Plays such a backend: a context whose flushes do not come through as the queue means them.
template <flaw Flaw>
struct flawed_engine {
  using policy_kind = pvring::policy_kind::engine;
  using image = testing::volatile_cache_image;

  class context {
   public:
    // Room for the flushes of its own besides.
    context(image& of, aio::context_options options)
        : inner_(of, {.capacity = 2 * options.capacity}), capacity_(options.capacity) {}

    void submit(std::span<aio::transfer* const> batch) noexcept {
      std::vector<aio::transfer*> pass;
      if (std::exchange(late_, false)) {
        own_.push_back(std::make_unique<aio::transfer>());
        own_.back()->kind = aio::operation::flush;
        pass.push_back(own_.back().get());
      }
      for (aio::transfer* work : batch) {
        if (work->kind != aio::operation::flush || is_needed()) {
          flushes_ += work->kind == aio::operation::flush ? 1U : 0U;
          pass.push_back(work);
        } else {
          answered_.push_back(work);
          late_ = Flaw == flaw::answers_early;
        }
      }
      inner_.submit(pass);
    }

    template <class F>
    std::size_t reap(F&& f) noexcept {
      std::size_t n = inner_.reap([&](aio::transfer& work, int error) noexcept {
        if (std::erase_if(own_, [&](const auto& one) { return one.get() == &work; }) != 0) {
          return;
        }
        flushes_ -= work.kind == aio::operation::flush ? 1U : 0U;
        dirty_ = dirty_ || work.kind == aio::operation::write;
        f(work, error);
      });
      for (aio::transfer* work : std::exchange(answered_, {})) {
        f(*work, 0);
        ++n;
      }
      return n;
    }

    [[nodiscard]] std::size_t in_flight() const noexcept {
      return inner_.in_flight() - own_.size() + answered_.size();
    }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    [[nodiscard]] int fd() const noexcept { return inner_.fd(); }
    [[nodiscard]] bool arm() noexcept { return inner_.arm() || !answered_.empty(); }
    void disarm() noexcept { inner_.disarm(); }

   private:
    bool is_needed() noexcept {
      return Flaw == flaw::per_queue && (std::exchange(dirty_, false) || flushes_ != 0);
    }

    std::vector<std::unique_ptr<aio::transfer>> own_;  // in flight: they outlive the context below
    typename testing::volatile_cache_engine::context inner_;
    std::size_t capacity_;
    std::vector<aio::transfer*> answered_;
    bool late_ = false;
    bool dirty_ = false;       // a write is complete since the last flush
    std::size_t flushes_ = 0;  // that came through and are in flight
  };
};

template <flaw Flaw>
struct flawed_config : default_config {
  using engine = flawed_engine<Flaw>;
  using grants = grant::batched_copy;  // one is enough, and the others take long to compile
};

constexpr std::uint64_t blocks = 64;  // of 8 sectors
constexpr std::uint64_t sectors = blocks * 8;

// Writes numbered versions of blocks, flushes now and then, and knows what has to be there after a
// cut.
template <class Config>
class guest {
 public:
  guest(served_disk<Config>& disk, std::uint32_t seed)
      : disk_(disk), random_(seed), written_(blocks), sent_(blocks), covered_(blocks) {}

  void work(int steps) {
    for (int step = 0; step < steps; ++step) {
      auto& queue = any_queue();
      if (random_() % 6 == 0) {
        flush(queue);
      } else {
        const std::uint64_t block = random_() % blocks;
        if (busy_.contains(block)) {
          continue;  // two versions of a block in flight may be written in either order
        }
        write(queue, block);
      }
      if (random_() % 4 == 0) {
        queue.publish();
        if (random_() % 2 == 0) {
          queue.wait(std::chrono::milliseconds(20));
        }
        collect();
      }
    }
    publish();
    collect();
  }

  // Until nothing is in flight, and then a flush and its answer: the moment at which a flush that
  // was answered too early shows.
  void end_with_a_flush() {
    settle();
    flush(any_queue());
    settle();
  }

  // One queue has flushed all that it wrote, another one writes, and the first flushes again.
  void end_with_a_flush_on_another_queue() {
    settle();
    flush(disk_.queue(0));
    settle();
    for (std::uint64_t block = 0; block < 16; ++block) {
      write(disk_.queue(queues() - 1), block);
    }
    settle();
    flush(disk_.queue(0));
    settle();
  }

  void collect() {
    for (std::uint32_t i = 0; i < queues(); ++i) {
      disk_.queue(i).poll([&](const testing::block_completion& end) { take(end); });
    }
  }

  void settle() {
    publish();
    for (int i = 0; i < 2000 && in_flight() != 0; ++i) {
      for (std::uint32_t q = 0; q < queues(); ++q) {
        if (disk_.queue(q).in_flight() != 0) {
          disk_.queue(q).wait(std::chrono::milliseconds(20));
        }
      }
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
  // Covers what was answered before it is submitted.
  void flush(testing::strict_queue& queue) {
    if (queue.submit({.operation = protocol::blkif::operation::flush, .cookie = next_cookie_})) {
      flushes_[next_cookie_++] = written_;
    }
  }
  void write(testing::strict_queue& queue, std::uint64_t block) {
    const auto segments = testing::segments_for(8);
    const std::uint64_t version = ++version_;
    if (queue.submit({.operation = protocol::blkif::operation::write,
                      .sector = block * 8,
                      .segments = segments,
                      .cookie = next_cookie_},
                     [version](std::size_t /*offset*/, std::span<std::byte> bytes) {
                       for (std::size_t at = 0; at < bytes.size(); at += 512) {
                         std::memset(bytes.data() + at, 0, 512);
                         std::memcpy(bytes.data() + at, &version, sizeof version);
                       }
                     })) {
      busy_.insert({block, version});
      sent_[block] = version;
      writes_[next_cookie_++] = block;
    }
  }

  void take(const testing::block_completion& end) {
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
  }
  [[nodiscard]] std::uint32_t queues() { return disk_.frontend().queue_count(); }
  testing::strict_queue& any_queue() {
    return disk_.queue(static_cast<std::uint32_t>(random_() % queues()));
  }
  void publish() {
    for (std::uint32_t i = 0; i < queues(); ++i) {
      disk_.queue(i).publish();
    }
  }
  [[nodiscard]] std::size_t in_flight() {
    std::size_t all = 0;
    for (std::uint32_t i = 0; i < queues(); ++i) {
      all += disk_.queue(i).in_flight();
    }
    return all;
  }

  served_disk<Config>& disk_;
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

template <class Config = cached_config>
outcome cut_many_times(const testing::volatile_cache_options& options, int cuts,
                       std::string_view strategy, std::uint32_t queues = 1,
                       bool until_lost = false) {
  outcome all;
  for (int cut = 0; cut < cuts && (!until_lost || all.lost == 0); ++cut) {
    std::mt19937 random(static_cast<std::uint32_t>(cut) * 7919U + 1U);
    testing::volatile_cache_image image(sectors * 512, options);
    served_disk<Config> disk(image, {.strategy = std::string(strategy)}, {.queues = queues});
    EXPECT_EQ(disk.frontend().queue_count(), queues);
    guest<Config> load(disk, static_cast<std::uint32_t>(cut));
    for (int i = 0; i < 8; ++i) {
      load.work(static_cast<int>(20 + random() % 60));
    }
    if (cut % 3 == 0) {
      load.end_with_a_flush();
    } else if (cut % 3 == 1) {
      load.end_with_a_flush_on_another_queue();
    }
    load.collect();  // what is acknowledged up to here, at the latest
    image.cut(random);
    all.lost += load.losses(image);
    all.flushes += load.flushes();
  }
  return all;
}

// Whether a cut, of many, loses what was covered: where in the work it comes is chance.
template <class Config = cached_config>
bool is_found(const testing::volatile_cache_options& options = {}, std::uint32_t queues = 1) {
  return cut_many_times<Config>(options, 600, "", queues, true).lost != 0;
}

class PowerCut : public ::testing::TestWithParam<const char*> {};

TEST_P(PowerCut, loses_nothing_that_an_acknowledged_flush_covered) {
  const outcome honest = cut_many_times({}, 60, GetParam());
  EXPECT_EQ(honest.lost, 0U);
  EXPECT_GT(honest.flushes, 60U) << "or nothing was tested";
}
// A flush covers what was answered before it was taken, on any queue.
TEST_P(PowerCut, loses_nothing_that_a_flush_on_another_queue_covered) {
  const outcome honest = cut_many_times({}, 40, GetParam(), 2);
  EXPECT_EQ(honest.lost, 0U);
  EXPECT_GT(honest.flushes, 40U) << "or nothing was tested";
}
INSTANTIATE_TEST_SUITE_P(every, PowerCut,
                         ::testing::Values("batched_copy", "map_each", "persistent_pool"));

TEST(PowerCutCheck, finds_storage_that_forgets_its_flushes) {
  EXPECT_TRUE(is_found({.flush_lies = true}));
}
TEST(PowerCutCheck, finds_storage_that_answers_flushes_before_they_are_done) {
  EXPECT_TRUE(is_found({.flush_early = true}));
}

TEST(PowerCutCheck, finds_a_backend_that_forgets_its_flushes) {
  EXPECT_TRUE(is_found<flawed_config<flaw::forgets>>());
}
TEST(PowerCutCheck, finds_a_backend_that_answers_flushes_before_they_are_done) {
  EXPECT_TRUE(is_found<flawed_config<flaw::answers_early>>());
}
TEST(PowerCutCheck, finds_a_backend_whose_flushes_cover_their_own_queue_only) {
  EXPECT_TRUE(is_found<flawed_config<flaw::per_queue>>({}, 2));
}
TEST(PowerCutCheck, finds_nothing_wrong_with_a_flush_of_a_queue_that_wrote_all_there_is) {
  EXPECT_EQ(cut_many_times<flawed_config<flaw::per_queue>>({}, 20, "").lost, 0U);
}

}  // namespace
}  // namespace pvring::test
