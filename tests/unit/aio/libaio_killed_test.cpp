// SPDX-License-Identifier: MIT
// I/O of a process that was killed lands when the storage gets to it, and nobody can call it back.
// A guarded image is not to be had before that: what is done again must not be overtaken by what
// was done before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include <pvring/aio/libaio.hpp>

#include "slow_device.hpp"

namespace aio_test {
namespace {

using namespace std::chrono_literals;
using pvring::aio::file_image;
using pvring::aio::operation;

TEST(libaio_killed, leaves_a_guarded_image_busy_until_its_last_write_has_landed) {
  slow_device device;
  if (const std::string why = device.set_up(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  ASSERT_TRUE(device.freeze());
  mortal one([&](const auto& say) {
    file_image image(device.path(), guarded_and_direct);
    pvring::aio::libaio::context context(image, {.capacity = 4});
    transfers made;
    pvring::aio::transfer* work = &made.make(operation::write, 4096, {4096}, 'o');
    context.submit({&work, 1});
    say(context.in_flight() == 1);
  });
  EXPECT_TRUE(one.has_a_write_in_flight());
  one.kill();
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(busy(device.path()), testing::HasSubstr(device.path()));
    std::this_thread::sleep_for(10ms);
  }
  device.thaw();
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!busy(device.path()).empty() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(1ms);
  }
  // It is to be had now, and nothing of the dead one comes behind.
  file_image image(device.path(), guarded_and_direct);
  pvring::aio::libaio::context context(image, {.capacity = 4});
  transfers made;
  auto& old = made.make(operation::read, 4096, {4096}, '-');
  ASSERT_EQ(run(context, old), 0);
  EXPECT_EQ(data_of(old), std::string(4096, 'o')) << "its write has landed";
  auto& again = made.make(operation::write, 4096, {4096}, 'n');
  ASSERT_EQ(run(context, again), 0);
  while (!one.reap()) {
    std::this_thread::sleep_for(1ms);
  }
  auto& now = made.make(operation::read, 4096, {4096}, '-');
  ASSERT_EQ(run(context, now), 0);
  EXPECT_EQ(data_of(now), std::string(4096, 'n'));
}

}  // namespace
}  // namespace aio_test
