// SPDX-License-Identifier: MIT
// The locks of a guarded image are the request's, not the process's. With libaio that cannot be
// told apart, since its processes end after their requests; here the request outlives its process.
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstring>
#include <string>

#include "slow_device.hpp"

namespace aio_test {
namespace {

using pvring::aio::file_image;

/// A ring for one request of the kernel's io_uring.
class one_request {
 public:
  one_request() {
    fd_ = static_cast<int>(::syscall(SYS_io_uring_setup, 1, &shape_));
    if (fd_ >= 0) {
      queue_ =
          map(shape_.sq_off.array + shape_.sq_entries * sizeof(std::uint32_t), IORING_OFF_SQ_RING);
      entries_ = map(shape_.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
    }
  }

  [[nodiscard]] bool possible() const {
    return fd_ >= 0 && queue_ != MAP_FAILED && entries_ != MAP_FAILED;
  }
  [[nodiscard]] bool write(int fd, std::uint64_t offset, const void* from, std::uint32_t length) {
    auto* const entry = static_cast<io_uring_sqe*>(entries_);
    entry->opcode = IORING_OP_WRITE;
    entry->fd = fd;
    entry->off = offset;
    entry->addr = reinterpret_cast<std::uintptr_t>(from);
    entry->len = length;
    auto* const queue = static_cast<char*>(queue_);
    *reinterpret_cast<std::uint32_t*>(queue + shape_.sq_off.array) = 0;
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(queue + shape_.sq_off.tail))
        .store(1, std::memory_order_release);
    return ::syscall(SYS_io_uring_enter, fd_, 1, 0, 0, nullptr, 0) == 1;
  }

 private:
  [[nodiscard]] void* map(std::size_t length, off_t what) const {
    return ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, what);
  }

  io_uring_params shape_{};
  int fd_ = -1;
  void* queue_ = MAP_FAILED;
  void* entries_ = MAP_FAILED;
};

TEST(image_lock, is_held_by_a_request_whose_process_is_gone) {
  if (!one_request().possible()) {
    GTEST_SKIP() << "no io_uring to be had";
  }
  slow_device device;
  if (const std::string why = device.set_up(); !why.empty()) {
    GTEST_SKIP() << why;
  }
  ASSERT_TRUE(device.freeze());
  mortal one([&](const auto& say) {
    const file_image image(device.path(), guarded_and_direct);
    const pvring::unique_fd queue = image.reopen();
    one_request ring;
    void* const data = std::aligned_alloc(4096, 4096);
    std::memset(data, 'o', 4096);
    say(ring.write(queue.get(), 4096, data, 4096));
  });
  expect_busy_until_it_landed(device, one);
}

}  // namespace
}  // namespace aio_test
