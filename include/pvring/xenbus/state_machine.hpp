// SPDX-License-Identifier: MIT
// What a backend does next, as tables over every pair of states and nothing else: no store, no
// ring, no clock. It looks at how things are, never at what happened, so repeated, merged and
// missed watch events need no rules of their own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../protocol/xenbus.hpp"

namespace pvring::xenbus {

using protocol::xenbus_state;

/// What there is of a connection: rings, channels and buffers.
enum class connection : std::uint8_t {
  none,
  up,
  draining,  ///< no new requests are taken; I/O in flight still uses the buffers
  drained,   ///< nothing is in flight; everything is still mapped
};

/// The frontend, as far as the backend's next step depends on it.
enum class frontend_view : std::uint8_t {
  vanished,     ///< its state is missing, or no state at all
  starting,     ///< Initialising
  initialised,  ///< its nodes are there
  connected,    ///< the same: Initialised may have been missed
  refused,      ///< still where it was when it was refused: it has to do something first
  closing,
  closed,
  meaningless,  ///< a state that a frontend has no use for
};
inline constexpr std::size_t frontend_views = 8;

enum class action : std::uint8_t {
  none,
  go_init_wait,  ///< write what is offered, then InitWait
  connect,  ///< read the frontend's nodes, set the rings up, write what was agreed, then Connected
  reread,   ///< connected already: look at nodes that may change meanwhile
  close,    ///< write Closing and keep the rings: the frontend may go on submitting
  disconnect,  ///< begin to drain
  finish,      ///< drained: unmap everything, before any state says that it is over
  go_closed,   ///< write Closed; nothing is mapped
  unregister,  ///< the device is over
};

[[nodiscard]] constexpr std::string_view to_string(action what) noexcept {
  constexpr std::string_view names[] = {"none",   "go_init_wait", "connect",
                                        "reread", "close",        "disconnect",
                                        "finish", "go_closed",    "unregister"};
  return names[static_cast<std::size_t>(what)];
}

/// \param refused whether it was refused in this state, and has not left it since
[[nodiscard]] constexpr frontend_view view_of(xenbus_state frontend,
                                              bool refused = false) noexcept {
  switch (frontend) {
    case xenbus_state::unknown:
      return frontend_view::vanished;
    case xenbus_state::initialising:
      return refused ? frontend_view::refused : frontend_view::starting;
    case xenbus_state::initialised:
      return refused ? frontend_view::refused : frontend_view::initialised;
    case xenbus_state::connected:
      return refused ? frontend_view::refused : frontend_view::connected;
    case xenbus_state::closing:
      return frontend_view::closing;
    case xenbus_state::closed:
      return frontend_view::closed;
    case xenbus_state::init_wait:
    case xenbus_state::reconfiguring:
    case xenbus_state::reconfigured:
      break;
  }
  return frontend_view::meaningless;
}

/// Remembers that a frontend was refused, until it does something. Without this a backend that
/// looks at how things are would try the same connection again and again.
class refusal {
 public:
  /// The frontend in this state was refused.
  void set(xenbus_state frontend) noexcept { refused_in_ = wish_of(frontend); }
  /// The frontend is in this state now.
  void observe(xenbus_state frontend) noexcept {
    if (refused_in_ != wish_of(frontend)) {
      refused_in_ = wish::other;
    }
  }
  [[nodiscard]] bool holds() const noexcept { return refused_in_ != wish::other; }

 private:
  enum class wish : std::uint8_t { start, connect, other };

  // Initialised and Connected are the same wish.
  [[nodiscard]] static wish wish_of(xenbus_state frontend) noexcept {
    switch (view_of(frontend)) {
      case frontend_view::starting:
        return wish::start;
      case frontend_view::initialised:
      case frontend_view::connected:
        return wish::connect;
      default:
        return wish::other;
    }
  }

  wish refused_in_ = wish::other;
};

/// All that the next step depends on.
struct situation {
  /// What this backend wrote last, or the Closing that the toolstack wrote.
  xenbus_state own = xenbus_state::initialising;
  frontend_view frontend = frontend_view::vanished;
  bool online = false;  ///< whether the toolstack wants the device to stay
  connection link = connection::none;
};

namespace detail::backend_reactions {

struct cell {
  action online;
  action offline;
};

inline constexpr cell nothing{action::none, action::none};
inline constexpr cell close{action::close, action::close};
inline constexpr cell shut{action::go_closed, action::go_closed};
// Missed its Closed, or starts for the first time. Closed is not shown to it: a Linux frontend that
// sees Closed while it is Initialising gives up.
inline constexpr cell offer{action::go_init_wait, action::go_closed};
inline constexpr cell join{action::connect, action::connect};
// Closing was the frontend's wish and it came back. With `online` 0 it is the toolstack's, and that
// stays.
inline constexpr cell rejoin{action::connect, action::go_closed};
inline constexpr cell back{action::disconnect, action::none};
// Unplugged by the toolstack, and there is nobody who would answer with Closed.
inline constexpr cell leave{action::none, action::go_closed};
inline constexpr cell drop{action::none, action::disconnect};
inline constexpr cell over{action::unregister, action::unregister};
inline constexpr cell gone{action::none, action::unregister};
inline constexpr cell again{action::go_init_wait, action::unregister};
inline constexpr cell renew{action::connect, action::unregister};
inline constexpr cell cut{action::disconnect, action::disconnect};
inline constexpr cell look{action::reread, action::reread};

using row = std::array<cell, frontend_views>;

enum own_row : std::size_t {
  row_start,
  row_init_wait,
  row_connected,
  row_closing,
  row_closed,
  own_rows
};

// Columns: vanished, starting, initialised, connected, refused, closing, closed, meaningless.
inline constexpr std::array<row, own_rows> without_rings{{
    {shut, offer, offer, offer, close, close, shut, offer},      // nothing written yet
    {shut, nothing, join, join, close, close, shut, nothing},    // InitWait
    {shut, offer, join, join, close, close, shut, shut},         // Connected, rings just gone
    {shut, offer, rejoin, rejoin, leave, nothing, shut, leave},  // Closing
    {over, again, renew, renew, gone, gone, gone, gone},         // Closed
}};

// A frontend that is Initialising while its rings are up has started anew and forgotten them. Rings
// that are up before Connected was written: publishing was interrupted, and is done again.
inline constexpr std::array<row, own_rows> with_rings{{
    {cut, cut, cut, cut, cut, cut, cut, cut},               // nothing written yet
    {cut, cut, join, join, cut, cut, cut, cut},             // InitWait
    {cut, cut, nothing, look, close, close, cut, nothing},  // Connected
    {cut, cut, back, back, nothing, nothing, cut, drop},    // Closing
    {cut, cut, join, join, cut, cut, cut, cut},             // Closed
}};

[[nodiscard]] constexpr own_row row_of(xenbus_state own) noexcept {
  switch (own) {
    case xenbus_state::init_wait:
      return row_init_wait;
    case xenbus_state::connected:
      return row_connected;
    case xenbus_state::closing:
      return row_closing;
    case xenbus_state::closed:
      return row_closed;
    case xenbus_state::unknown:
    case xenbus_state::initialising:
    case xenbus_state::initialised:
    case xenbus_state::reconfiguring:
    case xenbus_state::reconfigured:
      break;
  }
  return row_start;
}

}  // namespace detail::backend_reactions

/// The next step; `none` when there is nothing to do until something changes. Repeating it until it
/// says `none` ends.
[[nodiscard]] constexpr action react(const situation& now) noexcept {
  switch (now.link) {
    case connection::draining:
      return action::none;
    case connection::drained:
      return action::finish;
    case connection::none:
    case connection::up:
      break;
  }
  namespace reactions = detail::backend_reactions;
  const auto& table = now.link == connection::up ? reactions::with_rings : reactions::without_rings;
  const reactions::cell cell =
      table[reactions::row_of(now.own)][static_cast<std::size_t>(now.frontend)];
  return now.online ? cell.online : cell.offline;
}

}  // namespace pvring::xenbus
