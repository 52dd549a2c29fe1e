// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/statfs.h>

#include <thread>

#include <pvring/aio/detail/lent_buffers.hpp>
#include <pvring/aio/file_image.hpp>

#include "support.hpp"

namespace aio_test {
namespace {

using pvring::aio::direct_io;
using pvring::aio::file_image;
using pvring::aio::file_options;
using pvring::aio::image_sharing;
using testing::AllOf;
using testing::HasSubstr;

std::string why_not(const std::string& path, file_options options = {}) {
  return refusal([&] { const file_image image(path, options); });
}

/// What buffers of a file at `path` are by its place.
bool are_free_below(const std::string& path, bool direct) {
  const auto place = pvring::aio::detail::place_of_path(path);
  return place && !pvring::aio::detail::lent_buffers().below_file(*place, direct);
}

bool is_root() { return ::geteuid() == 0; }

/// Runs without root's right to open everything.
template <class F>
auto as_nobody(F f) {
  const bool changed = is_root() && ::seteuid(65534) == 0;
  auto out = f();
  if (changed && ::seteuid(0) != 0) {
    std::abort();
  }
  return out;
}

TEST(file_image, says_what_is_missing) {
  EXPECT_THAT(
      why_not("/nowhere/disk.img"),
      AllOf(HasSubstr("/nowhere/disk.img"), HasSubstr("does not exist"), HasSubstr("create it")));
  EXPECT_THAT(why_not(""), HasSubstr("no image path"));
}

TEST(file_image, refuses_what_is_no_disk_and_says_why) {
  const temporary_directory dir;
  EXPECT_THAT(why_not(dir.path()), AllOf(HasSubstr(dir.path()), HasSubstr("is a directory")));
  EXPECT_THAT(why_not(dir.path(), {.read_only = true}), HasSubstr("is a directory"));
  EXPECT_THAT(why_not("/dev/null"), AllOf(HasSubstr("/dev/null"), HasSubstr("neither")));
  const std::string pipe = dir.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(why_not(pipe, {.read_only = true}), HasSubstr("neither"));  // and does not hang
  EXPECT_THAT(why_not(dir.file("empty", 0)),
              AllOf(HasSubstr("/empty"), HasSubstr("is empty"), HasSubstr("truncate")));
}

TEST(file_image, tells_what_it_may_not_do_from_what_it_may) {
  const temporary_directory dir;
  ASSERT_EQ(::chmod(dir.path().c_str(), 0755), 0);
  const std::string frozen = dir.file("frozen", 4096);
  ASSERT_EQ(::chmod(frozen.c_str(), 0444), 0);
  const std::string secret = dir.file("secret", 4096);
  ASSERT_EQ(::chmod(secret.c_str(), 0000), 0);
  EXPECT_THAT(as_nobody([&] { return why_not(secret); }),
              AllOf(HasSubstr("/secret"), HasSubstr("may not be read")));
  EXPECT_THAT(as_nobody([&] { return why_not(secret, {.read_only = true}); }),
              HasSubstr("may not be read"));
  EXPECT_THAT(as_nobody([&] { return why_not(frozen); }),
              AllOf(HasSubstr("may only be read"), HasSubstr("read_only")));
  EXPECT_EQ(as_nobody([&] { return why_not(frozen, {.read_only = true}); }), "");
}

TEST(file_image, counts_a_partial_last_sector) {
  const temporary_directory dir;
  for (const std::size_t bytes : {1UL, 320UL, 511UL, 512UL, 513UL, 4096UL, 4097UL}) {
    const file_image image(dir.file("disk", bytes));
    EXPECT_EQ(image.file_bytes(), bytes);
    EXPECT_EQ(image.size(), (bytes + 511) / 512 * 512);
    EXPECT_EQ(::std::filesystem::file_size(dir.path() + "/disk"), bytes)
        << "opening changed the file";
  }
}

TEST(file_image, reads_as_zero_only_inside_the_partial_last_sector) {
  const temporary_directory dir;
  file_image image(dir.file("disk", 1000));
  EXPECT_TRUE(image.reads_as_zero(1000, 1024));
  EXPECT_FALSE(image.reads_as_zero(999, 1024)) << "shrunk";
  EXPECT_FALSE(image.reads_as_zero(1000, 1536)) << "beyond the end";
  image.written(512);
  EXPECT_EQ(image.file_bytes(), 1000U);
  image.written(1024);
  EXPECT_EQ(image.file_bytes(), 1024U);
  EXPECT_FALSE(image.reads_as_zero(1000, 1024)) << "was written";
  image.written(2048);
  EXPECT_EQ(image.file_bytes(), 1024U);

  const file_image whole(dir.file("whole", 1024));
  EXPECT_FALSE(whole.reads_as_zero(1024, 1024 + 512));
  EXPECT_FALSE(whole.reads_as_zero(512, 1024));
}

TEST(file_image, takes_a_new_size_when_asked) {
  const temporary_directory dir;
  const std::string path = dir.file("disk", 4096);
  file_image image(path);
  ASSERT_EQ(::truncate(path.c_str(), 8192), 0);
  EXPECT_EQ(image.size(), 4096U);
  EXPECT_EQ(image.refresh_size(), 8192U);
  EXPECT_EQ(image.size(), 8192U);
  ASSERT_EQ(::truncate(path.c_str(), 1000), 0);
  EXPECT_EQ(image.refresh_size(), 1024U);
  ASSERT_EQ(::truncate(path.c_str(), 0), 0);
  EXPECT_THAT(refusal([&] { image.refresh_size(); }), HasSubstr("is empty"));
}

TEST(file_image, remembers_that_a_flush_failed_until_it_is_opened_again) {
  const temporary_directory dir;
  const std::string path = dir.file("disk", 4096);
  {
    file_image image(path);
    EXPECT_EQ(image.flushed(0), 0);
    EXPECT_EQ(image.flushed(-EIO), -EIO);
    EXPECT_EQ(image.flushed(0), -EIO);
    EXPECT_EQ(image.flush_failure(), -EIO);
  }
  const file_image again(path);
  EXPECT_EQ(again.flush_failure(), 0);
}

TEST(file_image, agrees_on_one_failure_between_threads) {
  const temporary_directory dir;
  file_image image(dir.file("disk", 4096));
  std::atomic<bool> go{false};
  std::array<int, 4> seen{};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      while (!go.load(std::memory_order_acquire)) {
      }
      seen[static_cast<std::size_t>(i)] = image.flushed(-1 - i);
    });
  }
  go.store(true, std::memory_order_release);
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(seen, testing::Each(image.flush_failure()));
}

TEST(file_image, opens_the_file_anew_for_each_queue) {
  const temporary_directory dir;
  file_image image(dir.file("disk", 4096));
  const pvring::unique_fd first = image.reopen();
  const pvring::unique_fd second = image.reopen();
  // Descriptions have a position each; descriptors that were only duplicated share one.
  ASSERT_EQ(::lseek(first.get(), 100, SEEK_SET), 100);
  EXPECT_EQ(::lseek(second.get(), 0, SEEK_CUR), 0);
}

// --- who else has it
// ---------------------------------------------------------------------------------------------

constexpr file_options guarded{.sharing = image_sharing::guarded};
constexpr file_options guarded_reader{.read_only = true, .sharing = image_sharing::guarded};

/// The message of image_busy, empty where there is none.
std::string busy(const std::string& path, file_options options = guarded) {
  try {
    const file_image image(path, options);
  } catch (const pvring::aio::image_busy& error) {
    return error.what();
  }
  return {};
}

TEST(guarded_image, has_one_writer_or_many_readers) {
  const temporary_directory dir;
  const std::string path = dir.file("disk", 65536);
  {
    const file_image writer(path, guarded);
    EXPECT_TRUE(writer.guarded());
    EXPECT_THAT(busy(path), AllOf(HasSubstr(path), HasSubstr("used by another process")));
    EXPECT_THAT(busy(path, guarded_reader), HasSubstr("used by another process"));
    EXPECT_EQ(busy(path, {}), "") << "not asked, so not refused";
  }
  const file_image reader(path, guarded_reader);
  EXPECT_EQ(busy(path, guarded_reader), "");
  EXPECT_THAT(busy(path), HasSubstr("have both only read it"));
}

TEST(guarded_image, is_one_by_whatever_path_it_is_reached) {
  const temporary_directory dir;
  const std::string path = dir.file("disk", 65536);
  std::filesystem::create_hard_link(path, path + ".hard");
  std::filesystem::create_symlink(path, path + ".soft");
  const file_image writer(path, guarded);
  EXPECT_NE(busy(path + ".hard"), "");
  EXPECT_NE(busy(path + ".soft"), "");
  EXPECT_EQ(file_image(path + ".soft").identity(), writer.identity());
}

TEST(guarded_image, may_be_a_block_device) {
  const temporary_directory dir;
  const auto device = loop_device::over(dir.file("disk", 1 << 20), 512);
  if (device == nullptr) {
    GTEST_SKIP() << "no loop device to be had";
  }
  const file_image writer(device->path(), guarded);
  EXPECT_THAT(busy(device->path()), HasSubstr(device->path()));
}

// A request in flight holds its queue's description, and so does this descriptor.
TEST(guarded_image, is_busy_as_long_as_io_of_one_that_is_gone_is_in_flight) {
  const temporary_directory dir;
  const std::string path = dir.file("disk", 65536);
  pvring::unique_fd in_flight;
  {
    const file_image dead(path, guarded);
    const pvring::unique_fd other_queue = dead.reopen();
    in_flight = dead.reopen();
  }
  EXPECT_THAT(busy(path), AllOf(HasSubstr(path), HasSubstr("was killed")));
  EXPECT_THAT(busy(path, guarded_reader), HasSubstr("was killed"));
  in_flight.reset();
  EXPECT_EQ(busy(path), "");
}

TEST(guarded_image, gives_each_queue_a_lock_of_its_own_as_often_as_queues_are_connected) {
  const temporary_directory dir;
  const file_image image(dir.file("disk", 65536), guarded);
  const pvring::unique_fd long_lived = image.reopen();
  for (int i = 0; i < 2 * pvring::aio::detail::image_lock::most_queues; ++i) {
    ASSERT_TRUE(image.reopen());
  }
}

/// The access mode and O_DIRECT of what queues get.
int flags_of(const file_image& image) {
  const pvring::unique_fd fd = image.reopen();
  return ::fcntl(fd.get(), F_GETFL) & (O_ACCMODE | O_DIRECT);
}

TEST(file_image, uses_direct_io_only_where_it_is_wanted) {
  const temporary_directory dir;
  const std::string path = dir.file("disk", 65536);
  const file_image automatic(path);
  EXPECT_EQ(flags_of(automatic), O_RDWR | (automatic.direct() ? O_DIRECT : 0));
  EXPECT_EQ(automatic.alignment(), automatic.direct() ? 512U : 1U);
  const file_image never(path, {.direct = direct_io::never});
  EXPECT_FALSE(never.direct());
  EXPECT_EQ(never.alignment(), 1U);
  EXPECT_EQ(flags_of(never), O_RDWR);
  const file_image read_only(path, {.read_only = true});
  EXPECT_EQ(flags_of(read_only), O_RDONLY | (read_only.direct() ? O_DIRECT : 0));
}

// Case 118: /proc and sysfs are file systems without O_DIRECT, on every kernel.
TEST(file_image, keeps_the_access_mode_when_it_falls_back_to_the_page_cache) {
  const temporary_directory dir;
  if (::mount("none", dir.path().c_str(), "ramfs", 0, nullptr) != 0) {
    GTEST_SKIP() << "cannot mount a file system";
  }
  const std::string path = dir.file("disk", 8192);
  static std::string logged;
  logged.clear();
  pvring::log::set_sink(
      [](pvring::log::level, std::string_view message) noexcept { logged += message; });
  struct ::statfs fs {};
  ASSERT_EQ(::statfs(path.c_str(), &fs), 0);
  {
    const file_image image(path, {.read_only = true});
    if (!image.direct()) {
      EXPECT_EQ(flags_of(image), O_RDONLY);
      EXPECT_THAT(logged, AllOf(HasSubstr(path), HasSubstr("page cache")));
      EXPECT_THAT(why_not(path, {.direct = direct_io::always}),
                  AllOf(HasSubstr(path), HasSubstr("direct I/O")));
    }
    EXPECT_TRUE(image.read_only());
    EXPECT_EQ(image.buffers_free_at_completion(), are_free_below(path, image.direct()));
  }
  pvring::log::set_sink(&pvring::log::detail::to_stderr);
  ASSERT_EQ(::umount2(dir.path().c_str(), MNT_DETACH), 0);
}

TEST(file_image, probes_for_discard_without_changing_a_byte) {
  for (const char* where : {"/tmp", "/dev/shm"}) {
    const temporary_directory dir(where);
    const std::string path = dir.file("disk", 10000, 'x');
    struct ::stat before {};
    ASSERT_EQ(::stat(path.c_str(), &before), 0);
    const file_image image(path);
    struct ::stat after {};
    ASSERT_EQ(::stat(path.c_str(), &after), 0);
    EXPECT_EQ(after.st_size, before.st_size);
    EXPECT_EQ(content_of(path), std::string(10000, 'x'));
    EXPECT_EQ(image.discard_granularity() & (image.discard_granularity() - 1), 0U);
    EXPECT_GE(image.physical_block_size(), 512U);
    const file_image read_only(path, {.read_only = true});
    EXPECT_EQ(read_only.discard_granularity(), 0U);
  }
}

// Case 58.
TEST(file_image, asks_what_lies_below_its_file_system_where_it_is_direct) {
  for (const char* where : {"/tmp", "/dev/shm"}) {
    const temporary_directory dir(where);
    const std::string path = dir.file("disk", 1 << 20);
    for (const direct_io wanted : {direct_io::automatic, direct_io::never}) {
      const file_image image(path, {.direct = wanted});
      EXPECT_EQ(image.buffers_free_at_completion(), are_free_below(path, image.direct()));
    }
  }
}

// Case 118.
TEST(file_image, is_buffered_where_the_logical_block_is_larger_than_a_sector) {
  const temporary_directory dir;
  const auto device = loop_device::over(dir.file("disk", 1 << 20), 4096);
  if (device == nullptr) {
    GTEST_SKIP() << "no loop device to be had";
  }
  const file_image image(device->path());
  EXPECT_TRUE(image.is_block_device());
  EXPECT_FALSE(image.direct());
  EXPECT_EQ(image.alignment(), 1U);
  EXPECT_EQ(image.physical_block_size(), 4096U);
  EXPECT_THAT(why_not(device->path(), {.direct = direct_io::always}), HasSubstr("logical block"));
}

TEST(file_image, serves_block_devices) {
  const temporary_directory dir;
  const std::string path = dir.file("disk", 1 << 20);
  const auto device = loop_device::over(path, 512);
  if (device == nullptr) {
    GTEST_SKIP() << "no loop device to be had";
  }
  file_image image(device->path());
  EXPECT_TRUE(image.is_block_device());
  EXPECT_TRUE(image.direct());
  EXPECT_EQ(image.size(), 1U << 20U);
  EXPECT_NE(image.discard_granularity(), 0U);
  EXPECT_EQ(image.buffers_free_at_completion(), are_free_below(path, true));
  ASSERT_EQ(::truncate(path.c_str(), 2 << 20), 0);
  device->resized();
  EXPECT_EQ(image.refresh_size(), 2U << 20U);
}

TEST(file_image, refuses_to_write_a_read_only_block_device) {
  const temporary_directory dir;
  const auto device = loop_device::over(dir.file("disk", 1 << 20), 512, true);
  if (device == nullptr) {
    GTEST_SKIP() << "no loop device to be had";
  }
  EXPECT_THAT(why_not(device->path()), AllOf(HasSubstr(device->path()), HasSubstr("read_only")));
  const file_image image(device->path(), {.read_only = true});
  EXPECT_EQ(image.discard_granularity(), 0U);
}

}  // namespace
}  // namespace aio_test
