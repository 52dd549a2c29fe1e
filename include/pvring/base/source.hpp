// SPDX-License-Identifier: MIT
// A thing that a queue waits for: a ring, an engine, a mailbox, an uplink. Whoever waits polls the
// descriptors of all sources, but only after arming each of them and hearing that there is no work.
#pragma once

#include <concepts>

namespace pvring {

/// A source of work.
///
/// - `fd()` becomes readable when work arrives at an armed source; it stays the same while
/// connected.
/// - `arm()` clears what is pending, arranges for the wake-up, and looks again, in that order; true
/// means
///   that there is work, and then nobody may sleep. Arming an armed source is allowed.
/// - `disarm()` says that somebody polls: wake-ups are not needed, and the source may suppress
/// them.
///
/// All calls come from the one thread that serves the queue.
template <class S>
concept source = requires(S& s) {
  { s.fd() } noexcept -> std::same_as<int>;
  { s.arm() } noexcept -> std::same_as<bool>;
  { s.disarm() } noexcept -> std::same_as<void>;
};

}  // namespace pvring
