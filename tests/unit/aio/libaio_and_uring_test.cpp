// SPDX-License-Identifier: MIT
// The engines on files, on the real kernel: full disks, block devices, devices that take their
// time.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cstring>
#include <random>
#include <span>

#include <pvring/aio/libaio.hpp>
#if __has_include(<liburing.h>)
#include <pvring/aio/uring.hpp>
#endif

#include "support.hpp"

namespace aio_test {
namespace {

using pvring::aio::file_options;
using pvring::aio::image_sharing;
using pvring::aio::operation;
using pvring::aio::reap_mode;
using pvring::aio::transfer;

template <class Engine>
class file_engine : public testing::Test {};
using engines = testing::Types<pvring::aio::libaio
#if __has_include(<liburing.h>)
                               ,
                               pvring::aio::uring
#endif
                               >;
TYPED_TEST_SUITE(file_engine, engines);

// Whoever comes next may have the image at once: the kernel must not be busy taking down what we
// had.
TYPED_TEST(file_engine, gives_the_image_back_when_it_ends) {
  const temporary_directory dir;
  const std::string path = dir.file("disk", 1 << 20);
  for (int round = 0; round < 50; ++round) {
    typename TypeParam::image image(path, {.sharing = image_sharing::guarded});
    typename TypeParam::context context(image, {.capacity = 16});
    transfers make;
    std::vector<transfer*> batch;
    for (std::uint64_t i = 0; i < 16; ++i) {
      batch.push_back(&make.make(operation::write, i * 4096, {4096}));
    }
    context.submit(batch);
  }
}

// What a queue has: its buffers are one region that the engine is told of.
TYPED_TEST(file_engine, moves_data_in_and_out_of_an_expected_region) {
  const temporary_directory dir;
  const std::string path = dir.file("disk", 1 << 20);
  constexpr std::size_t size = 65536;
  const std::unique_ptr<std::byte, decltype(&std::free)> region(
      static_cast<std::byte*>(std::aligned_alloc(4096, size)), &std::free);
  std::memset(region.get(), 'r', size);
  typename TypeParam::image image(path);
  typename TypeParam::context context(image, {});
  if constexpr (requires { context.expect_buffers_in({region.get(), size}); }) {
    context.expect_buffers_in({region.get(), size});
  }
  std::vector<iovec> buffers{{region.get() + 4096, 8192}};
  transfer work;
  work.kind = operation::write;
  work.offset = 512;
  work.length = 8192;
  work.buffers = buffers;
  EXPECT_EQ(run(context, work), 0);
  EXPECT_EQ(content_of(path).substr(0, 9216),
            std::string(512, 'a') + std::string(8192, 'r') + std::string(512, 'a'));
  buffers[0] = {region.get(), size};
  work.kind = operation::read;
  work.offset = 0;
  work.length = size;
  EXPECT_EQ(run(context, work), 0);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(region.get()), size),
            content_of(path).substr(0, size));
}

TYPED_TEST(file_engine, reports_a_full_disk_and_stays_alive) {
  const temporary_directory dir;
  if (::mount("none", dir.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "cannot mount a file system";
  }
  {
    const std::string path = dir.file("disk", 512);
    ASSERT_EQ(::truncate(path.c_str(), 1 << 20), 0);  // sparse: more than there is room for
    typename TypeParam::image image(path);
    typename TypeParam::context context(image, {.capacity = 16});
    transfers make;
    std::vector<transfer*> batch;
    for (std::uint64_t i = 0; i < 16; ++i) {
      batch.push_back(&make.make(operation::write, i * 65536, {65536}));
    }
    context.submit(batch);
    const std::size_t failed = finish(context);
    EXPECT_GE(failed, 12U);
    EXPECT_LT(failed, 16U);
    for (const transfer* work : batch) {
      EXPECT_TRUE(work->error == 0 || work->error == -ENOSPC) << work->error;
      if (work->error == 0) {
        transfer& back = make.make(operation::read, work->offset, {65536});
        EXPECT_EQ(run(context, back), 0);
        EXPECT_EQ(data_of(back), data_of(*work));
      }
    }
    EXPECT_EQ(run(context, make.bare(operation::discard, 0, 1 << 20)), 0);
    EXPECT_EQ(run(context, make.make(operation::write, 0, {65536})), 0);
  }
  ASSERT_EQ(::umount2(dir.path().c_str(), MNT_DETACH), 0);
}

// Case 118.
TYPED_TEST(file_engine, serves_single_sectors_of_a_device_with_large_blocks) {
  const temporary_directory dir;
  const auto device = loop_device::over(dir.file("disk", 1 << 20), 4096);
  if (device == nullptr) {
    GTEST_SKIP() << "no loop device to be had";
  }
  typename TypeParam::image image(device->path());
  typename TypeParam::context context(image, {});
  transfers make;
  EXPECT_EQ(run(context, make.make(operation::write, 512, {512}, 'S')), 0);
  transfer& back = make.make(operation::read, 0, {4096});
  EXPECT_EQ(run(context, back), 0);
  EXPECT_EQ(data_of(back), std::string(512, 'a') + std::string(512, 'S') + std::string(3072, 'a'));
}

TYPED_TEST(file_engine, serves_block_devices) {
  const temporary_directory dir;
  const std::string path = dir.file("disk", 1 << 20);
  const auto device = loop_device::over(path, 512);
  if (device == nullptr) {
    GTEST_SKIP() << "no loop device to be had";
  }
  typename TypeParam::image image(device->path());
  typename TypeParam::context context(image, {});
  transfers make;
  EXPECT_EQ(run(context, make.make(operation::write, 1024, {1024}, 'B')), 0);
  EXPECT_EQ(run(context, make.bare(operation::flush)), 0);
  EXPECT_EQ(run(context, make.bare(operation::write_zeroes, 8192, 4096)), 0);
  EXPECT_EQ(run(context, make.bare(operation::discard, 65536, 65536)), 0);
  transfer& back = make.make(operation::read, 0, {131072});
  EXPECT_EQ(run(context, back), 0);
  std::string expected(131072, 'a');
  expected.replace(1024, 1024, 1024, 'B');
  expected.replace(8192, 4096, 4096, '\0');
  expected.replace(65536, 65536, 65536, '\0');
  EXPECT_EQ(data_of(back), expected);
}

// Asynchronous in earnest: a loop device completes on other threads of the kernel.
TYPED_TEST(file_engine, waits_at_the_end_for_what_the_device_still_does) {
  const temporary_directory dir;
  const auto device = loop_device::over(dir.file("disk", 8 << 20), 512);
  if (device == nullptr) {
    GTEST_SKIP() << "no loop device to be had";
  }
  typename TypeParam::image image(device->path());
  for (int round = 0; round < 10; ++round) {
    transfers make;  // its buffers go after the context: the address sanitizer cannot see the
                     // kernel write
    const std::size_t size = 262144;
    std::vector<transfer*> batch;
    for (std::uint64_t i = 0; i < 16; ++i) {
      batch.push_back(&make.make(operation::read, i * size, {size}, 'z'));
    }
    {
      typename TypeParam::context context(image, {.capacity = 16});
      context.submit(batch);
    }
    for (const transfer* work : batch) {
      ASSERT_EQ(std::memchr(work->buffers[0].iov_base, 'z', size), nullptr) << "not read yet";
    }
  }
}

TYPED_TEST(file_engine, does_not_sleep_through_a_completion) {
  const temporary_directory dir;
  const auto device = loop_device::over(dir.file("disk", 8 << 20), 512);
  if (device == nullptr) {
    GTEST_SKIP() << "no loop device to be had";
  }
  typename TypeParam::image image(device->path());
  for (const reap_mode mode : {reap_mode::user_space, reap_mode::system_call}) {
    typename TypeParam::context context(image, {.capacity = 8, .reap = mode});
    transfers make;
    std::deque<transfer*> idle;
    for (std::uint64_t i = 0; i < 8; ++i) {
      idle.push_back(&make.make(operation::read, i * 65536, {4096}));
    }
    std::minstd_rand random(1);
    for (int done = 0; done < 3000;) {
      std::vector<transfer*> batch;
      for (std::size_t n = random() % (idle.size() + 1); n != 0; --n) {
        batch.push_back(idle.front());
        idle.pop_front();
      }
      context.submit(batch);
      if (context.in_flight() != 0 && !context.arm()) {
        pollfd p{context.fd(), POLLIN, 0};
        const bool timed = context.deadline().has_value();
        ASSERT_TRUE(::poll(&p, 1, timed ? 1 : 5000) == 1 || timed)
            << "slept through one of " << context.in_flight();
      }
      if (random() % 2 == 0) {
        context.disarm();
      }
      context.reap([&](transfer& work, int error) noexcept {
        EXPECT_EQ(error, 0);
        idle.push_back(&work);
        ++done;
      });
    }
  }
}

}  // namespace
}  // namespace aio_test
