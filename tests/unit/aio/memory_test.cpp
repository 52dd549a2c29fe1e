// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <pvring/aio/memory.hpp>

#include "support.hpp"

namespace aio_test {
namespace {

using pvring::aio::memory;
using pvring::aio::memory_image;
using pvring::aio::operation;
using pvring::aio::transfer;

TEST(memory_engine, completes_when_submitted_and_reports_when_reaped) {
  memory_image image(4096);
  memory::context context(image, {.capacity = 4});
  transfers make;
  transfer& work = make.make(operation::write, 512, {512, 512});
  transfer* one = &work;
  context.submit({&one, 1});
  EXPECT_EQ(static_cast<char>(image.bytes()[512]), 'w');
  EXPECT_EQ(static_cast<char>(image.bytes()[1535]), 'w');
  EXPECT_EQ(static_cast<char>(image.bytes()[1536]), '\0');
  EXPECT_EQ(context.in_flight(), 1U);
  EXPECT_EQ(finish(context), 0U);
  EXPECT_EQ(context.counters().transfers.get(), 1U);
}

TEST(memory_engine, reports_in_order_with_in_flight_going_down) {
  memory_image image(65536);
  memory::context context(image, {.capacity = 4});
  transfers make;
  std::vector<transfer*> batch;
  for (std::uint64_t i = 0; i < 4; ++i) {
    batch.push_back(&make.make(operation::read, i * 512, {512}));
  }
  context.submit(batch);
  std::size_t n = 0;
  context.reap([&](transfer& work, int) noexcept {
    EXPECT_EQ(&work, batch[n++]);
    EXPECT_EQ(context.in_flight(), 4 - n);
  });
  EXPECT_EQ(n, 4U);
}

TEST(memory_engine, keeps_to_its_range_without_overflow) {
  memory_image image(4096);
  memory::context context(image, {});
  transfers make;
  EXPECT_EQ(run(context, make.make(operation::read, 4096, {512})), -EIO);
  EXPECT_EQ(run(context, make.make(operation::write, 3584, {1024})), -EIO);
  EXPECT_EQ(run(context, make.bare(operation::discard, ~std::uint64_t{0} - 511, 1024)), -EIO);
  EXPECT_EQ(run(context, make.bare(operation::write_zeroes, 0, 4096)), 0);
}

TEST(memory_engine, offers_what_its_options_say) {
  memory_image frozen(4096, {.read_only = true, .name = "frozen"});
  memory::context context(frozen, {});
  transfers make;
  EXPECT_EQ(run(context, make.make(operation::write, 0, {512})), -EROFS);
  EXPECT_EQ(run(context, make.bare(operation::discard, 0, 512)), -EROFS);
  EXPECT_EQ(run(context, make.bare(operation::flush)), 0);
  EXPECT_EQ(frozen.discard_granularity(), 0U);
  EXPECT_EQ(frozen.name(), "frozen");
  memory_image plain(4096, {.discard_granularity = 0});
  memory::context other(plain, {});
  EXPECT_EQ(run(other, make.bare(operation::discard, 0, 512)), -EOPNOTSUPP);
  EXPECT_THROW(memory_image(0), pvring::configuration_error);
  EXPECT_THROW(memory::context(plain, {.capacity = 0}), pvring::configuration_error);
}

}  // namespace
}  // namespace aio_test
