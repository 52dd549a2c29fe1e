// SPDX-License-Identifier: MIT
// When a packet for the guest is put into its pages: in the pass that got it from the uplink, or in
// a later one. One function serves both; these are the choice and its bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pvring::net {

enum class delivery : std::uint8_t {
  automatic,  ///< `at_once` where the frontend keeps pages mapped for us, else `deferred`
  at_once,    ///< in the pass that got it; as long as the guest has no room, the rest stays in the
              ///< uplink
  deferred,   ///< in the pass after: what has come meanwhile goes along with one copy call
};

[[nodiscard]] constexpr std::string_view to_string(delivery which) noexcept {
  switch (which) {
    case delivery::automatic:
      return "automatic";
    case delivery::at_once:
      return "inline";
    case delivery::deferred:
      return "deferred";
  }
  return "unknown";
}

struct delivery_options {
  delivery when = delivery::automatic;
  /// Of frames that wait for the guest, per queue; when they are there, the rest stays in the
  /// uplink.
  std::size_t most_bytes = 512 * 1024;
  std::uint32_t burst = 64;  ///< frames from the uplink per pass
  /// After which a frame that waits is given up: it may hold other guests' pages, and its sender
  /// has repeated it long ago. As Linux does it.
  std::uint32_t expiry_milliseconds = 10'000;
  /// Of waiting for room after which the guest counts as stalled: the carrier goes, and what waits
  /// is dropped. 0: never.
  std::uint32_t stall_milliseconds = 60'000;
};

/// The same of a frontend without `feature-rx-notify`, which does not say that it has posted: it is
/// asked this often, and for no longer than that.
inline constexpr std::uint32_t silent_frontend_poll_milliseconds = 5;
inline constexpr std::uint32_t silent_frontend_expiry_milliseconds = 30;

}  // namespace pvring::net
