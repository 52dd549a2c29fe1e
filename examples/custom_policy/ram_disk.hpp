// SPDX-License-Identifier: MIT
// A whole engine in one header: a disk in memory. What the queues of a device share is its image,
// what a queue has for itself is a context; tests/conformance/engine_example_test.cpp is the one
// line that puts it through the conformance suite.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <pvring/aio/engine.hpp>
#include <pvring/base/unique_fd.hpp>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace example {

class ram_image {
 public:
  explicit ram_image(std::uint64_t bytes) : bytes_(bytes) {}

  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_.size(); }
  [[nodiscard]] bool read_only() const noexcept { return false; }
  [[nodiscard]] bool can_flush() const noexcept { return true; }
  [[nodiscard]] std::uint32_t discard_granularity() const noexcept { return 0; }
  [[nodiscard]] std::uint32_t physical_block_size() const noexcept { return 4096; }
  [[nodiscard]] bool buffers_free_at_completion() const noexcept { return true; }
  [[nodiscard]] bool buffers_free_at_exit() const noexcept { return true; }
  [[nodiscard]] std::uint32_t alignment() const noexcept { return 1; }
  [[nodiscard]] std::string_view name() const noexcept { return "memory of this example"; }

  /// 0 or a negative errno.
  int perform(const pvring::aio::transfer& work) noexcept {
    using pvring::aio::operation;
    if (work.kind == operation::flush) {
      return 0;
    }
    if (work.offset > bytes_.size() || work.length > bytes_.size() - work.offset) {
      return -EIO;
    }
    std::byte* at = bytes_.data() + work.offset;
    if (work.kind == operation::write_zeroes) {
      std::memset(at, 0, work.length);
      return 0;
    }
    if (work.kind == operation::discard) {
      return -EOPNOTSUPP;  // as discard_granularity() says
    }
    for (const iovec& buffer : work.buffers) {
      const bool reads = work.kind == operation::read;
      std::memcpy(reads ? buffer.iov_base : at, reads ? at : buffer.iov_base, buffer.iov_len);
      at += buffer.iov_len;
    }
    return 0;
  }

 private:
  std::vector<std::byte> bytes_;
};

struct ram_disk {
  using policy_kind = pvring::policy_kind::engine;
  using image = ram_image;

  class context {
   public:
    context(ram_image& image, pvring::aio::context_options options)
        : image_(image),
          capacity_(options.capacity),
          wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
      if (!wake_) {
        throw std::system_error(errno, std::generic_category(), "eventfd of a RAM disk");
      }
      done_.reserve(capacity_);  // nothing allocates later
    }

    void submit(std::span<pvring::aio::transfer* const> batch) noexcept {
      for (pvring::aio::transfer* work : batch) {
        work->error = image_.perform(*work);
        done_.push_back(work);
      }
      in_flight_ += batch.size();
      // Who has armed may be about to sleep.
      if (armed_ && !batch.empty() && !std::exchange(signalled_, true)) {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
      }
    }

    template <class F>
    std::size_t reap(F&& f) noexcept {
      const std::size_t n = done_.size();
      for (pvring::aio::transfer* work : done_) {
        --in_flight_;  // before the call: `f` may ask
        f(*work, work->error);
      }
      done_.clear();
      return n;
    }

    [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

    [[nodiscard]] int fd() const noexcept { return wake_.get(); }
    [[nodiscard]] bool arm() noexcept {
      armed_ = true;
      if (std::exchange(signalled_, false)) {
        std::uint64_t count = 0;
        [[maybe_unused]] const auto cleared = ::read(wake_.get(), &count, sizeof count);
      }
      return !done_.empty();
    }
    void disarm() noexcept { armed_ = false; }

   private:
    ram_image& image_;
    const std::size_t capacity_;
    pvring::unique_fd wake_;
    std::vector<pvring::aio::transfer*> done_;
    std::size_t in_flight_ = 0;
    bool armed_ = false;
    bool signalled_ = false;
  };
};

static_assert(pvring::aio::engine<ram_disk>);

}  // namespace example
