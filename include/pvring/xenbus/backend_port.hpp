// SPDX-License-Identifier: MIT
// The backend's end of the handshake: watches the nodes that matter, asks the state machine what
// follows, and calls the device's hooks. It never waits: what takes time is begun, and looked at
// again when somebody wakes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "../base/error.hpp"
#include "../platform/store.hpp"
#include "device_handler.hpp"
#include "device_path.hpp"
#include "error_report.hpp"
#include "node.hpp"
#include "state_machine.hpp"
#include "watch.hpp"

namespace pvring::xenbus {

/// A backend's port. One thread uses it, except for `wake` and `report`. Store and handler outlive
/// it.
///
/// Either the store connection is the port's own, and the thread calls `process()` when `fd()` is
/// readable; or several ports share one, and the thread hands each event to every port's `accept`
/// and then calls their `look`.
///
/// Errors of the device (a bad node, a peer that breaks the protocol, a refused mapping) close the
/// device and are written to the store; only errors of the store itself are thrown.
template <platform::store Store, device_handler<typename Store::transaction> Handler>
class backend_port {
 public:
  using transaction = typename Store::transaction;

  /// Registers the watches; the first `process()` or `look()` does the rest.
  /// \throws std::system_error when the store refuses a watch or descriptors are short
  backend_port(Store& store, Handler& handler, device_path path)
      : store_(store),
        handler_(handler),
        path_(std::move(path)),
        state_node_(join(path_.backend(), "state")),
        online_node_(join(path_.backend(), "online")),
        wake_(store.fd()),
        error_(store, path_.name(), path_.backend_error()) {
    watches_.reserve(3);
    for (std::string node : {state_node_, online_node_, join(path_.frontend(), "state")}) {
      watches_.emplace_back(store_, std::move(node), path_.backend());
    }
  }

  backend_port(const backend_port&) = delete;
  backend_port& operator=(const backend_port&) = delete;
  /// Precondition: not connected; `stop()` and process until `finished()` where it was.
  ~backend_port() = default;

  // --- event loop ---

  /// Readable when `process()` has something to do. Stays the same.
  [[nodiscard]] int fd() const noexcept { return wake_.fd(); }

  /// Takes the waiting events, a bounded number, and does what follows from how things are now.
  /// Returns false when the device is over.
  /// \throws std::system_error when the store fails
  bool process() {
    // More than that stays in the store's queue, and the descriptor readable: a peer that writes
    // without pause does not keep the thread here.
    constexpr int most_events = 256;
    for (int i = 0; i < most_events; ++i) {
      const std::optional<platform::watch_event> event = store_.next_event();
      if (!event) {
        break;
      }
      accept(*event);
    }
    look();
    return !finished_;
  }

  /// Notes an event of a shared connection. Returns whether it was this port's. What the event's
  /// path says does not matter.
  bool accept(const platform::watch_event& event) noexcept {
    const bool ours = !finished_ && event.token == path_.backend();
    pending_ = pending_ || ours;
    return ours;
  }

  /// Does what is to be done, if any event, `wake` or `report` asked for it.
  /// \throws std::system_error when the store fails
  void look() {
    pending_ = wake_.clear() || pending_ || link() == connection::drained;
    if (finished_ || !pending_) {
      return;
    }
    take_report();
    // Each step changes what the next one sees, and a few reach the point where nothing is to be
    // done. A toolstack or frontend that changes its mind all the time must not keep the thread.
    constexpr int most_steps = 16;
    busy_ = false;
    for (int i = 0; i < most_steps && pending_ && !finished_ && !busy_; ++i) {
      observe();
      if (std::exchange(first_look_, false) && left_connected()) {
        succeed();
        continue;
      }
      action next = react({own_, view_of(frontend_, refused_.holds()), online_, link()});
      if (next == action::connect && link_ == connection::none && !ready()) {
        next = action::none;
      }
      pending_ = next != action::none && next != action::reread;
      perform(next);
    }
    if (pending_ && !finished_) {
      wake();
    }
  }

  // --- other threads ---

  /// Makes `fd()` readable, so that the handler is asked again. From any thread.
  void wake() const noexcept { wake_.signal(); }

  /// A queue found that the frontend broke the protocol. The first report of a connection closes
  /// it. From any thread.
  void report(protocol_error error) noexcept {
    protocol_error none = protocol_error::none;
    // Relaxed: the value is all that is handed over, and the descriptor orders the look.
    reported_.compare_exchange_strong(none, error, std::memory_order_relaxed);
    wake();
  }

  // --- the port's own thread ---

  /// Closes the connection: says why, drains, unmaps, goes to Closing. Through Closed and
  /// Initialising the frontend may come back. Without a connection it only says why.
  void fail(std::string_view why) {
    error_.say(why);
    if (link_ == connection::up) {
      refuse();
    }
    pending_ = true;
    wake();
  }
  void fail(protocol_error error) { fail(to_string(error)); }

  /// Tells a connected frontend that the size changed: in one transaction `handler.resized` writes
  /// it and the state is rewritten with its own value, which fires the frontend's watch. Returns
  /// false when there is no connection to tell it to: the next `publish` says it.
  /// \throws std::system_error when the store fails, also when it stays busy
  bool announce_resize()
    requires resizable<Handler, transaction>
  {
    return connected() &&
           commit_state(xenbus_state::connected, [this](transaction& t) { handler_.resized(t); });
  }

  /// Has `reread` called whenever this node of the backend's directory changes while connected, and
  /// `ready` while it keeps a frontend waiting.
  /// \throws std::system_error when the store refuses a watch
  void watch(std::string_view name)
    requires rereading<Handler> || keeps_waiting<Handler>
  {
    watches_.emplace_back(store_, join(path_.backend(), name), path_.backend());
  }

  /// The device is to end, whatever toolstack and frontend want: drained, Closed, then
  /// `finished()`.
  void stop() noexcept {
    stopping_ = true;
    pending_ = true;
    wake();
  }

  [[nodiscard]] xenbus_state state() const noexcept { return own_; }
  [[nodiscard]] bool connected() const noexcept {
    return own_ == xenbus_state::connected && link_ == connection::up;
  }
  /// The device is over: unplugged, its frontend's directory is gone, or stopped. Nothing is
  /// mapped, no watch is left.
  [[nodiscard]] bool finished() const noexcept { return finished_; }
  [[nodiscard]] const device_path& path() const noexcept { return path_; }

 private:
  [[nodiscard]] connection link() const noexcept {
    return link_ == connection::draining && std::as_const(handler_).drained() ? connection::drained
                                                                              : link_;
  }

  /// Whether the store shows a connection that this backend did not make. Its maker died, so which
  /// of the requests in its rings ran, and which slots hold answers instead, nobody knows.
  [[nodiscard]] bool left_connected() const noexcept {
    const frontend_view view = view_of(frontend_);
    return own_ == xenbus_state::initialising && stored_ == "4" &&
           (view == frontend_view::initialised || view == frontend_view::connected);
  }

  void observe() {
    // State before online: the toolstack writes both at once to unplug, so a Closing that is seen
    // here comes with the `online` that belongs to it.
    stored_ = read_if_allowed(store_, state_node_);
    online_ = parse_unsigned<std::uint32_t>(read_if_allowed(store_, online_node_).value_or(""))
                  .value_or(0) != 0;
    // Without our own directory there is nobody left to talk to, and writing would make it anew.
    // One that says Initialising when this backend has said more was made anew by the toolstack:
    // another device, for another port.
    gone_ = gone_ || !stored_ || (stored_ == "1" && own_ != xenbus_state::initialising);
    frontend_ = stopping_ || gone_ ? xenbus_state::unknown : read_state(store_, path_.frontend());
    refused_.observe(frontend_);
    if (stored_ == "5" && own_ != xenbus_state::closing) {
      own_ = xenbus_state::closing;
      refused_.set(frontend_);
    }
  }

  void perform(action next) {
    switch (next) {
      case action::none:
        break;
      case action::go_init_wait:
        offer();
        break;
      case action::connect:
        connect();
        break;
      case action::reread:
        if constexpr (rereading<Handler>) {
          guarded([this] { handler_.reread(); });
        }
        break;
      case action::close:
        write_state(xenbus_state::closing);
        break;
      case action::disconnect:
        begin_disconnect();
        break;
      case action::finish:
        handler_.finish_disconnect();
        link_ = connection::none;
        break;
      case action::go_closed:
        if (gone_) {
          own_ = xenbus_state::closed;
        } else {
          write_state(xenbus_state::closed);
        }
        break;
      case action::unregister:
        finished_ = true;
        watches_.clear();
        break;
    }
  }

  void offer() {
    guarded([this] {
      write_state(xenbus_state::init_wait, [this](transaction& t) { handler_.advertise(t); });
    });
  }

  [[nodiscard]] bool ready() {
    if constexpr (keeps_waiting<Handler>) {
      return handler_.ready();
    } else {
      return true;
    }
  }

  void connect() {
    guarded([this] {
      if (link_ == connection::none) {
        // Whatever is still reported belongs to rings that are gone.
        reported_.store(protocol_error::none, std::memory_order_relaxed);
        handler_.connect();
        link_ = connection::up;
      }
      if (write_state(xenbus_state::connected, [this](transaction& t) { handler_.publish(t); })) {
        error_.forget();
      }
    });
  }

  /// Continues what a predecessor had connected, or has the frontend connect anew.
  void succeed() {
    std::string why;
    if constexpr (taking_over<Handler>) {
      try {
        if (handler_.take_over()) {
          own_ = xenbus_state::connected;
          link_ = connection::up;
          return;
        }
      } catch (const std::exception& e) {
        why = std::string(" (") + e.what() + ")";
      }
    }
    error_.say(
        "an earlier backend ended while it was connected, and what it had in flight is not "
        "known" +
        why + ": the frontend has to close and to connect anew");
    refuse();
  }

  /// Runs hooks whose failure ends the connection and not the process.
  template <class Body>
  void guarded(Body&& body) {
    try {
      std::forward<Body>(body)();
    } catch (const std::exception& e) {
      error_.say(e.what());
      if (own_ == xenbus_state::initialising) {
        error_.say_to_toolstack(e.what(), path_.backend());
      }
      refuse();
    }
  }

  void begin_disconnect() noexcept {
    handler_.begin_disconnect();
    link_ = connection::draining;
  }

  void refuse() {
    refused_.set(frontend_);
    if (link_ == connection::up) {
      begin_disconnect();
    }
    if (own_ != xenbus_state::closing) {
      write_state(xenbus_state::closing);
    }
  }

  void take_report() {
    const protocol_error error =
        reported_.exchange(protocol_error::none, std::memory_order_relaxed);
    if (error != protocol_error::none && link_ == connection::up) {
      fail(error);
    }
  }

  /// Writes the nodes of `body` and the state in one transaction, unless somebody changed the state
  /// since it was looked at: then nothing is written, false is returned, and the next look decides
  /// anew.
  template <class Body>
  bool commit_state(xenbus_state next, Body&& body) {
    const std::string value(1, protocol::to_digit(next));
    bool unchanged = false;
    store_.transact([&](transaction& t) {
      const std::optional<std::string> now = read_if_allowed(t, state_node_);
      unchanged = now && now == stored_;
      if (unchanged) {
        body(t);
        t.write(state_node_, value);
      }
    });
    if (unchanged) {
      stored_ = value;
      own_ = next;
    }
    return unchanged;
  }

  /// The same; a store that is too busy to commit is asked again at the next look.
  template <class Body>
  bool write_state(xenbus_state next, Body&& body) {
    try {
      return commit_state(next, std::forward<Body>(body));
    } catch (const std::system_error& e) {
      if (e.code() != std::errc::resource_unavailable_try_again) {
        throw;
      }
      busy_ = true;
      return false;
    }
  }
  bool write_state(xenbus_state next) {
    return write_state(next, [](transaction&) {});
  }

  Store& store_;
  Handler& handler_;
  device_path path_;
  std::string state_node_;
  std::string online_node_;
  wake_descriptor wake_;
  std::vector<scoped_watch<Store>> watches_;
  error_report<Store> error_;

  // How things were at the last look.
  std::optional<std::string> stored_;  ///< our state's node
  bool online_ = false;
  xenbus_state frontend_ = xenbus_state::unknown;

  // A backend that starts has written nothing, whatever an earlier one left in the store.
  xenbus_state own_ = xenbus_state::initialising;
  connection link_ = connection::none;
  refusal refused_;
  bool pending_ = true;
  bool first_look_ = true;
  bool stopping_ = false;
  bool finished_ = false;
  bool gone_ = false;  ///< the directory was removed
  bool busy_ = false;  ///< the store was, in this look
  std::atomic<protocol_error> reported_{protocol_error::none};
};

}  // namespace pvring::xenbus
