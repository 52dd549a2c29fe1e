// SPDX-License-Identifier: MIT
// What the two ends of the handshake ask of a device: hooks that the ports call at the right
// moment. The ports know states and order; the device knows its nodes, rings and requests.
#pragma once

#include <concepts>

#include "../platform/store.hpp"

namespace pvring::xenbus {

/// A backend's device. All hooks are called by the thread that calls the port, and none may wait
/// for the frontend or for I/O. What is written goes through the transaction that is handed in; a
/// conflict repeats the hook, so the hooks that get one have no other effect.
///
/// - `advertise(transaction&)`: what is offered, before InitWait.
/// - `connect()`: reads the frontend's nodes, all of them anew each time, and sets everything up.
/// When it throws
///   (node_error, configuration_error, std::system_error) it has undone what it did, and the
///   message is shown in the store.
/// - `publish(transaction&)`: what was agreed; becomes visible together with Connected.
/// - `begin_disconnect()`: no new requests from now on; returns at once. Called only after a
/// `connect` that succeeded.
/// - `drained()`: whether all I/O in flight has ended and was answered. Whoever makes it true calls
/// the port's `wake()`.
/// - `finish_disconnect()`: unmaps and unbinds everything. Called once `drained()`, before Closed
/// is written.
///
/// Optional: `reread()` (connected: nodes may have changed; idempotent), `resized(transaction&)`
/// (see `backend_port::announce_resize`), `take_over()` (see `taking_over`), and `ready()` (see
/// `keeps_waiting`).
template <class H, class Transaction>
concept device_handler =
    platform::node_access<Transaction> && requires(H& h, const H& c, Transaction& t) {
      { h.advertise(t) } -> std::same_as<void>;
      { h.connect() } -> std::same_as<void>;
      { h.publish(t) } -> std::same_as<void>;
      { h.begin_disconnect() } noexcept -> std::same_as<void>;
      { c.drained() } noexcept -> std::same_as<bool>;
      { h.finish_disconnect() } noexcept -> std::same_as<void>;
    };

/// A device that looks at nodes again while it is connected.
template <class H>
concept rereading = requires(H& h) {
  { h.reread() } -> std::same_as<void>;
};

/// A device that cannot always connect at once: while `ready` says no, a frontend that wants to is
/// kept waiting, and asked about again when a watched node changes or somebody wakes the port.
template <class H>
concept keeps_waiting = requires(H& h) {
  { h.ready() } -> std::same_as<bool>;
};

/// A device that can continue a connection which a killed predecessor made: `take_over` does what
/// `connect` does, and true says that the frontend notices nothing. False: it keeps no record.
/// When it throws it has undone what it did, and the message is shown in the store.
template <class H>
concept taking_over = requires(H& h) {
  { h.take_over() } -> std::same_as<bool>;
};

/// A device whose size can change while it is connected: `resized` writes the node that says so.
template <class H, class Transaction>
concept resizable = requires(H& h, Transaction& t) {
  { h.resized(t) } -> std::same_as<void>;
};

/// A frontend's device. The same rules as for a backend's.
///
/// - `prepare()`: allocates rings, grants and channels. When it throws it has undone what it did.
/// - `publish(transaction&)`: their nodes; visible together with Initialised, or what the device
/// has in its place (see `connecting_at_once`).
/// - `connect()`: the backend is Connected, its nodes can be read. May throw: then the device is
/// closed.
/// - `begin_close()`: no new requests from now on; called only after a `connect` that succeeded.
/// - `idle()`: whether the device can be closed: nothing is in flight, nobody uses it (true before
/// the first `connect`). Call the port's `wake()` then.
/// - `release()`: frees rings, grants and channels. The backend has unmapped them, or is gone;
/// requests that are still
///   unanswered stay so. Called once for each `prepare` that succeeded.
///
/// Optional: `reread()`: the backend rewrote Connected, which is how a live resize is told.
template <class H, class Transaction>
concept frontend_handler =
    platform::node_access<Transaction> && requires(H& h, const H& c, Transaction& t) {
      { h.prepare() } -> std::same_as<void>;
      { h.publish(t) } -> std::same_as<void>;
      { h.connect() } -> std::same_as<void>;
      { h.begin_close() } noexcept -> std::same_as<void>;
      { c.idle() } noexcept -> std::same_as<bool>;
      { h.release() } noexcept -> std::same_as<void>;
    };

/// A frontend's device that does not wait for its backend: it is Connected as soon as its nodes are
/// there, as network frontends are, and Initialised is left out. `connect()` is called as for any
/// other, when the backend is Connected, too.
template <class H>
concept connecting_at_once = H::connects_at_once;

}  // namespace pvring::xenbus
