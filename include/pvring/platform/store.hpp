// SPDX-License-Identifier: MIT
// A connection to the store (XenStore): nodes, transactions, watches and permissions. Control path
// only: calls may block and allocate, and failures other than a missing node are exceptions.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../base/error.hpp"

namespace pvring::platform {

/// A watch that fired: the node that changed (or the watched one, at registration) and the watch's
/// own token.
struct watch_event {
  std::string path;
  std::string token;
};

/// Who may use a node: its owner does anything, `reader` (where given) may read, others nothing.
struct node_permissions {
  domain_id owner = 0;
  std::optional<domain_id> reader;
};

/// What can be done inside a transaction and outside of one.
///
/// - `read(path)`: the value, or nothing when the node does not exist.
/// - `write(path, value)`: creates missing parents.
/// - `remove(path)`: with all below it; a missing node is not an error.
/// - `list(path)`: names of the children; empty when there are none or the node does not exist.
/// - `set_permissions(path, permissions)`.
///
/// Anything else that fails throws std::system_error naming the path: EACCES, ENOSPC, EIO (the
/// store is gone).
template <class T>
concept node_access =
    requires(T& t, std::string_view path, std::string_view value, node_permissions permissions) {
      { t.read(path) } -> std::same_as<std::optional<std::string>>;
      { t.write(path, value) } -> std::same_as<void>;
      { t.remove(path) } -> std::same_as<void>;
      { t.list(path) } -> std::same_as<std::vector<std::string>>;
      { t.set_permissions(path, permissions) } -> std::same_as<void>;
    };

/// A store connection.
///
/// - `transact(body)`: calls `body(transaction&)` and commits; on a conflict (EAGAIN) calls it
/// again, so the body must have
///   no other effects; after a bounded number of conflicts it throws. A body that throws aborts the
///   transaction.
/// - `watch(path, token)`: fires once at registration, then for every change at or below `path`.
/// Changes may be merged: an
///   event says "look again", never what happened.
/// - `unwatch(path, token)`: no event of that watch is returned afterwards.
/// - `fd()`: readable while events wait. `next_event()`: the next one, or nothing; never blocks.
template <class S>
concept store = node_access<S> && requires(S& s, std::string_view path, std::string_view token) {
  typename S::transaction;
  requires node_access<typename S::transaction>;
  {
    s.transact([](typename S::transaction&) {})
  } -> std::same_as<void>;
  { s.watch(path, token) } -> std::same_as<void>;
  { s.unwatch(path, token) } -> std::same_as<void>;
  { s.fd() } noexcept -> std::same_as<int>;
  { s.next_event() } -> std::same_as<std::optional<watch_event>>;
};

}  // namespace pvring::platform
