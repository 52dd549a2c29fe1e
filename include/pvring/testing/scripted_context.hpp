// SPDX-License-Identifier: MIT
// An engine's context that follows a completion script. It touches the buffers only when a transfer
// completes, so a buffer that was unmapped too early is found out.
#pragma once

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <system_error>
#include <vector>

#include "../aio/counters.hpp"
#include "../aio/engine.hpp"
#include "../base/error.hpp"
#include "../base/unique_fd.hpp"
#include "completion_script.hpp"

namespace pvring::testing {

/// \tparam Image has `script()`, `gate()`, `started(transfer&)` called at submission, whose result comes back in
/// `perform(transfer&, token)` at completion, and an `abandoned(transfer&, token)` for what its
/// context left in flight
template <class Image>
class scripted_context {
 public:
  /// \throws std::system_error, configuration_error
  scripted_context(Image& image, aio::context_options options)
      : image_(image),
        control_(image.control()),
        script_(control_.script()),
        capacity_(options.capacity),
        timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
        random_(script_.seed) {
    if (!timer_) {
      throw std::system_error(errno, std::generic_category(), "timer of a test engine");
    }
    if (capacity_ == 0) {
      throw configuration_error("a test engine for 0 transfers: choose a capacity of at least 1");
    }
    held_.reserve(capacity_);
    control_.add(timer_.get());
  }

  scripted_context(const scripted_context&) = delete;
  scripted_context& operator=(const scripted_context&) = delete;

  /// What is in flight still touches its buffers, as a device would, and then nothing does any
  /// more.
  ~scripted_context() {
    control_.remove(timer_.get());
    for (entry& e : held_) {
      image_.abandoned(*e.work, e.token);
      watch(*e.work, false);
    }
  }

  void submit(std::span<aio::transfer* const> batch) noexcept {
    assert(batch.size() <= capacity_ - held_.size());
    const auto due = clock::now() + script_.latency;
    for (aio::transfer* work : batch) {
      watch(*work, true);
      held_.push_back({work, image_.started(*work), number_++, script_.held_for, due});
    }
    counters_.transfers.add(batch.size());
    if (armed_) {
      set_timer(ready() ? std::chrono::nanoseconds(1) : std::chrono::nanoseconds(script_.latency));
    }
  }

  template <class F>
  std::size_t reap(F&& f) noexcept {
    order();
    const auto now = clock::now();
    std::size_t n = 0;
    for (std::size_t i = 0; i < held_.size() && n < script_.at_most;) {
      entry& e = held_[i];
      if (e.reaps != 0 || e.due > now || !control_.pass()) {
        e.reaps -= e.reaps != 0 ? 1 : 0;
        ++i;
        continue;
      }
      aio::transfer& work = *e.work;
      work.error = control_.result_of(work);
      if (work.error == 0) {
        work.error = image_.perform(work, e.token);
      } else {
        image_.dropped(work);
      }
      watch(work, false);
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
      ++n;
      f(work, work.error);
    }
    return n;
  }

  [[nodiscard]] std::size_t in_flight() const noexcept { return held_.size(); }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] aio::counters& counters() noexcept { return counters_; }

  [[nodiscard]] int fd() const noexcept { return timer_.get(); }

  /// True also while something waits for nothing but further reaps.
  [[nodiscard]] bool arm() noexcept {
    armed_ = true;
    std::uint64_t count = 0;
    [[maybe_unused]] const auto cleared = ::read(timer_.get(), &count, sizeof count);
    if (!held_.empty()) {
      const auto next = std::ranges::min(held_, {}, &entry::due).due;
      set_timer(
          std::max<std::chrono::nanoseconds>(next - clock::now(), std::chrono::nanoseconds(1)));
    }
    return ready();
  }

  void disarm() noexcept { armed_ = false; }

 private:
  using clock = std::chrono::steady_clock;

  struct entry {
    aio::transfer* work;
    std::uint64_t token;
    std::uint64_t number;  // of submission
    std::uint32_t reaps;
    clock::time_point due;
  };

  void order() noexcept {
    switch (script_.order) {
      case completion_order::oldest_first:
        return;
      case completion_order::newest_first:
        std::ranges::sort(held_, std::greater{}, &entry::number);
        return;
      case completion_order::shuffled:
        std::ranges::shuffle(held_, random_);
    }
  }

  [[nodiscard]] bool ready() noexcept {
    const auto now = clock::now();
    return control_.is_open() &&
           std::ranges::any_of(held_, [&](const entry& e) { return e.due <= now; });
  }

  /// Where a test completes by hand, only its release sets the timer off.
  void set_timer(std::chrono::nanoseconds after) noexcept {
    if (script_.by_hand) {
      return;
    }
    const itimerspec once{{}, {after.count() / 1000000000, after.count() % 1000000000}};
    (void)::timerfd_settime(timer_.get(), 0, &once, nullptr);
  }

  void watch(const aio::transfer& work, bool begins) noexcept {
    if (script_.watch == nullptr) {
      return;
    }
    for (const iovec& buffer : work.buffers) {
      if (begins) {
        script_.watch->begin(buffer.iov_base, buffer.iov_len);
      } else {
        script_.watch->end(buffer.iov_base, buffer.iov_len);
      }
    }
  }

  Image& image_;
  completion_control& control_;
  const completion_script& script_;
  std::size_t capacity_;
  unique_fd timer_;
  std::mt19937 random_;
  std::vector<entry> held_;
  std::uint64_t number_ = 0;
  bool armed_ = false;
  aio::counters counters_;
};

}  // namespace pvring::testing
