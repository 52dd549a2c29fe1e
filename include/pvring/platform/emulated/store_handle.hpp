// SPDX-License-Identifier: MIT
// A connection to the emulated store as one domain: nodes, transactions, watches. Control path: it
// takes the store's lock and allocates.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "fault_plan.hpp"
#include "store_session.hpp"

namespace pvring::platform {

/// Models `store`. One thread uses it. Must not be used in a child after fork.
class emulated_store {
 public:
  class transaction;

  /// Calls of a transaction's body before `transact` gives up.
  static constexpr int most_attempts = 64;

  emulated_store(std::shared_ptr<const detail::shared_state> state, domain_id self,
                 fault_plan* faults)
      : state_(std::move(state)), self_(self), faults_(faults) {
    detail::store_session session(*state_);
    connection_ = session.watches().open(self_);
  }
  emulated_store(emulated_store&& other) noexcept = default;
  emulated_store& operator=(emulated_store&& other) noexcept {
    if (this != &other) {
      close();
      state_ = std::move(other.state_);
      self_ = other.self_;
      faults_ = other.faults_;
      connection_ = other.connection_;
    }
    return *this;
  }
  ~emulated_store() { close(); }

  /// Follows `faults` from now on; null for none.
  void set_faults(fault_plan* faults) noexcept { faults_ = faults; }

  [[nodiscard]] std::optional<std::string> read(std::string_view path) {
    const std::string full = absolute(path);
    detail::store_session session(*state_);
    const std::uint32_t node = session.readable(full, self_);
    return node != 0 ? std::optional(session.tree().value(node)) : std::nullopt;
  }
  void write(std::string_view path, std::string_view value) {
    change({detail::store_change::kind::write, absolute(path), std::string(value), {}});
  }
  void remove(std::string_view path) {
    change({detail::store_change::kind::remove, absolute(path), {}, {}});
  }
  [[nodiscard]] std::vector<std::string> list(std::string_view path) {
    const std::string full = absolute(path);
    detail::store_session session(*state_);
    const std::uint32_t node = session.readable(full, self_);
    return node != 0 ? session.tree().children(node) : std::vector<std::string>();
  }
  void set_permissions(std::string_view path, node_permissions permissions) {
    change({detail::store_change::kind::permissions, absolute(path), {}, permissions});
  }

  /// A body that throws aborts the transaction, and its exception leaves here; unless what it saw
  /// had been changed by others meanwhile: then it is called again. Throws std::system_error
  /// (EAGAIN) after `most_attempts` conflicts.
  template <std::invocable<transaction&> Body>
  void transact(Body&& body);

  /// "@introduceDomain" and "@releaseDomain" fire when a guest is created or destroyed.
  /// Throws std::system_error: EEXIST, ENOSPC, E2BIG (see the limits in layout.hpp).
  void watch(std::string_view path, std::string_view token) {
    const auto [full, relative] = watched(path);
    detail::store_session session(*state_);
    session.watches().add(connection_, full, token, relative);
  }
  void unwatch(std::string_view path, std::string_view token) {
    const auto [full, relative] = watched(path);
    detail::store_session session(*state_);
    session.watches().remove(connection_, full, token);
  }
  [[nodiscard]] int fd() const noexcept { return state_->store_bell(connection_); }
  [[nodiscard]] std::optional<watch_event> next_event() {
    detail::store_session session(*state_);
    return session.watches().next(connection_);
  }

 private:
  friend class transaction;

  [[nodiscard]] std::string absolute(std::string_view path) const {
    return detail::absolute_path(path, self_);
  }

  // A watched path, and how much of it is the home directory that the caller left out.
  [[nodiscard]] std::pair<std::string, std::size_t> watched(std::string_view path) const {
    if (path.starts_with('@')) {
      return {std::string(path.substr(0, detail::longest_path)), 0};
    }
    std::string full = absolute(path);
    const std::size_t added = full.size() - path.size();
    return {std::move(full), added};
  }

  void change(const detail::store_change& wanted) {
    detail::store_session session(*state_);
    session.check_rights(wanted, self_);
    session.apply({&wanted, 1}, self_);
  }

  void close() noexcept {
    if (state_ && detail::is_mine(state_->connection(connection_).owner)) {
      detail::store_session session(*state_);
      session.watches().close(connection_);
    }
  }

  std::shared_ptr<const detail::shared_state> state_;
  domain_id self_;
  fault_plan* faults_;
  std::uint32_t connection_ = 0;
};

/// What a body sees: the store as it was when the transaction began, and its own changes. Made by
/// `transact`.
class emulated_store::transaction {
 public:
  explicit transaction(emulated_store& store) : store_(store) {
    detail::store_session session(*store_.state_);
    begun_ = session.tree().version();
  }
  transaction(const transaction&) = delete;
  transaction& operator=(const transaction&) = delete;

  [[nodiscard]] std::optional<std::string> read(std::string_view path);
  void write(std::string_view path, std::string_view value) {
    change({detail::store_change::kind::write, store_.absolute(path), std::string(value), {}});
  }
  void remove(std::string_view path) {
    change({detail::store_change::kind::remove, store_.absolute(path), {}, {}});
  }
  [[nodiscard]] std::vector<std::string> list(std::string_view path);
  void set_permissions(std::string_view path, node_permissions permissions) {
    change({detail::store_change::kind::permissions, store_.absolute(path), {}, permissions});
  }

 private:
  friend class emulated_store;

  // A node that was looked at, and how it was then.
  struct look {
    std::string path;
    std::uint64_t version;  ///< 0: it did not exist
  };

  void remember(detail::store_session& session, const std::string& path, std::uint32_t node) {
    const std::uint64_t version = node != 0 ? session.tree().version(node) : 0;
    std::string_view missing;
    // A missing node may have been removed since: that changed the node above it.
    const std::uint32_t nearest = node != 0 ? node : session.tree().deepest(path, missing);
    stale_ = stale_ || session.tree().version(nearest) > begun_;
    looks_.push_back({path, version});
  }

  void change(detail::store_change wanted) {
    const bool made =
        wanted.what == detail::store_change::kind::permissions && is_made_here(wanted.path);
    detail::store_session session(*store_.state_);
    session.check_rights(wanted, store_.self_, made);
    remember(session, wanted.path, session.tree().find(wanted.path));
    changes_.push_back(std::move(wanted));
  }

  [[nodiscard]] bool is_made_here(std::string_view path) const {
    return std::any_of(changes_.begin(), changes_.end(), [&](const detail::store_change& c) {
      return c.what == detail::store_change::kind::write && detail::is_at_or_below(c.path, path);
    });
  }

  // False: a conflict, nothing was changed.
  [[nodiscard]] bool commit() {
    if (store_.faults_ != nullptr && store_.faults_->next_commit_conflicts()) {
      return false;
    }
    detail::store_session session(*store_.state_);
    const bool unchanged = std::all_of(looks_.begin(), looks_.end(), [&](const look& l) {
      const std::uint32_t node = session.tree().find(l.path);
      return (node != 0 ? session.tree().version(node) : 0) == l.version;
    });
    if (stale_ || !unchanged) {
      return false;
    }
    for (const detail::store_change& c : changes_) {
      session.check_rights(c, store_.self_, true);
    }
    session.apply(changes_, store_.self_);
    return true;
  }

  emulated_store& store_;
  std::uint64_t begun_ = 0;
  bool stale_ = false;
  std::vector<look> looks_;
  std::vector<detail::store_change> changes_;
};

inline std::optional<std::string> emulated_store::transaction::read(std::string_view path) {
  const std::string full = store_.absolute(path);
  bool made = false;  // by a write further down
  for (std::size_t i = changes_.size(); i-- != 0;) {
    const detail::store_change& c = changes_[i];
    if (c.what == detail::store_change::kind::write) {
      if (c.path == full) {
        return c.value;
      }
      made = made || detail::is_at_or_below(c.path, full);
    } else if (c.what == detail::store_change::kind::remove &&
               detail::is_at_or_below(full, c.path)) {
      return made ? std::optional(std::string()) : std::nullopt;
    }
  }
  detail::store_session session(*store_.state_);
  const std::uint32_t node = session.readable(full, store_.self_);
  remember(session, full, node);
  if (node != 0) {
    return session.tree().value(node);
  }
  return made ? std::optional(std::string()) : std::nullopt;
}

inline std::vector<std::string> emulated_store::transaction::list(std::string_view path) {
  const std::string full = store_.absolute(path);
  std::set<std::string> names;
  {
    detail::store_session session(*store_.state_);
    const std::uint32_t node = session.readable(full, store_.self_);
    remember(session, full, node);
    for (std::string& name :
         node != 0 ? session.tree().children(node) : std::vector<std::string>()) {
      names.insert(std::move(name));
    }
  }
  for (const detail::store_change& c : changes_) {
    if (c.what == detail::store_change::kind::remove && detail::is_at_or_below(full, c.path)) {
      names.clear();
    } else if (c.path != full && detail::is_at_or_below(c.path, full)) {
      std::string_view rest = std::string_view(c.path).substr(full == "/" ? 0 : full.size());
      const std::string name(detail::take_name(rest));
      if (c.what == detail::store_change::kind::write) {
        names.insert(name);
      } else if (c.what == detail::store_change::kind::remove && rest.empty()) {
        names.erase(name);
      }
    }
  }
  return {names.begin(), names.end()};
}

template <std::invocable<emulated_store::transaction&> Body>
void emulated_store::transact(Body&& body) {
  for (int attempt = 0; attempt < most_attempts; ++attempt) {
    transaction t(*this);
    bool finished = false;
    try {
      body(t);
      finished = true;
    } catch (const std::exception&) {
      if (!t.stale_) {
        throw;
      }
    }
    if (finished && t.commit()) {
      return;
    }
    std::this_thread::yield();
  }
  throw std::system_error(
      EAGAIN, std::generic_category(),
      "store: " + std::to_string(most_attempts) + " conflicts with other writers in a row");
}

static_assert(store<emulated_store>);

}  // namespace pvring::platform
