// SPDX-License-Identifier: MIT
// Watches of the store, by connection. What waits to be read is bounded: changes of the same node
// merge, and more than a few different nodes under one watch merge into "look at all of it".
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include "registry.hpp"
#include "store_tree.hpp"

namespace pvring::platform::detail {

/// All functions need the store's lock.
class store_watches {
 public:
  explicit store_watches(const shared_state& state) : state_(state) {}

  /// A free connection. Throws std::system_error (ENOSPC).
  [[nodiscard]] std::uint32_t open(domain_id domain) const {
    for (std::uint32_t i = 0; i < state_.options().store_connections; ++i) {
      slot_owner& owner = state_.connection(i).owner;
      if (is_abandoned(owner)) {
        close(i);
      }
      if (shared(owner.in_use).load() == 0) {
        state_.connection(i).domain = domain;
        silence(i);
        occupy(owner);
        return i;
      }
    }
    throw_full("store connections", state_.options().store_connections);
  }

  void close(std::uint32_t connection) const noexcept {
    for (store_watch& w : state_.connection(connection).watches) {
      w.used = 0;
    }
    vacate(state_.connection(connection).owner);
  }

  /// \param relative length of what the caller's path was prefixed with
  void add(std::uint32_t connection, std::string_view path, std::string_view token,
           std::size_t relative) const {
    store_connection& c = state_.connection(connection);
    if (token.size() > longest_token) {
      throw_store(
          E2BIG, path,
          "a watch's token has at most " + std::to_string(longest_token) + " characters here");
    }
    if (find(connection, path, token) != nullptr) {
      throw_store(EEXIST, path, "is watched already with this token");
    }
    const auto free = std::find_if(c.watches.begin(), c.watches.end(),
                                   [](const store_watch& w) { return w.used == 0; });
    if (free == c.watches.end()) {
      throw_store(
          ENOSPC, path,
          "this connection has all its " + std::to_string(watches_per_connection) + " watches");
    }
    free->relative = static_cast<std::uint32_t>(relative);
    free->path_length = static_cast<std::uint32_t>(path.copy(free->path.data(), longest_path));
    free->token_length = static_cast<std::uint32_t>(token.copy(free->token.data(), longest_token));
    free->events = 0;
    free->used = 1;
    queue(connection, *free, path);
  }

  void remove(std::uint32_t connection, std::string_view path,
              std::string_view token) const noexcept {
    if (store_watch* w = find(connection, path, token)) {
      w->used = 0;
      w->events = 0;
      silence_if_empty(connection);
    }
  }

  /// The event that has waited longest, or nothing.
  [[nodiscard]] std::optional<watch_event> next(std::uint32_t connection) const {
    store_watch* oldest = nullptr;
    for (store_watch& w : state_.connection(connection).watches) {
      if (w.used != 0 && w.events != 0 &&
          (oldest == nullptr || w.pending[0].order < oldest->pending[0].order)) {
        oldest = &w;
      }
    }
    if (oldest == nullptr) {
      silence_if_empty(connection);
      return std::nullopt;
    }
    const pending_event& first = oldest->pending[0];
    watch_event event{std::string(first.path.data(), first.length),
                      std::string(oldest->token.data(), oldest->token_length)};
    event.path.erase(0, std::min<std::size_t>(oldest->relative, event.path.size()));
    std::copy(oldest->pending.begin() + 1, oldest->pending.begin() + oldest->events,
              oldest->pending.begin());
    --oldest->events;
    silence_if_empty(connection);
    return event;
  }

  /// Tells everyone who watches `path` or above and may read `node` (`none`: no permission is
  /// needed).
  void fire(const store_tree& tree, std::string_view path, std::uint32_t node) const {
    for_each([&](std::uint32_t connection, store_watch& w) {
      if (is_at_or_below(path, path_of(w)) && may_see(tree, connection, node)) {
        queue(connection, w, path);
      }
    });
  }

  /// Also tells those who watch something below `path` that goes with it. Call before the removal.
  void fire_removal(const store_tree& tree, std::string_view path, std::uint32_t node) const {
    fire(tree, path, node);
    for_each([&](std::uint32_t connection, store_watch& w) {
      if (path_of(w) != path && is_at_or_below(path_of(w), path)) {
        const std::uint32_t below = tree.find(path_of(w));
        if (below != store_tree::none && may_see(tree, connection, below)) {
          queue(connection, w, path_of(w));
        }
      }
    });
  }

  /// Wakes everyone for whom something waits: whoever died in the middle may have marked it and
  /// woken nobody.
  void ring_all() const {
    for_each([&](std::uint32_t connection, store_watch& w) {
      if (w.events != 0) {
        state_.connection(connection).bell = 0;
        ring(connection);
      }
    });
  }

 private:
  static std::string_view path_of(const store_watch& w) noexcept {
    return {w.path.data(), w.path_length};
  }

  template <class F>
  void for_each(F&& f) const {
    for (std::uint32_t i = 0; i < state_.options().store_connections; ++i) {
      store_connection& c = state_.connection(i);
      if (shared(c.owner.in_use).load() == 0) {
        continue;
      }
      for (store_watch& w : c.watches) {
        if (w.used != 0) {
          f(i, w);
        }
      }
    }
  }

  [[nodiscard]] store_watch* find(std::uint32_t connection, std::string_view path,
                                  std::string_view token) const noexcept {
    for (store_watch& w : state_.connection(connection).watches) {
      if (w.used != 0 && path_of(w) == path &&
          std::string_view(w.token.data(), w.token_length) == token) {
        return &w;
      }
    }
    return nullptr;
  }

  [[nodiscard]] bool may_see(const store_tree& tree, std::uint32_t connection,
                             std::uint32_t node) const noexcept {
    return node == store_tree::none ||
           tree.may_read(node, static_cast<domain_id>(state_.connection(connection).domain));
  }

  void queue(std::uint32_t connection, store_watch& w, std::string_view path) const noexcept {
    for (std::uint32_t i = 0; i < w.events; ++i) {
      if (std::string_view(w.pending[i].path.data(), w.pending[i].length) == path) {
        return;
      }
    }
    if (w.events == events_per_watch) {
      w.events = 0;
      path = path_of(w);
    }
    pending_event& event = w.pending[w.events];
    event.order = ++state_.store().events;
    event.length = static_cast<std::uint32_t>(path.copy(event.path.data(), longest_path));
    ++w.events;
    ring(connection);
  }

  void ring(std::uint32_t connection) const noexcept {
    if (state_.connection(connection).bell == 0) {
      state_.connection(connection).bell = 1;
      const std::uint64_t one = 1;
      (void)!::write(state_.store_bell(connection), &one, sizeof one);
    }
  }

  void silence(std::uint32_t connection) const noexcept {
    std::uint64_t rings = 0;
    (void)!::read(state_.store_bell(connection), &rings, sizeof rings);
    state_.connection(connection).bell = 0;
  }

  void silence_if_empty(std::uint32_t connection) const noexcept {
    const auto& watches = state_.connection(connection).watches;
    const bool waiting = std::any_of(watches.begin(), watches.end(), [](const store_watch& w) {
      return w.used != 0 && w.events != 0;
    });
    if (!waiting && state_.connection(connection).bell != 0) {
      silence(connection);
    }
  }

  const shared_state& state_;
};

}  // namespace pvring::platform::detail
