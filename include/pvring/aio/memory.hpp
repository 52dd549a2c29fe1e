// SPDX-License-Identifier: MIT
// An image in the process's own memory, for tests, benchmarks and scratch disks. A transfer is
// complete when it was submitted; the next reap reports it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "../base/error.hpp"
#include "counters.hpp"
#include "detail/ready_queue.hpp"
#include "engine.hpp"

namespace pvring::aio {

struct memory_options {
  bool read_only = false;
  std::uint32_t discard_granularity = 512;  ///< 0: discards are refused
  std::string name = "memory";
};

/// Bytes, all zero at first. Queues that overlap in flight race for them as they would for a disk,
/// so a well-behaved frontend is assumed.
class memory_image {
 public:
  /// \throws configuration_error when empty, std::bad_alloc
  explicit memory_image(std::uint64_t bytes, memory_options options = {})
      : options_(std::move(options)),
        bytes_(bytes),
        data_(bytes != 0 ? new std::byte[bytes]() : nullptr) {
    if (bytes == 0) {
      throw configuration_error("image " + options_.name +
                                " is empty: a disk needs at least one sector");
    }
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return bytes_; }
  [[nodiscard]] bool read_only() const noexcept { return options_.read_only; }
  [[nodiscard]] bool can_flush() const noexcept { return true; }
  [[nodiscard]] std::uint32_t discard_granularity() const noexcept {
    return options_.read_only ? 0 : options_.discard_granularity;
  }
  [[nodiscard]] std::uint32_t physical_block_size() const noexcept { return 512; }
  [[nodiscard]] bool buffers_free_at_completion() const noexcept { return true; }
  [[nodiscard]] bool buffers_free_at_exit() const noexcept { return true; }
  [[nodiscard]] std::uint32_t alignment() const noexcept { return 1; }
  [[nodiscard]] std::string_view name() const noexcept { return options_.name; }

  /// The content, to fill and to compare.
  [[nodiscard]] std::span<std::byte> bytes() noexcept { return {data_.get(), bytes_}; }

  /// Performs one transfer; 0 or a negative errno.
  int perform(const transfer& work) noexcept {
    if (work.kind == operation::flush) {
      return 0;
    }
    if (work.offset > bytes_ || work.length > bytes_ - work.offset) {
      return -EIO;
    }
    if (work.kind == operation::read) {
      std::byte* from = data_.get() + work.offset;
      for (const iovec& buffer : work.buffers) {
        std::memcpy(buffer.iov_base, from, buffer.iov_len);
        from += buffer.iov_len;
      }
      return 0;
    }
    if (options_.read_only) {
      return -EROFS;
    }
    std::byte* to = data_.get() + work.offset;
    if (work.kind == operation::write) {
      for (const iovec& buffer : work.buffers) {
        std::memcpy(to, buffer.iov_base, buffer.iov_len);
        to += buffer.iov_len;
      }
      return 0;
    }
    if (work.kind == operation::discard && options_.discard_granularity == 0) {
      return -EOPNOTSUPP;
    }
    std::memset(to, 0, work.length);
    return 0;
  }

 private:
  memory_options options_;
  std::uint64_t bytes_;
  std::unique_ptr<std::byte[]> data_;
};

static_assert(image<memory_image>);

struct memory {
  using policy_kind = pvring::policy_kind::engine;
  using image = memory_image;

  class context {
   public:
    /// \throws std::system_error, configuration_error
    context(memory_image& image, context_options options)
        : image_(image), ready_(options.capacity) {}

    void submit(std::span<transfer* const> batch) noexcept {
      for (transfer* work : batch) {
        ready_.push(*work, image_.perform(*work));
      }
      counters_.transfers.add(batch.size());
    }

    template <class F>
    std::size_t reap(F&& f) noexcept {
      return ready_.reap(f);
    }

    [[nodiscard]] std::size_t in_flight() const noexcept { return ready_.size(); }
    [[nodiscard]] std::size_t capacity() const noexcept { return ready_.capacity(); }
    [[nodiscard]] int fd() const noexcept { return ready_.fd(); }
    [[nodiscard]] bool arm() noexcept { return ready_.arm(); }
    void disarm() noexcept { ready_.disarm(); }
    [[nodiscard]] aio::counters& counters() noexcept { return counters_; }

   private:
    memory_image& image_;
    detail::ready_queue ready_;
    aio::counters counters_;
  };
};

static_assert(engine<memory>);

}  // namespace pvring::aio
