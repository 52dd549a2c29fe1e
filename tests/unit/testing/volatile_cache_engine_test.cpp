// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <poll.h>

#include <deque>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include <pvring/testing/volatile_cache_engine.hpp>

namespace pvring::testing {
namespace {

class volatile_cache : public ::testing::Test {
 public:
  static constexpr std::uint64_t sectors = 64;

  explicit volatile_cache(volatile_cache_options options = {.script = {}})
      : image(sectors * 512, std::move(options)) {
    open();
  }

  void open() { context.emplace(image, aio::context_options{.capacity = 16}); }

  aio::transfer& make(aio::operation kind, std::uint64_t sector = 0, std::uint64_t count = 0,
                      char fill = 0) {
    request& r = requests.emplace_back();
    r.room.assign(count * 512, static_cast<std::byte>(fill));
    r.buffer = {r.room.data(), r.room.size()};
    r.work.kind = kind;
    r.work.offset = sector * 512;
    r.work.length = count * 512;
    if (kind == aio::operation::read || kind == aio::operation::write) {
      r.work.buffers = {&r.buffer, 1};
    }
    return r.work;
  }

  void submit(aio::transfer& work) {
    aio::transfer* one = &work;
    context->submit({&one, 1});
  }
  int run(aio::transfer& work) {
    submit(work);
    while (context->in_flight() != 0) {
      context->reap([](aio::transfer&, int) noexcept {});
    }
    return work.error;
  }
  void write(std::uint64_t sector, char fill, std::uint64_t count = 1) {
    EXPECT_EQ(run(make(aio::operation::write, sector, count, fill)), 0);
  }
  void flush() { EXPECT_EQ(run(make(aio::operation::flush)), 0); }

  char durable(std::uint64_t sector) const { return static_cast<char>(image.durable(sector)[0]); }

  /// What may be in a sector after cuts at this point.
  std::set<char> after_cuts(std::uint64_t sector, const auto& prepare) {
    std::set<char> seen;
    for (unsigned seed = 0; seed < 64; ++seed) {
      prepare();
      std::mt19937 random(seed);
      image.cut(random);
      seen.insert(durable(sector));
      context.reset();
      image.restart();
      open();
      requests.clear();
    }
    return seen;
  }

  struct request {
    aio::transfer work;
    iovec buffer{};
    std::vector<std::byte> room;
  };
  std::deque<request> requests;
  volatile_cache_image image;
  std::optional<volatile_cache_engine::context> context;
};

TEST_F(volatile_cache, reads_what_was_written_though_it_is_not_durable) {
  write(3, 'a', 2);
  auto& back = make(aio::operation::read, 2, 4);
  EXPECT_EQ(run(back), 0);
  const auto& room = requests.back().room;
  EXPECT_EQ(static_cast<char>(room[0]), '\0');
  EXPECT_EQ(static_cast<char>(room[512]), 'a');
  EXPECT_EQ(static_cast<char>(room[1535]), 'a');
  EXPECT_EQ(static_cast<char>(room[1536]), '\0');
  EXPECT_EQ(durable(3), '\0');
  EXPECT_EQ(image.cached_sectors(), 2U);
}

TEST_F(volatile_cache, makes_durable_what_was_complete_when_the_flush_was_submitted) {
  write(1, 'a');
  write(1, 'b');
  auto& late = make(aio::operation::write, 2, 1, 'c');
  auto& flushing = make(aio::operation::flush);
  submit(late);
  EXPECT_EQ(run(flushing), 0);
  EXPECT_EQ(durable(1), 'b');
  EXPECT_EQ(durable(2), '\0') << "was in flight when the flush was submitted";
  flush();
  EXPECT_EQ(durable(2), 'c');
  EXPECT_EQ(image.cached_sectors(), 0U);
}

TEST_F(volatile_cache, keeps_any_part_of_its_cache_when_the_power_goes) {
  const auto prepare = [&] {
    write(5, 'o');
    flush();
    write(5, 'p');
    write(5, 'q');
  };
  EXPECT_EQ(after_cuts(5, prepare), (std::set<char>{'o', 'p', 'q'}));
}

TEST_F(volatile_cache, never_loses_what_a_flush_covered) {
  const auto prepare = [&] {
    write(5, 'o');
    write(5, 'p');
    flush();
    write(6, 'x');
  };
  EXPECT_EQ(after_cuts(5, prepare), (std::set<char>{'p'}));
}

TEST_F(volatile_cache, may_keep_part_of_a_write_in_flight) {
  const auto prepare = [&] {
    write(8, 'a', 4);
    flush();
    submit(make(aio::operation::write, 8, 4, 'b'));
  };
  EXPECT_EQ(after_cuts(8, prepare), (std::set<char>{'a', 'b'}));
  EXPECT_EQ(after_cuts(11, prepare), (std::set<char>{'a', 'b'}));
}

TEST_F(volatile_cache, does_nothing_any_more_until_the_power_is_back) {
  write(1, 'a');
  flush();
  std::mt19937 random(1);
  image.cut(random);
  EXPECT_EQ(run(make(aio::operation::write, 1, 1, 'b')), -EIO);
  EXPECT_EQ(run(make(aio::operation::flush)), -EIO);
  EXPECT_EQ(run(make(aio::operation::read, 1, 1)), -EIO);
  EXPECT_EQ(durable(1), 'a');
  context.reset();
  image.restart();
  open();
  write(1, 'c');
}

TEST_F(volatile_cache, zeroes_and_discards_through_the_cache_too) {
  write(1, 'a', 3);
  flush();
  EXPECT_EQ(run(make(aio::operation::discard, 1, 1)), 0);
  EXPECT_EQ(run(make(aio::operation::write_zeroes, 2, 1)), 0);
  EXPECT_EQ(durable(1), 'a');
  flush();
  EXPECT_EQ(durable(1), '\0');
  EXPECT_EQ(durable(2), '\0');
  EXPECT_EQ(durable(3), 'a');
}

TEST_F(volatile_cache, refuses_what_is_no_range_of_sectors) {
  EXPECT_EQ(run(make(aio::operation::read, sectors, 1)), -EIO);
  EXPECT_EQ(run(make(aio::operation::discard, ~std::uint64_t{0} / 512, 2)), -EIO);
  aio::transfer& odd = make(aio::operation::read, 0, 1);
  odd.offset = 100;
  EXPECT_EQ(run(odd), -EIO);
}

TEST_F(volatile_cache, leaves_no_trace_of_a_write_that_the_script_fails) {
  image.script().result = [](const aio::transfer&) { return -EIO; };
  EXPECT_EQ(run(make(aio::operation::write, 1, 1, 'x')), -EIO);
  image.script().result = nullptr;
  flush();
  EXPECT_EQ(durable(1), '\0');
}

class lying_cache : public volatile_cache {
 public:
  lying_cache() : volatile_cache({.script = {}, .flush_lies = true}) {}
};

TEST_F(lying_cache, loses_what_it_said_was_durable) {
  const auto prepare = [&] {
    write(5, 'p');
    flush();
  };
  EXPECT_TRUE(after_cuts(5, prepare).contains('\0'));
}

}  // namespace
}  // namespace pvring::testing
