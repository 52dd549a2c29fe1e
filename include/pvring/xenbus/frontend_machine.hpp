// SPDX-License-Identifier: MIT
// What a frontend does next, as a table over both states; the counterpart of state_machine.hpp. It
// does what Linux's blkfront does, but by looking at how things are instead of counting events.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "../protocol/xenbus.hpp"

namespace pvring::xenbus {

using protocol::xenbus_state;

enum class frontend_action : std::uint8_t {
  none,
  prepare,  ///< make the rings, write their nodes, then Initialised or, for a device that does not
            ///< wait, Connected
  connect,  ///< read the backend's nodes, then Connected
  reread,   ///< connected already: the backend may have changed its nodes (a live resize); or, for
            ///< a device that did not wait, it is Connected now
  close,    ///< take no more requests and write Closing; Closed follows when nothing is in flight
  leave,    ///< nothing is in flight: write Closed; the rings stay until the backend is Closed
  give_up,  ///< the backend has let go of the rings, or is gone: free them and write Closed
  release,  ///< Closed already: free the rings
};

[[nodiscard]] constexpr std::string_view to_string(frontend_action what) noexcept {
  constexpr std::string_view names[] = {"none",  "prepare", "connect", "reread",
                                        "close", "leave",   "give_up", "release"};
  return names[static_cast<std::size_t>(what)];
}

/// All that the next step depends on.
struct frontend_situation {
  xenbus_state own = xenbus_state::initialising;
  xenbus_state backend = xenbus_state::unknown;
  bool rings = false;  ///< whether there are rings
  bool idle = false;   ///< whether the device says that nothing is in flight
};

namespace detail::frontend_reactions {

/// The backend, as far as a frontend's step depends on it.
enum backend_column : std::size_t {
  backend_gone,
  backend_waits,
  backend_connected,
  backend_closing,
  backend_other,
  backend_columns
};

[[nodiscard]] constexpr backend_column column_of(xenbus_state backend) noexcept {
  switch (backend) {
    case xenbus_state::unknown:
    case xenbus_state::closed:
      return backend_gone;
    case xenbus_state::init_wait:
      return backend_waits;
    case xenbus_state::connected:
      return backend_connected;
    case xenbus_state::closing:
      return backend_closing;
    case xenbus_state::initialising:
    case xenbus_state::initialised:
    case xenbus_state::reconfiguring:
    case xenbus_state::reconfigured:
      break;
  }
  return backend_other;
}

using frontend_row = std::array<frontend_action, backend_columns>;
using enum frontend_action;

// Columns: gone, waits (InitWait), connected, closing, other. Initialising waits where the backend
// is Closed: it has not noticed yet. It also waits where the backend is Connected, to rings of an
// earlier life: Linux would go on at once, and be connected to a backend that still serves those.
inline constexpr frontend_row starting_row{none, prepare, none, give_up, none};
inline constexpr frontend_row initialised_row{give_up, none, connect, close, none};
inline constexpr frontend_row connected_row{give_up, none, reread, close, none};
inline constexpr frontend_row closing_row{give_up, leave, leave, leave, leave};
// InitWait and other: another backend, which knows nothing of these rings.
inline constexpr frontend_row closed_row{release, release, none, none, release};

}  // namespace detail::frontend_reactions

/// The next step; `none` when there is nothing to do until something changes.
[[nodiscard]] constexpr frontend_action react(const frontend_situation& now) noexcept {
  namespace reactions = detail::frontend_reactions;
  const reactions::backend_column column = reactions::column_of(now.backend);
  switch (now.own) {
    case xenbus_state::initialising:
      return reactions::starting_row[column];
    case xenbus_state::initialised:
    case xenbus_state::connected:
      if (!now.rings) {
        // What an earlier driver left in the store: its rings are gone, and the backend has to let
        // go of them first.
        return frontend_action::close;
      }
      return now.own == xenbus_state::initialised ? reactions::initialised_row[column]
                                                  : reactions::connected_row[column];
    case xenbus_state::closing: {
      const frontend_action next = detail::frontend_reactions::closing_row[column];
      return next == frontend_action::leave && !now.idle ? frontend_action::none : next;
    }
    case xenbus_state::closed:
      return now.rings ? reactions::closed_row[column] : frontend_action::none;
    case xenbus_state::unknown:
    case xenbus_state::init_wait:
    case xenbus_state::reconfiguring:
    case xenbus_state::reconfigured:
      break;
  }
  // A frontend never writes these.
  return frontend_action::give_up;
}

}  // namespace pvring::xenbus
