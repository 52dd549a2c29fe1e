// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include <pvring/aio/inline_engine.hpp>

#include "support.hpp"

namespace aio_test {
namespace {

using pvring::aio::engine;
using pvring::aio::inline_engine;
using pvring::aio::inline_function;
using pvring::aio::inline_image;
using pvring::aio::operation;
using pvring::aio::transfer;

/// Reads as the number of each sector; remembers what it was asked.
struct numbers {
  std::vector<operation> asked{};

  int operator()(operation kind, std::uint64_t offset, std::span<const iovec> buffers,
                 std::uint64_t) noexcept {
    asked.push_back(kind);
    if (kind != operation::read) {
      return kind == operation::write ? -ENOSPC : 0;
    }
    for (const iovec& buffer : buffers) {
      std::memset(buffer.iov_base, static_cast<int>(offset / 512), buffer.iov_len);
      offset += buffer.iov_len;
    }
    return 0;
  }
};
static_assert(engine<inline_engine<numbers>>);

struct throwing {
  int operator()(operation, std::uint64_t, std::span<const iovec>, std::uint64_t) { return 0; }
};
struct silent {
  void operator()(operation, std::uint64_t, std::span<const iovec>, std::uint64_t) noexcept {}
};
struct without_length {
  int operator()(operation, std::uint64_t, std::span<const iovec>) noexcept { return 0; }
};
static_assert(!inline_function<throwing> && !inline_function<silent> &&
              !inline_function<without_length>);

TEST(inline_engine, makes_a_device_of_a_function) {
  inline_image device(numbers{}, {.size = 8 * 512, .name = "numbers"});
  inline_engine<numbers>::context context(device, {.capacity = 2});
  transfers make;
  transfer& work = make.make(operation::read, 1024, {512, 512});
  EXPECT_EQ(run(context, work), 0);
  EXPECT_EQ(data_of(work), std::string(512, '\2') + std::string(512, '\3'));
  EXPECT_EQ(run(context, make.make(operation::write, 0, {512})), -ENOSPC);
  EXPECT_EQ(device.name(), "numbers");
}

TEST(inline_engine, never_asks_for_what_is_not_offered) {
  inline_image device(numbers{}, {.size = 4096, .read_only = true, .can_flush = false});
  inline_engine<numbers>::context context(device, {});
  transfers make;
  EXPECT_EQ(run(context, make.make(operation::write, 0, {512})), -EROFS);
  EXPECT_EQ(run(context, make.bare(operation::discard, 0, 512)), -EOPNOTSUPP);
  EXPECT_EQ(run(context, make.bare(operation::write_zeroes, 0, 512)), -EROFS);
  EXPECT_EQ(run(context, make.bare(operation::flush)), 0);
  EXPECT_EQ(run(context, make.make(operation::read, 4096, {512})), -EIO);
  EXPECT_EQ(run(context, make.make(operation::read, ~std::uint64_t{0}, {512})), -EIO);
  EXPECT_TRUE(device.function().asked.empty());
}

TEST(inline_engine, offers_what_its_options_say) {
  inline_image device(numbers{},
                      {.size = 4096, .discard_granularity = 512, .physical_block_size = 4096});
  inline_engine<numbers>::context context(device, {});
  EXPECT_EQ(device.discard_granularity(), 512U);
  EXPECT_EQ(device.physical_block_size(), 4096U);
  transfers make;
  EXPECT_EQ(run(context, make.bare(operation::discard, 0, 512)), 0);
  EXPECT_EQ(run(context, make.bare(operation::write_zeroes, 0, 512)), 0);
  EXPECT_EQ(run(context, make.bare(operation::flush)), 0);
  EXPECT_EQ(
      device.function().asked,
      (std::vector<operation>{operation::discard, operation::write_zeroes, operation::flush}));
  EXPECT_THROW(inline_image(numbers{}, {}), pvring::configuration_error);
}

TEST(inline_engine, wakes_a_sleeper_that_submitted_after_arming) {
  inline_image device(numbers{}, {.size = 4096});
  inline_engine<numbers>::context context(device, {});
  EXPECT_FALSE(context.arm());
  transfers make;
  transfer* one = &make.make(operation::read, 0, {512});
  context.submit({&one, 1});
  pollfd p{context.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 0), 1);
  EXPECT_TRUE(context.arm());
  EXPECT_EQ(::poll(&p, 1, 0), 0);
  EXPECT_EQ(finish(context), 0U);
}

}  // namespace
}  // namespace aio_test
