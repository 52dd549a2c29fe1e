// SPDX-License-Identifier: MIT
// What a queue tells of each request while it works, and the concept of who listens. A policy's
// recorder belongs to one queue and is called by its thread only.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../base/config.hpp"

namespace pvring::observe {

/// The points that a request passes, in this order. Some are left out: a refused request goes from
/// seen to responded.
enum class stage : std::uint8_t {
  seen,       ///< fetched from the ring
  acquired,   ///< its buffers are there
  submitted,  ///< handed to the engine
  completed,  ///< the engine is done with it
  responded,  ///< its response is written
  notified,   ///< the peer was notified of its response
};
inline constexpr std::size_t stage_count = 6;

/// The stage's name, as traces and metrics show it.
[[nodiscard]] constexpr std::string_view to_string(stage which) noexcept {
  constexpr std::string_view names[stage_count] = {"seen",      "acquired",  "submitted",
                                                   "completed", "responded", "notified"};
  const auto index = static_cast<std::size_t>(which);
  return index < stage_count ? names[index] : std::string_view("unknown");
}

/// What a queue tells; one object per queue, made with the ring's size.
///
/// - `active`: whether it keeps anything; a queue may skip the loops that only feed it.
/// - `stage(slot, stage)`: a request reached a stage; `slot` is its place in the queue's slab,
/// below the ring's size,
///   and is used again by a later request once `responded` was told.
/// - `published(notified)`: the responses told so far are visible to the peer; whether it was
/// notified of them.
/// - `pass(taken, answered)`: one pass of the data path ended.
///
/// All are `noexcept` and called by the queue's thread.
template <class R>
concept recorder = std::constructible_from<R, std::uint32_t> &&
                   requires(R& r, std::uint32_t number, observe::stage reached, bool notified) {
                     { R::active } -> std::convertible_to<bool>;
                     { r.stage(number, reached) } noexcept -> std::same_as<void>;
                     { r.published(notified) } noexcept -> std::same_as<void>;
                     { r.pass(number, number) } noexcept -> std::same_as<void>;
                   };

/// An observation policy, as a config names it.
template <class O>
concept observer =
    pvring::detail::policy_of_kind<O, policy_kind::observer> && recorder<typename O::recorder>;

}  // namespace pvring::observe
