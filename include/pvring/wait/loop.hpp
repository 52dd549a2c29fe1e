// SPDX-License-Identifier: MIT
// Serving a queue without owning the thread: passes, the decision to poll on or to sleep, and what
// to sleep on. A user's event loop and the runner both go through it.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "../base/counter.hpp"
#include "policy.hpp"
#include "served.hpp"

namespace pvring::wait {

/// Counted by a waiter; any thread may read.
struct waiter_counters {
  counter passes;        ///< calls of service()
  counter idle_passes;   ///< of those, the ones without work
  counter sleeps;        ///< times that everything was armed and the caller was told to sleep
  counter found_armed;   ///< times that arming found work, so that nobody slept
  counter polls_paid;    ///< entries into polling that found work
  counter polls_unpaid;  ///< entries into polling that ended in a sleep
};

struct waiter_options {
  std::size_t budget = 256;  ///< requests per pass
  clock_function now =
      &std::chrono::steady_clock::now;  ///< asked in idle passes of an adaptive policy only
};

/// Serves `Served`, whose sources are there, by a policy. One thread uses it.
///
///     waiter w(queue, wait::adaptive{});
///     for (int fd : w.fds()) add(epoll, fd);           // level-triggered
///     while (running) {
///       const bool sleep = w.turn();
///       epoll_wait(epoll, events, count, sleep ? w.timeout_ms() : 0);
///       ...                                            // whatever else the loop serves
///     }
///
/// The first turn is a pass, whether anything has fired or not: requests may have been put before
/// the port was bound.
template <served Served>
class waiter {
 public:
  explicit waiter(Served& to_serve, const policy& by = policy(),
                  const waiter_options& options = {}) noexcept
      : served_(to_serve), policy_(by), options_(options) {
    served_.for_each_source([this](auto& s) noexcept {
      assert(sources_ < max_sources && "a queue has too many sources");
      fds_[sources_++] = s.fd();
    });
  }

  waiter(const waiter&) = delete;
  waiter& operator=(const waiter&) = delete;

  /// One pass, then the decision. True: everything is armed and nothing is there, so the caller may
  /// sleep until one of `fds()` is readable or `deadline()` has come, and calls `turn` again after
  /// that (or earlier). False: call `turn` again at once.
  [[nodiscard]] bool turn() noexcept {
    pass();
    return prepare();
  }

  /// The pass alone. Returns the work done.
  std::size_t pass() noexcept {
    // Whoever serves is awake: producers may spare themselves the wake-ups.
    if (armed_) {
      armed_ = false;
      served_.for_each_source([](auto& s) noexcept { s.disarm(); });
    }
    found_ = served_.service(options_.budget);
    counters_.passes.add();
    if (found_ == 0) {
      counters_.idle_passes.add();
    } else if (waiting_) {
      end_wait();
    }
    return found_;
  }

  /// The decision alone: may the caller sleep? See `turn`.
  [[nodiscard]] bool prepare() noexcept {
    if (found_ != 0 || look_on()) {
      return false;
    }
    if (!arm_all()) {
      return true;
    }
    counters_.found_armed.add();
    return false;
  }

  /// The descriptors to sleep on. They stay the same while connected.
  [[nodiscard]] std::span<const int> fds() const noexcept { return {fds_.data(), sources_}; }

  /// When to call `turn` even if no descriptor is readable.
  [[nodiscard]] std::optional<time_point> deadline() noexcept {
    std::optional<time_point> first = served_.deadline();
    served_.for_each_source([&first](auto& s) noexcept {
      if constexpr (source_with_deadline<std::remove_reference_t<decltype(s)>>) {
        const std::optional<time_point> at = s.deadline();
        if (at && (!first || *at < *first)) {
          first = at;
        }
      }
    });
    return first;
  }

  /// How long to sleep at most: nothing for as long as it takes, 0 when the deadline has passed.
  [[nodiscard]] std::optional<std::chrono::nanoseconds> timeout() noexcept {
    const std::optional<time_point> at = deadline();
    if (!at) {
      return std::nullopt;
    }
    return std::max<std::chrono::nanoseconds>(*at - options_.now(), std::chrono::nanoseconds(0));
  }

  /// The same for poll and epoll_wait: milliseconds, rounded up so that nobody wakes too early, -1
  /// for ever.
  [[nodiscard]] int timeout_ms() noexcept {
    const std::optional<std::chrono::nanoseconds> left = timeout();
    if (!left) {
      return -1;
    }
    constexpr std::chrono::milliseconds longest = std::chrono::hours(24);
    return static_cast<int>(
        std::min(std::chrono::ceil<std::chrono::milliseconds>(*left), longest).count());
  }

  /// Whether the last pass found nothing.
  [[nodiscard]] bool idle() const noexcept { return found_ == 0; }

  /// The window of the source at position `i`.
  [[nodiscard]] const window& window_of(std::size_t i) const noexcept { return states_[i].polled; }

  [[nodiscard]] const waiter_counters& counters() const noexcept { return counters_; }

 private:
  // What waiting for one source has taught.
  struct state {
    window polled;
    std::uint64_t mark = 0;  // what it had done, or had in flight, when the wait began
    bool expecting = true;   // whether work can come from it during this wait
  };
  enum class share : std::uint8_t { none, some, unknown };

  template <class S>
  static void begin(S& s, state& of) noexcept {
    if constexpr (source_with_progress<S>) {
      of.mark = s.progress();
    } else if constexpr (source_with_flights<S>) {
      of.mark = s.in_flight();
      of.expecting = of.mark != 0;
    }
  }

  // What a source had to do with the work that ended the wait.
  template <class S>
  static share share_of(S& s, const state& of) noexcept {
    if constexpr (source_with_progress<S>) {
      return s.progress() != of.mark ? share::some : share::none;
    } else if constexpr (source_with_flights<S>) {
      // The same pass may have put more into flight than it took out.
      return !of.expecting ? share::none : s.in_flight() < of.mark ? share::some : share::unknown;
    } else {
      return share::unknown;
    }
  }

  // Calls f(source, state) for every source.
  template <class F>
  void for_each_state(F&& f) noexcept {
    std::size_t i = 0;
    served_.for_each_source([&](auto& s) noexcept { f(s, states_[i++]); });
  }

  // The pass found nothing. Is it worth looking again, rather than arming?
  bool look_on() noexcept {
    if (policy_.kind() != policy_kind::adaptive) {
      return policy_.kind() == policy_kind::busy;
    }
    const time_point now = options_.now();
    if (!waiting_) {
      waiting_ = now;
      longest_ = std::chrono::nanoseconds(0);
      for_each_state([this](auto& s, state& of) noexcept {
        begin(s, of);
        if (of.expecting) {
          longest_ = std::max(longest_, of.polled.length());
        }
      });
      polling_ = longest_.count() != 0;
    }
    if (now - *waiting_ < longest_) {
      return true;
    }
    if (polling_) {
      polling_ = false;
      counters_.polls_unpaid.add();
    }
    return false;
  }

  // The wait brought work: whose was it? Those that show it; if none does, those that cannot show
  // it.
  void end_wait() noexcept {
    const std::chrono::nanoseconds waited = options_.now() - *waiting_;
    waiting_.reset();
    if (polling_) {
      polling_ = false;
      counters_.polls_paid.add();
    }
    std::array<share, max_sources> shares{};
    share whose = share::unknown;
    std::size_t i = 0;
    for_each_state([&](auto& s, state& of) noexcept {
      shares[i] = share_of(s, of);
      whose = shares[i++] == share::some ? share::some : whose;
    });
    for (i = 0; i < sources_; ++i) {
      if (shares[i] == whose) {
        states_[i].polled.brought_work(waited, policy_.options());
      } else if (states_[i].expecting) {
        states_[i].polled.brought_nothing(waited, policy_.options());
      }
    }
  }

  // Every source is armed, even after one of them has found work: a source is not starved of its
  // wake-up by another.
  bool arm_all() noexcept {
    bool work = false;
    armed_ = true;
    served_.for_each_source([&work](auto& s) noexcept { work |= s.arm(); });
    if (!work) {
      counters_.sleeps.add();
    }
    return work;
  }

  Served& served_;
  policy policy_;
  waiter_options options_;
  std::size_t found_ = 0;
  bool armed_ = false;
  bool polling_ = false;  // the current wait began with an open window, and it has not run out
  std::optional<time_point> waiting_;    // since when; adaptive only
  std::chrono::nanoseconds longest_{0};  // of the windows, during the current wait
  std::array<state, max_sources> states_{};
  std::array<int, max_sources> fds_{};
  std::size_t sources_ = 0;
  waiter_counters counters_;
};

}  // namespace pvring::wait
