// SPDX-License-Identifier: MIT
// Makes a device of a function: each transfer is one call of it, on the queue's own thread. It
// suits what answers at once; what has to wait for something needs an engine of its own.
#pragma once

#include <atomic>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "../base/error.hpp"
#include "counters.hpp"
#include "detail/ready_queue.hpp"
#include "engine.hpp"

namespace pvring::aio {

/// `int f(operation, std::uint64_t offset, std::span<const iovec> buffers, std::uint64_t length)
/// noexcept`: 0 or a negative errno. Ranges are inside the image. Queues call it from their own
/// threads, at the same time where there are several.
template <class F>
concept inline_function =
    std::is_object_v<F> && std::is_nothrow_invocable_r_v<int, F&, operation, std::uint64_t,
                                                         std::span<const iovec>, std::uint64_t>;

struct inline_options {
  std::uint64_t size = 0;  ///< bytes, whole sectors
  bool read_only = false;
  bool can_flush = true;                  ///< whether the function is asked to flush
  std::uint32_t discard_granularity = 0;  ///< 0: the function is never asked to discard
  std::uint32_t physical_block_size = 512;
  std::string name = "inline";
};

/// The function and what it offers.
template <inline_function F>
class inline_image {
 public:
  /// \throws configuration_error
  inline_image(F function, inline_options options)
      : function_(std::move(function)), options_(std::move(options)) {
    if (options_.size == 0) {
      throw configuration_error("image " + options_.name +
                                " is empty: a disk needs at least one sector");
    }
  }

  [[nodiscard]] std::uint64_t size() const noexcept { return options_.size; }
  [[nodiscard]] bool read_only() const noexcept { return options_.read_only; }
  [[nodiscard]] bool can_flush() const noexcept { return options_.can_flush; }
  [[nodiscard]] std::uint32_t discard_granularity() const noexcept {
    return options_.read_only ? 0 : options_.discard_granularity;
  }
  [[nodiscard]] std::uint32_t physical_block_size() const noexcept {
    return options_.physical_block_size;
  }
  // A call that has returned holds nothing, unless the function keeps pointers, which it may not.
  [[nodiscard]] bool buffers_free_at_completion() const noexcept { return true; }
  [[nodiscard]] bool buffers_free_at_exit() const noexcept { return true; }
  [[nodiscard]] std::uint32_t alignment() const noexcept { return 1; }
  [[nodiscard]] std::string_view name() const noexcept { return options_.name; }

  [[nodiscard]] F& function() noexcept { return function_; }

  /// Performs one transfer; what the image does not offer never reaches the function.
  int perform(const transfer& work) noexcept {
    switch (work.kind) {
      case operation::read:
        break;
      case operation::flush:
        return options_.can_flush ? flush(work) : 0;
      case operation::discard:
        if (options_.discard_granularity == 0) {
          return -EOPNOTSUPP;
        }
        [[fallthrough]];
      case operation::write:
      case operation::write_zeroes:
        if (options_.read_only) {
          return -EROFS;
        }
    }
    const bool inside = work.offset <= options_.size && work.length <= options_.size - work.offset;
    return inside ? call(work) : -EIO;
  }

 private:
  // Once failed, failed for good: see engine_context. The first error is kept.
  int flush(const transfer& work) noexcept {
    int failed = flush_error_.load(std::memory_order_relaxed);
    if (failed == 0) {
      const int now = call(work);
      if (now == 0 ||
          flush_error_.compare_exchange_strong(failed, now, std::memory_order_relaxed)) {
        return now;
      }
    }
    return failed;
  }

  int call(const transfer& work) noexcept {
    return static_cast<int>(
        function_(work.kind, work.offset, std::span<const iovec>(work.buffers), work.length));
  }

  F function_;
  inline_options options_;
  std::atomic<int> flush_error_{0};  // queues share the image
};

template <inline_function F>
struct inline_engine {
  using policy_kind = pvring::policy_kind::engine;
  using image = inline_image<F>;

  class context {
   public:
    /// \throws std::system_error, configuration_error
    context(image& device, context_options options) : image_(device), ready_(options.capacity) {}

    void submit(std::span<transfer* const> batch) noexcept {
      for (transfer* work : batch) {
        ready_.push(*work, image_.perform(*work));
      }
      counters_.transfers.add(batch.size());
    }

    template <class G>
    std::size_t reap(G&& g) noexcept {
      return ready_.reap(g);
    }

    [[nodiscard]] std::size_t in_flight() const noexcept { return ready_.size(); }
    [[nodiscard]] std::size_t capacity() const noexcept { return ready_.capacity(); }
    [[nodiscard]] int fd() const noexcept { return ready_.fd(); }
    [[nodiscard]] bool arm() noexcept { return ready_.arm(); }
    void disarm() noexcept { ready_.disarm(); }
    [[nodiscard]] aio::counters& counters() noexcept { return counters_; }

   private:
    image& image_;
    detail::ready_queue ready_;
    aio::counters counters_;
  };
};

}  // namespace pvring::aio
