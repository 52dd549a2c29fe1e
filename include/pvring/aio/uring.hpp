// SPDX-License-Identifier: MIT
// The engine on io_uring, through liburing: one call submits a pass, results are read from memory,
// and what others leave to a helper thread (holes, zeroes) the kernel does in the background.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "detail/kernel_context.hpp"
#include "engine.hpp"
#include "file_image.hpp"
#include "uring_kernel.hpp"

namespace pvring::aio {

/// A file as this engine uses it. When a process is killed, the kernel does not wait for what its
/// rings have in flight: pages that a guest has granted may then be gone before the I/O on them is
/// over, which corrupts a PV dom0. So they are not used as buffers unless somebody insists.
class uring_image : public file_image {
 public:
  /// \throws uring_unavailable, and what file_image throws
  explicit uring_image(std::string path, file_options options = {})
      : file_image((detail::require_uring(), std::move(path)), options) {}

  [[nodiscard]] bool buffers_free_at_exit() const noexcept { return false; }
};

struct uring {
  using policy_kind = pvring::policy_kind::engine;
  using image = uring_image;
  class context;
};

/// One queue's ring.
///
/// With `reap_mode::polled` a queue never sleeps while something is in flight: nothing would wake
/// it. The image has to be open for direct I/O, on a device with queues for polling.
class uring::context : public detail::kernel_context<detail::uring_kernel> {
 public:
  context(uring_image& image, context_options options) : kernel_context(image, options) {}

  void expect_buffers_in(std::span<std::byte> region) noexcept { kernel().register_region(region); }

  /// What the kernel allowed of what makes a transfer cheaper.
  [[nodiscard]] bool file_is_registered() const noexcept { return kernel().file_is_fixed(); }
  [[nodiscard]] bool buffers_are_registered() const noexcept {
    return kernel().buffers_are_fixed();
  }
};

static_assert(image<uring_image> && engine<uring>);

}  // namespace pvring::aio
