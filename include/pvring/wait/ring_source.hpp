// SPDX-License-Identifier: MIT
// The source that a queue's rings are: their event indices and the event-channel port they share.
// It is where a peer's kicks are asked for, kept away while somebody polls, and slowed down when
// they bring no work.
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "../base/counter.hpp"
#include "../base/error.hpp"
#include "../base/source.hpp"
#include "../platform/event_channel.hpp"
#include "served.hpp"

namespace pvring::wait {

/// What a ring_source needs of a ring; `ring::back_ring` is one.
template <class R>
concept armable_ring = requires(R& r, const R& c) {
  { c.request_consumer() } noexcept -> std::unsigned_integral;
  { r.arm(c.request_consumer()) } noexcept -> std::same_as<bool>;
  { r.has_requests() } noexcept -> std::same_as<bool>;
  { c.size() } noexcept -> std::convertible_to<std::size_t>;
  { c.broken() } noexcept -> std::same_as<protocol_error>;
};

/// Counted by a ring_source; any thread may read.
struct ring_source_counters {
  counter events;      ///< times that the port had fired
  counter spurious;    ///< of those, the ones without work
  counter delayed;     ///< of those, the ones that kept the port masked for a while
  counter unmasks;     ///< times that the port was unmasked: a system call each
  counter suppressed;  ///< requests taken beyond the events that brought work: kicks not needed
};

struct ring_source_options {
  /// How long the port stays masked after the second event in a row without work; doubles with each
  /// further one. The first is free: a kick may be overtaken by a poller that takes its request.
  std::chrono::nanoseconds first_delay = std::chrono::microseconds(50);
  /// The longest delay: what a request of a storming frontend may have to wait.
  std::chrono::nanoseconds longest_delay = std::chrono::milliseconds(10);
  clock_function now = &std::chrono::steady_clock::now;  ///< asked only about events without work
};

/// One or more rings behind one port. One thread uses it.
///
/// **When the port is unmasked:** in `arm()`, and only there, after every wanted ring's event index
/// was set and the ring was looked at again without finding work, provided that there is a wanted
/// ring and no delay is running. So
///
/// - an event is taken back into service only after its requests were processed: a storm costs its
///   own device a pass, and nobody else anything;
/// - no kick is lost: one sent after the event index was set either has its request seen by the
///   look (it is published before the kick), or finds the port masked, stays pending, and fires at
///   the unmasking.
///
/// **While somebody polls** nothing needs to be done: the event indices lie behind the frontend's
/// producer index once it has passed them, and the port is masked once it has fired. So one kick
/// more at most is sent.
template <platform::event_channel Events, armable_ring... Rings>
  requires(sizeof...(Rings) > 0)
class ring_source {
 public:
  /// `port` is bound on `events`, masked as `bind` leaves it, and the only one of that handle:
  /// others that fire are ignored, as are stale ones, and stay masked.
  ring_source(Events& events, platform::port port, Rings&... rings) noexcept
      : ring_source(ring_source_options{}, events, port, rings...) {}

  ring_source(const ring_source_options& options, Events& events, platform::port port,
              Rings&... rings) noexcept
      : events_(events), port_(port), options_(options), rings_(member<Rings>(rings)...) {}

  ring_source(const ring_source&) = delete;
  ring_source& operator=(const ring_source&) = delete;

  [[nodiscard]] int fd() const noexcept { return events_.fd(); }

  /// Clear, arm, look again, unmask. True when a wanted ring has as many requests as are wanted, or
  /// when it was found broken (once, so that the queue hears of it).
  [[nodiscard]] bool arm() noexcept {
    clear();
    bool wanted = false;
    bool work = false;
    // All of them, even when one has work already: which rings are armed does not depend on their
    // order.
    for_each_ring([&](auto& m) {
      if (m.distance != 0 && !m.told_broken) {
        wanted = true;
        work |= arm_ring(m);
      }
    });
    if (work) {
      return true;
    }
    judge();
    const bool delayed =
        delay_running();  // asked in any case: a deadline must not stay in the past
    if (masked_ && wanted && !delayed) {
      masked_ = false;
      counters_.unmasks.add();
      events_.unmask(port_);
    }
    return false;
  }

  /// Somebody polls. The indices stay parked and a port that fires stays masked without help: see
  /// the class.
  void disarm() noexcept {}

  /// What the ring at position `I` is waited for: `distance` requests more than were taken. 0:
  /// nothing, it is neither armed nor looked at, because there is no room for what it may have
  /// (then `arm()` does not call that work).
  ///
  /// With a distance above 1 the frontend stays silent until so many are there: only for a queue
  /// that will be woken by something else too, since a frontend may never send that many. The ring
  /// cuts it down to what the frontend can put before the next response.
  template <std::size_t I = 0>
  void want(std::size_t distance) noexcept {
    std::get<I>(rings_).distance = distance;
  }

  /// While a delay runs: when to arm again.
  [[nodiscard]] std::optional<time_point> deadline() const noexcept { return delayed_until_; }

  /// Requests taken since the start. Brings `suppressed` up to date.
  [[nodiscard]] std::uint64_t progress() noexcept {
    std::uint64_t taken = 0;
    for_each_ring([&](auto& m) { taken += m.taken_since_last(); });
    if (taken != 0) {
      taken_ += taken;
      count_suppressed();
    }
    return taken_;
  }

  [[nodiscard]] const ring_source_counters& counters() const noexcept { return counters_; }

 private:
  template <class Ring>
  struct member {
    using index = decltype(std::declval<const Ring&>().request_consumer());

    explicit member(Ring& r) noexcept : ring(r), last(r.request_consumer()) {}
    index taken_since_last() noexcept {
      const index now = ring.request_consumer();
      return static_cast<index>(now - std::exchange(last, now));
    }

    Ring& ring;
    index last;
    std::size_t distance = 1;
    bool told_broken = false;
  };

  template <class F>
  void for_each_ring(F&& f) noexcept {
    std::apply([&](auto&... m) { (f(m), ...); }, rings_);
  }

  // Takes what has fired, which leaves it masked. Also while the port is masked: a stale port of
  // the handle would keep its descriptor readable, and the sleeper awake.
  void clear() noexcept {
    while (const std::optional<platform::port> fired = events_.pending()) {
      if (*fired == port_) {
        masked_ = true;
        event_ = true;
        counters_.events.add();
        return;
      }
    }
  }

  template <class Ring>
  static bool arm_ring(member<Ring>& m) noexcept {
    using index = typename member<Ring>::index;
    const bool there =
        m.ring.arm(static_cast<index>(std::min<std::size_t>(m.distance, m.ring.size())));
    m.told_broken = m.ring.broken() != protocol_error::none;
    return there || m.told_broken;
  }

  // Did the event that was taken, if any, bring work? The rings were just found without.
  void judge() noexcept {
    const std::uint64_t taken = progress();
    const bool brought_work = std::exchange(judged_, taken) != taken;
    if (brought_work) {
      in_vain_ = 0;
      delayed_until_.reset();
    }
    if (!std::exchange(event_, false)) {
      return;
    }
    if (brought_work || any_requests()) {
      count_suppressed();
      return;
    }
    counters_.spurious.add();
    if (in_vain_++ == 0) {
      return;
    }
    const unsigned doublings = std::min(in_vain_ - 2, 20U);
    const auto delay = std::min(options_.longest_delay, options_.first_delay * (1U << doublings));
    in_vain_ = std::min(in_vain_, 1000U);
    counters_.delayed.add();
    delayed_until_ = options_.now() + delay;
  }

  // Requests fewer than wanted are still a reason for an event.
  bool any_requests() noexcept {
    bool any = false;
    for_each_ring([&](auto& m) { any |= m.distance != 1 && m.ring.has_requests(); });
    return any;
  }

  void count_suppressed() noexcept {
    const std::uint64_t useful = counters_.events.get() - counters_.spurious.get();
    counters_.suppressed.set(taken_ - std::min(taken_, useful));
  }

  bool delay_running() noexcept {
    if (delayed_until_ && options_.now() >= *delayed_until_) {
      delayed_until_.reset();
    }
    return delayed_until_.has_value();
  }

  Events& events_;
  platform::port port_;
  ring_source_options options_;
  std::tuple<member<Rings>...> rings_;
  bool masked_ = true;    // as far as this thread knows; a port that has fired unseen is masked too
  bool event_ = false;    // taken from the handle, and not yet judged
  unsigned in_vain_ = 0;  // events without work in a row
  std::uint64_t taken_ = 0;   // requests
  std::uint64_t judged_ = 0;  // taken_ at the last judgement
  std::optional<time_point> delayed_until_;
  ring_source_counters counters_;
};

}  // namespace pvring::wait
