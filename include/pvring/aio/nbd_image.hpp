// SPDX-License-Identifier: MIT
// A disk of an NBD server, opened by its URI: what the server says of it, what all queues remember
// together, and the thread that connects for them.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "../base/error.hpp"
#include "../base/log.hpp"
#include "detail/flush_memory.hpp"
#include "engine.hpp"
#include "helper_thread.hpp"
#include "nbd_link.hpp"

namespace pvring::aio {

struct nbd_options {
  bool read_only = false;
  /// How long requests wait for a server that is gone or does not answer, before they fail.
  std::chrono::milliseconds patience{60'000};
  /// How long one attempt to connect may take.
  std::chrono::milliseconds connect_limit{5'000};
};

/// Whether an image's name is a URI of this engine.
[[nodiscard]] inline bool is_nbd_uri(std::string_view name) noexcept {
  return name.starts_with("nbd://") || name.starts_with("nbd+unix://");
}

class nbd_image {
 public:
  /// Connects; blocks for at most the time that the options allow.
  /// \throws configuration_error that names the URI, what is wrong, and the remedy
  explicit nbd_image(std::string uri, nbd_options options = {})
      : uri_(std::move(uri)),
        options_(options),
        first_(uri_, options.connect_limit),
        traits_(first_.traits()) {
    if (traits_.read_only && !options_.read_only) {
      throw configuration_error("NBD server " + uri_ +
                                ": its disk may only be read: open it with read_only");
    }
    if (!traits_.can_flush && !traits_.can_fua && !read_only()) {
      log::write(log::level::info,
                 "NBD server " + uri_ +
                     " can neither flush nor write through: what it has answered may be lost when "
                     "it crashes");
    }
  }

  nbd_image(const nbd_image&) = delete;
  nbd_image& operator=(const nbd_image&) = delete;
  /// Precondition: every context on the image is gone.
  ~nbd_image() = default;

  // --- concept image
  // -------------------------------------------------------------------------------------------

  /// Whole sectors: what is behind the last one is not offered.
  [[nodiscard]] std::uint64_t size() const noexcept { return traits_.bytes / 512 * 512; }
  [[nodiscard]] bool read_only() const noexcept { return options_.read_only; }
  [[nodiscard]] bool can_flush() const noexcept { return traits_.can_flush; }
  [[nodiscard]] std::uint32_t discard_granularity() const noexcept {
    return traits_.can_trim && !read_only() ? std::max(physical_block_size(), 512U) : 0;
  }
  [[nodiscard]] std::uint32_t physical_block_size() const noexcept {
    return std::bit_floor(std::clamp(traits_.preferred, 512U, 4096U));
  }
  /// Bytes are copied into and out of the socket while a call lasts.
  [[nodiscard]] bool buffers_free_at_completion() const noexcept { return true; }
  [[nodiscard]] bool buffers_free_at_exit() const noexcept { return true; }
  /// A server may still be busy with what a killed process has sent it. Only on a connection of
  /// one's own is the end of that seen.
  [[nodiscard]] bool guarded() const noexcept { return false; }
  [[nodiscard]] std::uint32_t alignment() const noexcept { return traits_.least; }
  [[nodiscard]] std::string_view name() const noexcept { return uri_; }

  /// How many queues may use it: without the server's promise a flush on one connection would not
  /// cover what was written on another.
  [[nodiscard]] std::uint32_t most_contexts() const noexcept {
    return traits_.many_connections ? 256 : 1;
  }

  // --- for the engine
  // -------------------------------------------------------------------------------------------

  [[nodiscard]] const std::string& uri() const noexcept { return uri_; }
  [[nodiscard]] const nbd_options& options() const noexcept { return options_; }
  [[nodiscard]] const detail::nbd_traits& traits() const noexcept { return traits_; }
  /// Each write is made durable by itself, where flushes do not exist.
  [[nodiscard]] bool writes_through() const noexcept {
    return !traits_.can_flush && traits_.can_fua;
  }
  [[nodiscard]] detail::flush_memory& flushes() noexcept { return flushes_; }
  [[nodiscard]] helper_thread& helper() noexcept { return helper_; }

  /// The connection with which the image was opened, for the first queue: some servers have one
  /// only. Empty for the others.
  [[nodiscard]] detail::nbd_link take_first_link() {
    const std::lock_guard guard(taking_);
    return std::exchange(first_, detail::nbd_link());
  }

  /// A queue comes, or goes. \throws configuration_error when there may be no more
  void add_context() {
    if (contexts_.fetch_add(1, std::memory_order_relaxed) >= most_contexts()) {
      remove_context();
      throw configuration_error("NBD server " + uri_ +
                                ": it does not promise that several connections see each other's "
                                "writes: use one queue");
    }
  }
  void remove_context() noexcept { contexts_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  std::string uri_;
  nbd_options options_;
  std::mutex taking_;  // once per connection, not per request
  detail::nbd_link first_;
  detail::nbd_traits traits_;
  std::atomic<std::uint32_t> contexts_{0};
  detail::flush_memory flushes_;
  helper_thread helper_{"pvring-nbd"};
};

static_assert(image<nbd_image>);

}  // namespace pvring::aio
