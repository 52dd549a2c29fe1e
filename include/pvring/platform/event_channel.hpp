// SPDX-License-Identifier: MIT
// An event-channel handle: ports bound to those of other domains, behind one descriptor. One queue
// owns one handle (Linux serialises notify, unmask and bind of a handle on one mutex).
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

#include "../base/error.hpp"

namespace pvring::platform {

/// A local end of an event channel.
using port = std::uint32_t;

/// An event-channel handle.
///
/// - `bind(domain, remote)`: a new local port joined to `remote` of `domain`, masked from the
/// start: it wakes nobody before
///   the first `unmask`. Throws std::system_error naming domain and port.
/// - `unbind(port)`: never fails for a bound port; a port that is not bound is ignored.
/// - `notify(port)`: kicks the peer: one system call. A peer that is gone is not an error.
/// - `pending()`: one port that has fired, or nothing. The port is masked from then on, and its
/// pending mark is cleared, so a
///   kick that comes later is kept until `unmask`.
/// - `unmask(port)`: lets the port fire again; one that was kicked meanwhile fires at once.
/// - `fd()`: readable when a port that is not masked has fired.
template <class E>
concept event_channel = requires(E& e, domain_id domain, port p) {
  { e.fd() } noexcept -> std::same_as<int>;
  { e.bind(domain, p) } -> std::same_as<port>;
  { e.unbind(p) } noexcept -> std::same_as<void>;
  { e.notify(p) } noexcept -> std::same_as<void>;
  { e.pending() } noexcept -> std::same_as<std::optional<port>>;
  { e.unmask(p) } noexcept -> std::same_as<void>;
};

}  // namespace pvring::platform
