// SPDX-License-Identifier: MIT
// Observes how long requests take from stage to stage, as histograms in constant memory; and how
// large passes are. Any thread may read them while the queue works.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "batch_sizes.hpp"
#include "log_linear_histogram.hpp"
#include "observer.hpp"

namespace pvring::observe {

/// \tparam Clock a steady clock; tests bring one that they move
template <class Clock>
struct basic_histogram {
  using policy_kind = pvring::policy_kind::observer;

  /// Memory: 92 KiB, and 24 bytes per slot; nothing is allocated after construction. Cost: one
  /// reading of the clock per call.
  class recorder {
   public:
    static constexpr bool active = true;

    explicit recorder(std::uint32_t slots) : reached_(slots), unpublished_(slots) {}

    void stage(std::uint32_t slot, observe::stage which) noexcept {
      if (slot >= reached_.size()) {
        return;
      }
      const std::uint64_t now = nanoseconds_now();
      progress& request = reached_[slot];
      if (which == observe::stage::seen) {
        request = {now, now};
        return;
      }
      step(which).record(now - request.latest);
      request.latest = now;
      if (which == observe::stage::responded) {
        total_.record(now - request.seen);
        if (unpublished_count_ < unpublished_.size()) {
          unpublished_[unpublished_count_++] = now;
        }
      }
    }

    void published(bool notified) noexcept {
      if (notified && unpublished_count_ != 0) {
        const std::uint64_t now = nanoseconds_now();
        for (std::size_t i = 0; i < unpublished_count_; ++i) {
          step(observe::stage::notified).record(now - unpublished_[i]);
        }
      }
      unpublished_count_ = 0;
    }

    void pass(std::uint32_t taken, std::uint32_t answered) noexcept {
      taken_.record(taken);
      answered_.record(answered);
    }

    /// Nanoseconds from the stage that a request passed before to this one. Seen has none, as
    /// nothing is before it.
    [[nodiscard]] const log_linear_histogram& until(observe::stage which) const noexcept {
      return steps_[static_cast<std::size_t>(which)];
    }
    /// Nanoseconds from seen to responded.
    [[nodiscard]] const log_linear_histogram& total() const noexcept { return total_; }
    /// Requests taken, and answered, per pass that did any of it.
    [[nodiscard]] const batch_sizes& taken() const noexcept { return taken_; }
    [[nodiscard]] const batch_sizes& answered() const noexcept { return answered_; }

   private:
    struct progress {
      std::uint64_t seen = 0;
      std::uint64_t latest = 0;
    };

    static std::uint64_t nanoseconds_now() noexcept {
      const auto since = Clock::now().time_since_epoch();
      return static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
    }
    log_linear_histogram& step(observe::stage which) noexcept {
      return steps_[static_cast<std::size_t>(which)];
    }

    std::array<log_linear_histogram, stage_count> steps_;
    log_linear_histogram total_;
    batch_sizes taken_;
    batch_sizes answered_;
    std::vector<progress> reached_;
    // When the responses were written that the peer has not been shown yet. Their slots may be in
    // use again by then.
    std::vector<std::uint64_t> unpublished_;
    std::size_t unpublished_count_ = 0;
  };
};

/// The policy, with the machine's clock.
struct histogram : basic_histogram<std::chrono::steady_clock> {};

}  // namespace pvring::observe
