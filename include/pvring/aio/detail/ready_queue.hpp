// SPDX-License-Identifier: MIT
// For engines that complete a transfer while it is submitted: the transfers that wait for the next
// reap, and the wake-up that tells a sleeper of them. One thread uses it, so it writes the
// descriptor only between arm() and disarm().
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <system_error>

#include "../../base/error.hpp"
#include "../../base/source.hpp"
#include "../../base/unique_fd.hpp"
#include "../engine.hpp"

namespace pvring::aio::detail {

class ready_queue {
 public:
  /// \throws std::system_error, configuration_error
  explicit ready_queue(std::size_t capacity)
      : wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        capacity_(capacity),
        ready_(std::make_unique<transfer*[]>(capacity)) {
    if (!wake_) {
      throw std::system_error(errno, std::generic_category(), "eventfd of an engine");
    }
    if (capacity == 0) {
      throw configuration_error(
          "an engine context for 0 transfers: choose a capacity of at least 1");
    }
  }

  void push(transfer& work, int error) noexcept {
    assert(count_ < capacity_);
    work.error = error;
    ready_[count_++] = &work;
    if (armed_ && !signalled_) {
      const std::uint64_t one = 1;
      signalled_ = ::write(wake_.get(), &one, sizeof one) == sizeof one;
    }
  }

  template <class F>
  std::size_t reap(F& f) noexcept {
    const std::size_t n = count_;
    // The count drops before each call, so in_flight() is right inside `f`, and the oldest goes
    // first.
    for (std::size_t i = 0; i != n; ++i) {
      transfer& work = *ready_[i];
      count_ = n - i - 1;
      f(work, work.error);
    }
    return n;
  }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  [[nodiscard]] int fd() const noexcept { return wake_.get(); }

  [[nodiscard]] bool arm() noexcept {
    armed_ = true;
    if (signalled_) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto cleared = ::read(wake_.get(), &count, sizeof count);
      signalled_ = false;
    }
    return count_ != 0;
  }

  void disarm() noexcept { armed_ = false; }

 private:
  unique_fd wake_;
  std::size_t capacity_;
  std::unique_ptr<transfer*[]> ready_;
  std::size_t count_ = 0;
  bool armed_ = false;
  bool signalled_ = false;
};

static_assert(source<ready_queue>);

}  // namespace pvring::aio::detail
