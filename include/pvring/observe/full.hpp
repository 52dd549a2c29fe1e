// SPDX-License-Identifier: MIT
// Observes every request: when it reached which stage, for the latest few thousand of them.
// trace_event.hpp writes that as a timeline.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "observer.hpp"

namespace pvring::observe {

/// One request's life. A stage that it did not pass has the time 0.
struct request_record {
  std::uint32_t slot = 0;
  std::array<std::uint64_t, stage_count> at{};  ///< nanoseconds of the recorder's clock

  [[nodiscard]] std::uint64_t time(stage reached) const noexcept {
    return at[static_cast<std::size_t>(reached)];
  }
};

/// \tparam Clock a steady clock; tests bring one that they move
/// \tparam Capacity requests that are kept; when more were answered, the oldest are gone
template <class Clock, std::size_t Capacity>
struct basic_full {
  static_assert(Capacity > 0);
  using policy_kind = pvring::policy_kind::observer;

  /// Memory: 56 bytes per slot and per record kept; nothing is allocated after construction. Cost:
  /// one reading of the clock per call. Only the queue's thread may read it, or any other after
  /// that one has ended.
  class recorder {
   public:
    static constexpr bool active = true;

    explicit recorder(std::uint32_t slots) : open_(slots), kept_(Capacity) {
      for (std::uint32_t i = 0; i < slots; ++i) {
        open_[i].slot = i;
      }
    }

    void stage(std::uint32_t slot, observe::stage reached) noexcept {
      if (slot >= open_.size()) {
        return;
      }
      request_record& request = open_[slot];
      if (reached == observe::stage::seen) {
        request.at.fill(0);
      }
      request.at[static_cast<std::size_t>(reached)] = nanoseconds_now();
      if (reached == observe::stage::responded) {
        kept_[answered_ % Capacity] = request;
        ++answered_;
      }
    }

    void published(bool notified) noexcept {
      if (notified && published_ != answered_) {
        const std::uint64_t now = nanoseconds_now();
        for (std::uint64_t i = std::max(published_, first_kept()); i < answered_; ++i) {
          kept_[i % Capacity].at[static_cast<std::size_t>(observe::stage::notified)] = now;
        }
      }
      published_ = answered_;
    }

    void pass(std::uint32_t /*taken*/, std::uint32_t /*answered*/) noexcept {}

    /// Calls `each(const request_record&)` for every request kept, in the order of their answers.
    template <class Each>
    void for_each(Each&& each) const {
      for (std::uint64_t i = first_kept(); i < answered_; ++i) {
        each(kept_[i % Capacity]);
      }
    }

    /// Requests answered so far, kept or not.
    [[nodiscard]] std::uint64_t answered() const noexcept { return answered_; }

   private:
    static std::uint64_t nanoseconds_now() noexcept {
      const auto since = Clock::now().time_since_epoch();
      return static_cast<std::uint64_t>(
          std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
    }
    [[nodiscard]] std::uint64_t first_kept() const noexcept {
      return answered_ > Capacity ? answered_ - Capacity : 0;
    }

    std::vector<request_record> open_;
    std::vector<request_record> kept_;
    std::uint64_t answered_ = 0;
    std::uint64_t published_ = 0;
  };
};

/// The policy, with the machine's clock; 16384 records are 0.9 MiB per queue.
struct full : basic_full<std::chrono::steady_clock, 16384> {};

}  // namespace pvring::observe
