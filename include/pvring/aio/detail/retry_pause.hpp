// SPDX-License-Identifier: MIT
// When to try again what the kernel had no room for, if nothing of ours will complete and make
// room: after a pause that doubles up to a bound. A sleeping queue is woken by the helper thread,
// which sleeps out the pause for it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>

#include "../helper_thread.hpp"

namespace pvring::aio::detail {

class retry_pause {
 public:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds shortest{1};
  static constexpr std::chrono::milliseconds longest{16};

  /// \param word tells the queue, from the helper's thread, that a pause is over
  retry_pause(helper_thread& helper, void (*word)(void*) noexcept, void* queue) noexcept
      : helper_(helper), word_(word), queue_(queue) {
    job_.base.run = &sleep_here;
    job_.self = this;
  }

  retry_pause(const retry_pause&) = delete;
  retry_pause& operator=(const retry_pause&) = delete;

  void begin() noexcept {
    until_ = clock::now() + length_;
    length_ = std::min(2 * length_, longest);
  }

  [[nodiscard]] bool is_over() const noexcept { return clock::now() >= until_; }

  /// There was room again.
  void reset() noexcept { length_ = shortest; }

  /// Sees to it that the word comes; false when there is no helper to be had.
  bool arrange_word() noexcept {
    if (!asleep_) {
      job_.until = until_;
      asleep_ = helper_.post(job_.base);
    }
    return asleep_;
  }

  /// The word has come.
  void heard() noexcept { asleep_ = false; }

 private:
  struct nap {
    helper_job base;  // first: the helper knows only this
    retry_pause* self = nullptr;
    clock::time_point until{};
  };

  static void sleep_here(helper_job& base) noexcept {
    const nap& job = reinterpret_cast<nap&>(base);
    std::this_thread::sleep_until(job.until);
    job.self->word_(job.self->queue_);
  }

  helper_thread& helper_;
  void (*word_)(void*) noexcept;
  void* queue_;
  clock::time_point until_{};
  std::chrono::milliseconds length_ = shortest;
  bool asleep_ = false;
  nap job_;
};

}  // namespace pvring::aio::detail
