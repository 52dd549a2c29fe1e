// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

#include <pvring/testing/delayed_engine.hpp>

namespace pvring::testing {
namespace {

class delayed : public ::testing::Test {
 public:
  /// Reads of a sector each, with a buffer of their own.
  std::vector<aio::transfer*> reads(std::size_t n) {
    std::vector<aio::transfer*> out;
    for (std::size_t i = 0; i < n; ++i) {
      request& r = requests.emplace_back();
      r.buffer = {r.room.data(), r.room.size()};
      r.work.offset = i * 512;
      r.work.length = 512;
      r.work.buffers = {&r.buffer, 1};
      out.push_back(&r.work);
    }
    return out;
  }

  static std::vector<std::uint64_t> reap(delayed_engine::context& context) {
    std::vector<std::uint64_t> sectors;
    context.reap([&](aio::transfer& work, int) noexcept { sectors.push_back(work.offset / 512); });
    return sectors;
  }

  static bool readable(const delayed_engine::context& context, int milliseconds = 0) {
    pollfd p{context.fd(), POLLIN, 0};
    return ::poll(&p, 1, milliseconds) == 1;
  }

  struct request {
    aio::transfer work;
    iovec buffer{};
    std::array<char, 512> room{};
  };
  std::deque<request> requests;
};

using sectors = std::vector<std::uint64_t>;

TEST_F(delayed, completes_in_the_scripted_order) {
  delayed_image image(65536);
  const auto order = [&](completion_order how) {
    image.script().order = how;
    delayed_engine::context context(image, {.capacity = 8});
    context.submit(reads(4));
    return reap(context);
  };
  EXPECT_EQ(order(completion_order::oldest_first), (sectors{0, 1, 2, 3}));
  EXPECT_EQ(order(completion_order::newest_first), (sectors{3, 2, 1, 0}));
  auto shuffled = order(completion_order::shuffled);
  EXPECT_EQ(shuffled, order(completion_order::shuffled)) << "the same seed, the same order";
  std::ranges::sort(shuffled);
  EXPECT_EQ(shuffled, (sectors{0, 1, 2, 3}));
}

TEST_F(delayed, holds_transfers_for_some_reaps) {
  delayed_image image(65536, {.script = {.held_for = 2, .at_most = 1}});
  delayed_engine::context context(image, {});
  context.submit(reads(2));
  EXPECT_TRUE(reap(context).empty());
  EXPECT_TRUE(context.arm()) << "nobody may sleep where only a reap is missing";
  EXPECT_TRUE(reap(context).empty());
  EXPECT_EQ(reap(context), (sectors{0}));
  EXPECT_EQ(reap(context), (sectors{1}));
}

TEST_F(delayed, completes_one_by_one_at_a_tests_word) {
  delayed_image image(65536, {.script = {.by_hand = true}});
  delayed_engine::context context(image, {});
  context.submit(reads(3));
  EXPECT_FALSE(context.arm());
  EXPECT_FALSE(readable(context, 5));
  std::thread other([&] { image.release(2); });
  EXPECT_TRUE(readable(context, 5000));
  other.join();
  EXPECT_EQ(reap(context), (sectors{0, 1}));
  EXPECT_FALSE(context.arm());
  EXPECT_TRUE(reap(context).empty());
  image.release();
  EXPECT_TRUE(context.arm());
  EXPECT_EQ(reap(context), (sectors{2}));
}

TEST_F(delayed, takes_its_time) {
  delayed_image image(65536, {.script = {.latency = std::chrono::milliseconds(5)}});
  delayed_engine::context context(image, {});
  const auto start = std::chrono::steady_clock::now();
  context.submit(reads(2));
  EXPECT_TRUE(reap(context).empty());
  EXPECT_FALSE(context.arm());
  EXPECT_TRUE(readable(context, 5000));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(5));
  EXPECT_EQ(reap(context).size(), 2U);
}

TEST_F(delayed, fails_what_the_script_fails_and_does_not_perform_it) {
  delayed_image image(65536);
  image.script().result = [](const aio::transfer& work) { return work.offset == 512 ? -EIO : 0; };
  delayed_engine::context context(image, {});
  const auto batch = reads(3);
  for (aio::transfer* work : batch) {
    work->kind = aio::operation::write;
  }
  requests[1].room.fill('x');
  requests[2].room.fill('y');
  context.submit(batch);
  EXPECT_EQ(reap(context).size(), 3U);
  EXPECT_EQ(batch[1]->error, -EIO);
  EXPECT_EQ(static_cast<char>(image.bytes()[512]), '\0');
  EXPECT_EQ(static_cast<char>(image.bytes()[1024]), 'y');
}

// Case 116, of the test kit: an engine that forgets would let a backend's test pass that must not.
TEST_F(delayed, remembers_a_flush_that_failed) {
  delayed_image image(65536);
  delayed_engine::context context(image, {});
  aio::transfer flush;
  flush.kind = aio::operation::flush;
  aio::transfer* one = &flush;
  int left = 1;
  image.script().result = [&](const aio::transfer&) { return left-- > 0 ? -EIO : 0; };
  for (int i = 0; i < 3; ++i) {
    context.submit({&one, 1});
    EXPECT_EQ(reap(context).size(), 1U);
    EXPECT_EQ(flush.error, -EIO);
  }
}

// Case 58.
TEST_F(delayed, tells_which_buffers_are_in_flight) {
  platform::in_flight_registry watch;
  delayed_image image(65536, {.script = {.by_hand = true, .watch = &watch}});
  auto context = std::make_unique<delayed_engine::context>(image, aio::context_options{});
  context->submit(reads(2));
  EXPECT_EQ(watch.in_flight(), 2U);
  image.release();
  EXPECT_EQ(reap(*context), (sectors{0}));
  EXPECT_EQ(watch.in_flight(), 1U);
  EXPECT_FALSE(watch.unmapping(requests[0].room.data(), 512));
  EXPECT_TRUE(watch.unmapping(requests[1].room.data(), 512));
  context.reset();
  EXPECT_EQ(watch.in_flight(), 0U);
}

TEST_F(delayed, says_of_its_buffers_what_it_is_told_to) {
  const delayed_image image(65536,
                            {.buffers_free_at_completion = false, .buffers_free_at_exit = false});
  EXPECT_FALSE(image.buffers_free_at_completion());
  EXPECT_FALSE(image.buffers_free_at_exit());
  EXPECT_THROW(delayed_engine::context(const_cast<delayed_image&>(image), {.capacity = 0}),
               configuration_error);
}

}  // namespace
}  // namespace pvring::testing
