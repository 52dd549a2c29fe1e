// SPDX-License-Identifier: MIT
// As with libaio, a killed process's last write has landed before anybody else gets the image. Here
// the process is gone at once, and what keeps the lock is its ring's registered file.
#include <gtest/gtest.h>

#include <string>

#include <pvring/aio/uring.hpp>

#include "slow_device.hpp"

namespace aio_test {
namespace {

using pvring::aio::operation;

TEST(uring_killed, leaves_a_guarded_image_busy_until_its_last_write_has_landed) {
  slow_device device;
  if (const std::string why = device.set_up(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  ASSERT_TRUE(device.freeze());
  mortal one([&](const auto& say) {
    pvring::aio::uring_image image(device.path(), guarded_and_direct);
    pvring::aio::uring::context context(image, {.capacity = 4});
    transfers made;
    pvring::aio::transfer* work = &made.make(operation::write, 4096, {4096}, 'o');
    context.submit({&work, 1});
    say(context.in_flight() == 1 && context.file_is_registered());
  });
  expect_busy_until_it_landed(device, one);
}

}  // namespace
}  // namespace aio_test
