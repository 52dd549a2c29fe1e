// SPDX-License-Identifier: MIT
// A connection to a Xen host's store: libxenstore, which starts a thread of its own with the first
// watch. Control path: it blocks and allocates.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "store_nodes.hpp"

namespace pvring::platform {

/// Models `store`. One thread uses it. Must not be used in a child after fork.
///
/// A store that dies is noticed by the next call, also of `next_event`, which throws (EIO). It does
/// not make `fd()` readable: the library's reader ends without a sign.
class xen_store : public detail::xenstore_nodes {
 public:
  class transaction;

  /// Calls of a transaction's body before `transact` gives up.
  static constexpr int most_attempts = 64;

  /// Throws std::system_error naming socket, device and remedy.
  xen_store() : xen_store(open()) {}
  xen_store(xen_store&&) noexcept = default;
  xen_store& operator=(xen_store&&) noexcept = default;
  ~xen_store() = default;

  /// A body that throws aborts the transaction, and its exception leaves here. Throws
  /// std::system_error (EAGAIN) after `most_attempts` conflicts.
  template <std::invocable<transaction&> Body>
  void transact(Body&& body);

  /// "@introduceDomain" and "@releaseDomain" fire when a guest is created or destroyed. Throws
  /// std::system_error: EEXIST, ENOSPC.
  void watch(std::string_view path, std::string_view token) {
    const std::pair wanted(detail::c_string(path), detail::c_string(token));
    // Known before it is asked for: its first event may come before the answer.
    watches_.push_back(wanted);
    if (!detail::uninterrupted(
            [&] { return xs_watch(handle(), wanted.first.c_str(), wanted.second.c_str()); })) {
      watches_.pop_back();
      fail("watch", wanted.first);
    }
  }

  /// A watch that is none is ignored.
  void unwatch(std::string_view path, std::string_view token) {
    const std::pair gone(detail::c_string(path), detail::c_string(token));
    const auto at = std::find(watches_.begin(), watches_.end(), gone);
    if (at == watches_.end()) {
      return;
    }
    watches_.erase(at);
    if (!detail::uninterrupted(
            [&] { return xs_unwatch(handle(), gone.first.c_str(), gone.second.c_str()); }) &&
        errno != ENOENT) {
      fail("end the watch of", gone.first);
    }
  }

  [[nodiscard]] int fd() const noexcept { return events_; }

  [[nodiscard]] std::optional<watch_event> next_event() {
    while (true) {
      errno = 0;
      const detail::owned<char*> event(xs_check_watch(handle()));
      if (!event && errno == EINTR) {
        continue;
      }
      if (!event && errno == EAGAIN) {
        return std::nullopt;
      }
      if (!event) {
        const int error = detail::failure();
        detail::throw_store_error(handle(), error, "look for events of " + watched_paths());
      }
      // The library may still hold events of watches that have ended.
      if (is_watched(event.get()[0], event.get()[1])) {
        return watch_event{event.get()[0], event.get()[1]};
      }
    }
  }

 private:
  struct close_handle {
    void operator()(xs_handle* handle) const noexcept {
      if (opened_by == ::getpid()) {
        xs_close(handle);
      } else {
        // A child has not got the thread that xs_close would wait for.
        xs_daemon_destroy_postfork(handle);
      }
    }
    pid_t opened_by;
  };
  using owned_handle = std::unique_ptr<xs_handle, close_handle>;

  explicit xen_store(owned_handle handle)
      : xenstore_nodes(handle.get(), XBT_NULL),
        connection_(std::move(handle)),
        events_(xs_fileno(connection_.get())) {
    if (events_ < 0) {
      throw std::system_error(detail::failure(), std::generic_category(),
                              "xen: no descriptor for the store's events");
    }
  }

  [[nodiscard]] static owned_handle open() {
    errno = 0;
    owned_handle handle(xs_open(0), close_handle{::getpid()});
    if (!handle) {
      const int error = detail::failure();
      detail::refuse_store(xs_daemon_socket(), error, detail::is_xen_host());
    }
    return handle;
  }

  [[nodiscard]] bool is_watched(std::string_view path, std::string_view token) const noexcept {
    return std::any_of(watches_.begin(), watches_.end(), [&](const auto& watch) {
      const std::string_view top = watch.first;
      return watch.second == token && path.starts_with(top) &&
             (path.size() == top.size() || top.ends_with('/') || path[top.size()] == '/');
    });
  }

  [[nodiscard]] std::string watched_paths() const {
    std::string paths;
    for (const auto& watch : watches_) {
      paths += (paths.empty() ? "'" : ", '") + watch.first + "'";
    }
    return paths.empty() ? "no watches" : paths;
  }

  owned_handle connection_;
  int events_;
  std::vector<std::pair<std::string, std::string>> watches_;  // path and token
};

/// What a body sees: the store, and its own changes. Made by `transact`.
class xen_store::transaction : public detail::xenstore_nodes {
 public:
  explicit transaction(xen_store& store)
      : xenstore_nodes(store.handle(), detail::uninterrupted(
                                           [&] { return xs_transaction_start(store.handle()); })) {
    if (id() == XBT_NULL) {
      detail::throw_store_error(handle(), detail::failure(), "begin a transaction");
    }
  }
  transaction(const transaction&) = delete;
  transaction& operator=(const transaction&) = delete;
  /// Aborts what was not committed.
  ~transaction() {
    if (!ended_) {
      // Nothing is known to have been changed, whatever the answer.
      (void)xs_transaction_end(handle(), id(), true);
    }
  }

 private:
  friend class xen_store;

  // False: a conflict, nothing was changed.
  [[nodiscard]] bool commit() {
    ended_ = true;
    errno = 0;
    // Not repeated after a signal: the transaction may have ended.
    if (xs_transaction_end(handle(), id(), false)) {
      return true;
    }
    if (errno != EAGAIN) {
      detail::throw_store_error(handle(), errno, "end a transaction");
    }
    return false;
  }

  bool ended_ = false;
};

template <std::invocable<xen_store::transaction&> Body>
void xen_store::transact(Body&& body) {
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    transaction t(*this);
    body(t);
    if (t.commit()) {
      return;
    }
    std::this_thread::yield();
  }
  throw std::system_error(
      EAGAIN, std::generic_category(),
      "store: " + std::to_string(most_attempts) + " conflicts with other writers in a row");
}

static_assert(store<xen_store>);

}  // namespace pvring::platform
