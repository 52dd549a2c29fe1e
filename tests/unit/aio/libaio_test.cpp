// SPDX-License-Identifier: MIT
// The engine on the real kernel: files on a disk's file system and on tmpfs, loop devices.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/time.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include <pvring/aio/libaio.hpp>

#include "support.hpp"

namespace aio_test {
namespace {

using pvring::aio::context_options;
using pvring::aio::direct_io;
using pvring::aio::file_image;
using pvring::aio::file_options;
using pvring::aio::libaio;
using pvring::aio::operation;
using pvring::aio::reap_mode;
using pvring::aio::transfer;

struct place {
  const char* directory;
  direct_io direct;
  reap_mode reap;
};

class libaio_on : public testing::TestWithParam<place> {
 public:
  libaio_on() : dir(GetParam().directory) {}

  file_image open(const std::string& path) {
    return file_image(path, {.direct = GetParam().direct});
  }
  context_options options(std::uint32_t capacity = 32) const {
    return {.capacity = capacity, .reap = GetParam().reap};
  }

  temporary_directory dir;
  transfers make;
};

INSTANTIATE_TEST_SUITE_P(
    storage, libaio_on,
    testing::Values(place{"/tmp", direct_io::automatic, reap_mode::user_space},
                    place{"/tmp", direct_io::never, reap_mode::user_space},
                    place{"/tmp", direct_io::automatic, reap_mode::system_call},
                    place{"/dev/shm", direct_io::automatic, reap_mode::user_space},
                    place{"/dev/shm", direct_io::never, reap_mode::system_call}),
    [](const auto& with) {
      const place& p = with.param;
      return std::string(p.directory[1] == 't' ? "disk" : "tmpfs") +
             (p.direct == direct_io::never ? "_buffered" : "") +
             (p.reap == reap_mode::user_space ? "_ring" : "_call");
    });

TEST_P(libaio_on, keeps_what_it_is_given) {
  const std::string path = dir.file("disk", 65536);
  file_image image = open(path);
  libaio::context context(image, options());
  EXPECT_EQ(context.reaps_by(), GetParam().reap);
  EXPECT_EQ(run(context, make.make(operation::write, 4096, {512, 1024, 512}, 'X')), 0);
  EXPECT_EQ(run(context, make.bare(operation::flush)), 0);
  const std::string content = content_of(path);
  EXPECT_EQ(content.substr(0, 4096), std::string(4096, 'a'));
  EXPECT_EQ(content.substr(4096, 2048), std::string(2048, 'X'));
  EXPECT_EQ(content.substr(6144), std::string(65536 - 6144, 'a'));
}

// Case 118.
TEST_P(libaio_on, takes_buffers_that_are_aligned_to_a_sector_only) {
  file_image image = open(dir.file("disk", 65536, 'q'));
  libaio::context context(image, options());
  transfer& work = make.make(operation::read, 512, {512, 1024});
  for (iovec& buffer : work.buffers) {
    buffer.iov_base = static_cast<char*>(buffer.iov_base) + 512;
  }
  EXPECT_EQ(run(context, work), 0);
  EXPECT_EQ(static_cast<char*>(work.buffers[0].iov_base)[0], 'q');
  EXPECT_EQ(static_cast<char*>(work.buffers[1].iov_base)[1023], 'q');
}

// Case 114.
TEST_P(libaio_on, serves_a_file_of_320_bytes) {
  const std::string path = dir.file("disk", 320);
  file_image image = open(path);
  libaio::context context(image, options());
  transfer& before = make.make(operation::read, 0, {512});
  EXPECT_EQ(run(context, before), 0);
  EXPECT_EQ(data_of(before), std::string(320, 'a') + std::string(192, '\0'));
  EXPECT_EQ(run(context, make.make(operation::write, 0, {512}, 'n')), 0);
  EXPECT_EQ(content_of(path), std::string(512, 'n'))
      << "a write of the last sector extends the file";
  transfer& after = make.make(operation::read, 0, {512});
  EXPECT_EQ(run(context, after), 0);
  EXPECT_EQ(data_of(after), std::string(512, 'n'));
}

TEST_P(libaio_on, pads_only_the_end_of_a_long_read) {
  const std::string path = dir.file("disk", 9000);
  file_image image = open(path);
  libaio::context context(image, options());
  transfer& work = make.make(operation::read, 4096, {4096, 1024});
  EXPECT_EQ(run(context, work), 0);
  EXPECT_EQ(data_of(work), std::string(9000 - 4096, 'a') + std::string(9216 - 9000, '\0'));
}

// Case 114.
TEST_P(libaio_on, fails_reads_of_what_has_been_cut_off) {
  const std::string path = dir.file("disk", 65536);
  file_image image = open(path);
  libaio::context context(image, options());
  ASSERT_EQ(::truncate(path.c_str(), 6000), 0);
  EXPECT_EQ(run(context, make.make(operation::read, 32768, {4096})), -EIO);
  EXPECT_EQ(run(context, make.make(operation::read, 4096, {4096})), -EIO);
  EXPECT_EQ(run(context, make.make(operation::read, 5632, {512})), -EIO);
  transfer& rest = make.make(operation::read, 0, {4096});
  EXPECT_EQ(run(context, rest), 0);
  EXPECT_EQ(data_of(rest), std::string(4096, 'a'));
}

TEST_P(libaio_on, discards_and_zeroes_beside_the_queue) {
  const std::string path = dir.file("disk", 65536);
  file_image image = open(path);
  libaio::context context(image, options());
  EXPECT_FALSE(image.helper().started());
  EXPECT_EQ(run(context, make.bare(operation::write_zeroes, 512, 1024)), 0);
  if (image.discard_granularity() != 0) {
    EXPECT_EQ(run(context, make.bare(operation::discard, 8192, 8192)), 0);
    EXPECT_EQ(content_of(path).substr(8192, 8192), std::string(8192, '\0'));
  } else {
    EXPECT_EQ(run(context, make.bare(operation::discard, 8192, 8192)), -EOPNOTSUPP);
  }
  EXPECT_EQ(content_of(path).substr(0, 2048),
            std::string(512, 'a') + std::string(1024, '\0') + std::string(512, 'a'));
  EXPECT_EQ(content_of(path).size(), 65536U);
  EXPECT_TRUE(image.helper().started());
}

TEST_P(libaio_on, zeroes_the_partial_last_sector) {
  const std::string path = dir.file("disk", 700);
  file_image image = open(path);
  libaio::context context(image, options());
  EXPECT_EQ(run(context, make.bare(operation::write_zeroes, 0, 1024)), 0);
  EXPECT_EQ(content_of(path), std::string(1024, '\0'));
  EXPECT_EQ(image.file_bytes(), 1024U);
}

TEST_P(libaio_on, moves_what_has_more_buffers_than_one_call_takes) {
  const std::string path = dir.file("disk", 4096 * 512);
  file_image image = open(path);
  libaio::context context(image, options(2));
  transfer& work = make.make(operation::write, 0, std::vector<std::size_t>(4096, 512));
  auto* data = static_cast<char*>(work.buffers[0].iov_base);
  for (std::size_t i = 0; i < work.length; ++i) {
    data[i] = static_cast<char>(i / 512 * 7);
  }
  EXPECT_EQ(run(context, work), 0);
  transfer& back = make.make(operation::read, 0, std::vector<std::size_t>(4096, 512));
  EXPECT_EQ(run(context, back), 0);
  EXPECT_EQ(data_of(back), data_of(work));
}

// Case 115: signals hit submission, reaping and sleeping alike.
TEST_P(libaio_on, loses_nothing_to_signals) {
  const std::string path = dir.file("disk", 1 << 20);
  file_image image = open(path);
  libaio::context context(image, options(16));
  struct sigaction before {};
  struct sigaction noticed {};
  noticed.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGALRM, &noticed, &before), 0);
  const itimerval often{{0, 1000}, {0, 1000}};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  for (int round = 0; round < 60; ++round) {
    transfers some;
    std::vector<transfer*> batch;
    for (std::uint64_t i = 0; i < 16; ++i) {
      const auto kind = i == 15      ? operation::flush
                        : i % 2 == 0 ? operation::read
                                     : operation::write;
      batch.push_back(kind == operation::flush ? &some.bare(kind)
                                               : &some.make(kind, i * 65536, {16384}));
    }
    context.submit(batch);
    EXPECT_EQ(finish(context), 0U);
  }
  const itimerval never{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
  ASSERT_EQ(::sigaction(SIGALRM, &before, nullptr), 0);
}

TEST_P(libaio_on, does_not_allocate_descriptors_for_ever) {
  file_image image = open(dir.file("disk", 65536));
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = descriptors();
  for (int i = 0; i < 20; ++i) {
    libaio::context context(image, options());
    transfer* one = &make.make(operation::read, 0, {4096});
    context.submit({&one, 1});  // and leaves with it in flight
  }
  EXPECT_EQ(descriptors(), before);
}

// A queue per thread on one image; what they share is the size, the remembered failure and the
// helper.
TEST_P(libaio_on, serves_several_queues_at_once) {
  file_image image = open(dir.file("disk", 4 << 20));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint64_t q = 0; q < 3; ++q) {
    threads.emplace_back([&, q] {
      libaio::context context(image, options(8));
      std::minstd_rand random(static_cast<unsigned>(q + 1));
      for (int round = 0; round < 50; ++round) {
        transfers some;
        std::vector<transfer*> batch;
        for (std::uint64_t i = 0; i < 6; ++i) {
          batch.push_back(&some.make(operation::write, (q << 20U) + i * 16384, {8192},
                                     static_cast<char>(random())));
        }
        batch.push_back(&some.bare(operation::flush));
        batch.push_back(&some.bare(operation::write_zeroes, (q << 20U) + 524288, 4096));
        context.submit(batch);
        wrong += static_cast<int>(finish(context));
        for (std::uint64_t i = 0; i < 6; ++i) {
          transfer& back = some.make(operation::read, (q << 20U) + i * 16384, {8192});
          wrong += run(context, back) != 0 || data_of(back) != data_of(*batch[i]) ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong.load(), 0);
}

TEST(libaio_engine, reports_a_full_disk_and_stays_alive) {
  const temporary_directory dir;
  if (::mount("none", dir.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "cannot mount a file system";
  }
  {
    const std::string path = dir.file("disk", 512);
    ASSERT_EQ(::truncate(path.c_str(), 1 << 20), 0);  // sparse: more than there is room for
    file_image image(path);
    libaio::context context(image, {.capacity = 16});
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
TEST(libaio_engine, serves_single_sectors_of_a_device_with_large_blocks) {
  const temporary_directory dir;
  const auto device = loop_device::over(dir.file("disk", 1 << 20), 4096);
  if (device == nullptr) {
    GTEST_SKIP() << "no loop device to be had";
  }
  file_image image(device->path());
  libaio::context context(image, {});
  transfers make;
  EXPECT_EQ(run(context, make.make(operation::write, 512, {512}, 'S')), 0);
  transfer& back = make.make(operation::read, 0, {4096});
  EXPECT_EQ(run(context, back), 0);
  EXPECT_EQ(data_of(back), std::string(512, 'a') + std::string(512, 'S') + std::string(3072, 'a'));
}

TEST(libaio_engine, serves_block_devices) {
  const temporary_directory dir;
  const std::string path = dir.file("disk", 1 << 20);
  const auto device = loop_device::over(path, 512);
  if (device == nullptr) {
    GTEST_SKIP() << "no loop device to be had";
  }
  file_image image(device->path());
  libaio::context context(image, {});
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
TEST(libaio_engine, waits_at_the_end_for_what_the_device_still_does) {
  const temporary_directory dir;
  const auto device = loop_device::over(dir.file("disk", 8 << 20), 512);
  if (device == nullptr) {
    GTEST_SKIP() << "no loop device to be had";
  }
  file_image image(device->path());
  for (int round = 0; round < 10; ++round) {
    transfers make;  // its buffers go after the context: the address sanitizer cannot see the
                     // kernel write
    const std::size_t size = 262144;
    std::vector<transfer*> batch;
    for (std::uint64_t i = 0; i < 16; ++i) {
      batch.push_back(&make.make(operation::read, i * size, {size}, 'z'));
    }
    {
      libaio::context context(image, {.capacity = 16});
      context.submit(batch);
    }
    for (const transfer* work : batch) {
      ASSERT_EQ(std::memchr(work->buffers[0].iov_base, 'z', size), nullptr) << "not read yet";
    }
  }
}

TEST(libaio_engine, does_not_sleep_through_a_completion) {
  const temporary_directory dir;
  const auto device = loop_device::over(dir.file("disk", 8 << 20), 512);
  if (device == nullptr) {
    GTEST_SKIP() << "no loop device to be had";
  }
  file_image image(device->path());
  for (const reap_mode mode : {reap_mode::user_space, reap_mode::system_call}) {
    libaio::context context(image, {.capacity = 8, .reap = mode});
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
