// SPDX-License-Identifier: MIT
// The engine on the real kernel: files on a disk's file system and on tmpfs, loop devices.
#include <gtest/gtest.h>
#include <signal.h>
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

}  // namespace
}  // namespace aio_test
