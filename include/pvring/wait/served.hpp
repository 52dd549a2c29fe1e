// SPDX-License-Identifier: MIT
// What a runner's thread or a user's event loop serves: a queue, seen from outside. The concept,
// and what may be asked of its sources beyond the minimum.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "../base/source.hpp"

namespace pvring::wait {

/// The clock of all deadlines.
using time_point = std::chrono::steady_clock::time_point;

/// Reads the clock; tests put their own in its place.
using clock_function = time_point (*)() noexcept;

/// Sources that one queue may have.
inline constexpr std::size_t max_sources = 8;

namespace detail {
struct any_source {
  template <source S>
  void operator()(S&) const noexcept {}
};
}  // namespace detail

/// Something to serve. One thread at a time calls it.
///
/// - `service(budget)`: one pass, of at most about `budget` requests; never blocks. Returns how
/// much work it did; 0 means that
///   looking again at once is pointless. It sees to its own timers.
/// - `deadline()`: when it wants a pass even if no source wakes, or nothing. After that pass it
/// must lie later.
/// - `for_each_source(f)`: calls `f(s)` for every source, at most `max_sources`, always the same
/// and in the same order while
///   connected. A source that cannot be served now (no buffers left) must not report work from
///   `arm()`, or the queue would spin: see `ring_source::want`.
template <class S>
concept served = requires(S& s, std::size_t budget) {
  { s.service(budget) } noexcept -> std::same_as<std::size_t>;
  { s.deadline() } noexcept -> std::same_as<std::optional<time_point>>;
  { s.for_each_source(detail::any_source{}) } noexcept -> std::same_as<void>;
};

/// A source with a time of its own: at this time it wants to be armed again, even if nothing has
/// woken.
template <class S>
concept source_with_deadline = source<S> && requires(S& s) {
  { s.deadline() } noexcept -> std::same_as<std::optional<time_point>>;
};

/// A source that can say that its work was taken: the number changes whenever some was.
template <class S>
concept source_with_progress = source<S> && requires(S& s) {
  { s.progress() } noexcept -> std::convertible_to<std::uint64_t>;
};

/// A source that knows what it is waiting for, as every engine context does: with nothing in flight
/// nothing can come.
template <class S>
concept source_with_flights = source<S> && requires(S& s) {
  { s.in_flight() } noexcept -> std::convertible_to<std::size_t>;
};

}  // namespace pvring::wait
