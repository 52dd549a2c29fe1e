// SPDX-License-Identifier: MIT
// A context of the real engine on a real temporary file, over the fake kernel.
#pragma once

#include <memory>
#include <utility>

#include <pvring/aio/uring.hpp>

#include "fake_liburing.hpp"
#include "support/engine_seam.hpp"

namespace seam {

/// A ring's descriptor is readable while it holds results; the fake's has to be told that they are
/// gone.
struct told_context : pvring::aio::uring::context {
  using pvring::aio::uring::context::context;

  template <class F>
  std::size_t reap(F&& f) noexcept {
    const std::size_t n = pvring::aio::uring::context::reap(std::forward<F>(f));
    fake::kernel::settle();
    return n;
  }
};

class uring_seam : public engine_seam<pvring::aio::uring_image, told_context> {
 public:
  uring_seam() { fake::current = std::make_unique<fake::kernel>(); }

  static fake::kernel& kernel() { return *fake::current; }
};

}  // namespace seam
