// SPDX-License-Identifier: MIT
// The frontend's end of the handshake, as a guest's driver does it. Test kits and demos build their
// frontends on it; like the backend's it never waits.
#pragma once

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
#include "frontend_machine.hpp"
#include "node.hpp"
#include "watch.hpp"

namespace pvring::xenbus {

/// A frontend's port. One thread uses it, except for `wake`. Store and handler outlive it.
/// Connections are shared as with `backend_port`.
template <platform::store Store, frontend_handler<typename Store::transaction> Handler>
class frontend_port {
 public:
  using transaction = typename Store::transaction;

  /// Registers the watches; the first `process()` or `look()` does the rest. The frontend starts in
  /// the state that the store says, so the toolstack's Initialising makes it connect.
  /// \throws std::system_error when the store refuses a watch or descriptors are short
  frontend_port(Store& store, Handler& handler, device_path path)
      : store_(store),
        handler_(handler),
        path_(std::move(path)),
        state_node_(join(path_.frontend(), "state")),
        wake_(store.fd()),
        report_(store, "frontend of " + path_.name(), path_.frontend_error()) {
    watches_.reserve(2);
    for (std::string node : {state_node_, join(path_.backend(), "state")}) {
      watches_.emplace_back(store_, std::move(node), path_.frontend());
    }
  }

  frontend_port(const frontend_port&) = delete;
  frontend_port& operator=(const frontend_port&) = delete;
  /// Precondition: there are no rings; `close()` and process until `released()` where there were.
  ~frontend_port() = default;

  // --- event loop ---

  /// Readable when `process()` has something to do. Stays the same.
  [[nodiscard]] int fd() const noexcept { return wake_.fd(); }

  /// Takes the waiting events, a bounded number, and does what follows from how things are now.
  /// \throws std::system_error when the store fails
  void process() {
    constexpr int most_events = 256;
    for (int i = 0; i < most_events; ++i) {
      const std::optional<platform::watch_event> event = store_.next_event();
      if (!event) {
        break;
      }
      accept(*event);
    }
    look();
  }

  /// Notes an event of a shared connection. Returns whether it was this port's.
  bool accept(const platform::watch_event& event) noexcept {
    const bool ours = event.token == path_.frontend();
    pending_ = pending_ || ours;
    return ours;
  }

  /// Does what is to be done, if any event or `wake` asked for it.
  /// \throws std::system_error when the store fails
  void look() {
    pending_ = wake_.clear() || pending_;
    constexpr int most_steps = 16;
    for (int i = 0; pending_ && i < most_steps; ++i) {
      observe();
      const frontend_action next =
          react(frontend_situation{own_, backend_, rings_, std::as_const(handler_).idle()});
      if (next == frontend_action::none || next == frontend_action::reread) {
        pending_ = false;
      }
      perform(next);
      if (next == frontend_action::none && reopen_now()) {
        pending_ = true;
      }
    }
    if (pending_) {
      wake_.signal();
    }
  }

  /// Makes `fd()` readable, so that the handler is asked again. From any thread.
  void wake() const noexcept { wake_.signal(); }

  // --- the port's own thread ---

  /// Begins to close, as when the guest lets go of the device: Closing, then Closed when `idle()`,
  /// then the rings are freed when the backend is Closed.
  void close() {
    observe();
    if (own_ == xenbus_state::initialised || own_ == xenbus_state::connected) {
      begin_close();
    } else if (own_ == xenbus_state::initialising) {
      write_state(xenbus_state::closed);
    }
    again();
  }

  /// Connects anew once the backend has closed: Initialising, and so on. May be called while still
  /// closing.
  void reopen() {
    reopen_ = true;
    again();
  }

  [[nodiscard]] xenbus_state state() const noexcept { return own_; }
  [[nodiscard]] xenbus_state backend_state() const noexcept { return backend_; }
  /// Both ends are Connected.
  [[nodiscard]] bool connected() const noexcept { return own_ == xenbus_state::connected && up_; }
  /// Closed, and the rings are freed.
  [[nodiscard]] bool released() const noexcept { return own_ == xenbus_state::closed && !rings_; }
  /// Why this end closed the device; empty when it did not.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] const device_path& path() const noexcept { return path_; }

 private:
  void again() noexcept {
    pending_ = true;
    wake();
  }

  void observe() {
    const std::optional<std::string> stored = read_if_allowed(store_, state_node_);
    present_ = stored.has_value();
    if (present_) {
      own_ = protocol::parse_xenbus_state(*stored).value_or(xenbus_state::unknown);
    }
    // Our directory is gone: the device was removed, whatever stands elsewhere.
    backend_ = present_ ? read_state(store_, path_.backend()) : xenbus_state::unknown;
  }

  void perform(frontend_action next) {
    switch (next) {
      case frontend_action::none:
        break;
      case frontend_action::prepare:
        guarded([this] {
          if (!rings_) {
            handler_.prepare();
            rings_ = true;
          }
          write_state(
              connecting_at_once<Handler> ? xenbus_state::connected : xenbus_state::initialised,
              [this](transaction& t) { handler_.publish(t); });
        });
        break;
      case frontend_action::connect:
        guarded([this] {
          handler_.connect();
          up_ = true;
          write_state(xenbus_state::connected);
        });
        break;
      case frontend_action::reread:
        if (!up_) {  // was Connected before its backend
          guarded([this] {
            handler_.connect();
            up_ = true;
          });
        } else if constexpr (rereading<Handler>) {
          guarded([this] { handler_.reread(); });
        }
        break;
      case frontend_action::close:
        begin_close();
        break;
      case frontend_action::leave:
        write_state(xenbus_state::closed);
        break;
      case frontend_action::give_up:
        quiesce();
        release();
        write_state(xenbus_state::closed);
        break;
      case frontend_action::release:
        release();
        break;
    }
  }

  void begin_close() {
    quiesce();
    write_state(xenbus_state::closing);
  }

  void quiesce() noexcept {
    if (std::exchange(up_, false)) {
      handler_.begin_close();
    }
  }

  // NOLINTNEXTLINE(bugprone-exception-escape): a handler may throw only to end the process
  void release() noexcept {
    if (std::exchange(rings_, false)) {
      handler_.release();
    }
  }

  /// Initialising is written once nothing is left of the last connection and the backend has
  /// noticed its end.
  bool reopen_now() {
    if (!reopen_ || !released() || !present_ || backend_ == xenbus_state::closing ||
        backend_ == xenbus_state::connected) {
      return false;
    }
    reopen_ = false;
    error_.clear();
    write_state(xenbus_state::initialising);
    return true;
  }

  template <class Body>
  void guarded(Body&& body) {
    try {
      std::forward<Body>(body)();
    } catch (const std::exception& e) {
      error_ = e.what();
      report_.say(error_);
      begin_close();
    }
  }

  template <class Body>
  void write_state(xenbus_state next, Body&& body) {
    const std::string value(1, protocol::to_digit(next));
    store_.transact([&](transaction& t) {
      // Writing into a directory that was removed would make it anew.
      if (read_if_allowed(t, state_node_)) {
        body(t);
        write_if_changed(t, state_node_, std::string_view(value));
      }
    });
    own_ = next;
  }
  void write_state(xenbus_state next) {
    write_state(next, [](transaction&) {});
  }

  Store& store_;
  Handler& handler_;
  device_path path_;
  std::string state_node_;
  wake_descriptor wake_;
  std::vector<scoped_watch<Store>> watches_;
  error_report<Store> report_;
  std::string error_;
  xenbus_state own_ = xenbus_state::initialising;
  xenbus_state backend_ = xenbus_state::unknown;
  bool present_ = false;
  bool rings_ = false;  ///< prepared and not released
  bool up_ = false;     ///< connected, and not told to close yet
  bool reopen_ = false;
  bool pending_ = true;
};

}  // namespace pvring::xenbus
