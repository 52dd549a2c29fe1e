// SPDX-License-Identifier: MIT
// The store under its lock: checked changes, one or many at once. They go through a journal, so
// that a process that is killed in the middle leaves all of them, watches included, or none.
#pragma once

#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store_watches.hpp"

namespace pvring::platform::detail {

/// What a caller wants changed. Paths are absolute and valid.
struct store_change {
  enum class kind : std::uint8_t { write, remove, permissions };
  kind what = kind::write;
  std::string path;
  std::string value;
  node_permissions permissions;
};

/// Holds the store's lock while it lives.
class store_session {
 public:
  explicit store_session(const shared_state& state)
      : lock_(state.store().lock), state_(state), tree_(state), watches_(state) {
    if (lock_.owner_died()) {
      tree_.repair();
      redo_journal();
      watches_.ring_all();
    }
  }

  [[nodiscard]] store_tree& tree() noexcept { return tree_; }
  [[nodiscard]] const store_watches& watches() const noexcept { return watches_; }

  /// The node, if there is one and `who` may read it. Throws EACCES, also where `who` may not know
  /// that there is none.
  [[nodiscard]] std::uint32_t readable(std::string_view path, domain_id who) const {
    std::string_view missing;
    const std::uint32_t at = tree_.deepest(path, missing);
    if (!tree_.may_read(at, who)) {
      throw_store(EACCES, path, "domain " + std::to_string(who) + " may not read it");
    }
    return missing.empty() ? at : store_tree::none;
  }

  /// Throws EACCES, ENOENT (permissions of a missing node, unless `made` says it is being made),
  /// E2BIG, EINVAL.
  void check_rights(const store_change& change, domain_id who, bool made = false) const {
    std::string_view missing;
    const std::uint32_t at = tree_.deepest(change.path, missing);
    if (change.what == store_change::kind::remove && (change.path == "/" || !missing.empty())) {
      if (change.path == "/") {
        throw_store(EINVAL, change.path, "the root cannot be removed");
      }
      return;
    }
    if (change.value.size() > longest_value) {
      throw_store(E2BIG, change.path,
                  "a value has at most " + std::to_string(longest_value) + " bytes");
    }
    if (change.what == store_change::kind::permissions && !missing.empty() && !made) {
      throw_store(ENOENT, change.path, "does not exist");
    }
    const bool gives_away = change.what == store_change::kind::permissions && who != 0 &&
                            change.permissions.owner != who;
    if (!tree_.may_write(at, who) || gives_away) {
      throw_store(EACCES, change.path,
                  "domain " + std::to_string(who) +
                      (gives_away ? " may not give it away" : " may not write it"));
    }
  }

  /// Makes the changes, all of them. Throws before the first where one is not allowed or there is
  /// no space (ENOSPC).
  void apply(std::span<const store_change> changes, domain_id who) {
    check_space(changes, who);
    write_journal(changes, who);
    for (const store_change& change : changes) {
      apply_one(change, who);
    }
    shared(state_.store().journal_length).store(0);
  }

 private:
  void apply_one(const store_change& change, domain_id who) {
    if (change.what == store_change::kind::write) {
      watches_.fire(tree_, change.path, tree_.write(change.path, change.value, who));
    } else if (const std::uint32_t node = tree_.find(change.path); node != store_tree::none) {
      if (change.what == store_change::kind::remove) {
        watches_.fire_removal(tree_, change.path, node);
        tree_.remove(node);
      } else {
        // Who may not read it any more has to learn that too.
        watches_.fire(tree_, change.path, node);
        tree_.set_permissions(node, change.permissions);
        watches_.fire(tree_, change.path, node);
      }
    }
  }

  // Counts as if nothing were freed meanwhile: a change may be refused a little early, but never
  // half-way. Values count twice, because a commit that is done again holds the old ones meanwhile.
  void check_space(std::span<const store_change> changes, domain_id who) const {
    std::set<std::string, std::less<>> fresh;
    std::uint32_t chunks = 0;
    const store_change* largest = nullptr;
    for (const store_change& change : changes) {
      if (change.what != store_change::kind::write) {
        continue;
      }
      largest = &change;
      chunks += 2 * store_tree::chunks_for(change.value.size());
      std::string_view missing;
      (void)tree_.deepest(change.path, missing);
      while (!missing.empty()) {
        (void)take_name(missing);
        fresh.emplace(change.path.substr(0, change.path.size() - missing.size()));
      }
    }
    if (largest == nullptr) {
      return;
    }
    if (const auto left = tree_.left(); fresh.size() > left.nodes || chunks > left.chunks) {
      throw_store(ENOSPC, largest->path, "the emulated store is full");
    }
    if (who != 0) {
      const auto used = tree_.used_by(who);
      // A quarter of the space for values, because one guest must not keep the others from writing.
      if (used.nodes + fresh.size() > state_.options().store_quota ||
          used.chunks + chunks > state_.chunks() / 4) {
        throw_store(ENOSPC, largest->path,
                    "domain " + std::to_string(who) + " has used up its quota of " +
                        std::to_string(state_.options().store_quota) + " nodes");
      }
    }
  }

  struct journal_entry {
    std::uint32_t what, path, value;
    domain_id owner, reader;
    std::uint32_t has_reader;
  };

  void write_journal(std::span<const store_change> changes, domain_id who) {
    std::size_t at = 0;
    for (const store_change& change : changes) {
      const journal_entry entry{static_cast<std::uint32_t>(change.what),
                                static_cast<std::uint32_t>(change.path.size()),
                                static_cast<std::uint32_t>(change.value.size()),
                                change.permissions.owner,
                                change.permissions.reader.value_or(0),
                                change.permissions.reader ? 1U : 0U};
      if (at + sizeof entry + change.path.size() + change.value.size() > journal_bytes) {
        throw_store(ENOSPC, change.path, "the transaction is too large");
      }
      std::memcpy(state_.journal() + at, &entry, sizeof entry);
      at += sizeof entry;
      at += change.path.copy(state_.journal() + at, change.path.size());
      at += change.value.copy(state_.journal() + at, change.value.size());
    }
    state_.store().journal_domain = who;
    // From here on they have happened: whoever comes after a death finishes them.
    shared(state_.store().journal_length).store(at);
  }

  // Every kind of change may be made twice: it leads to the same tree.
  void redo_journal() {
    const std::size_t length = state_.store().journal_length;
    for (std::size_t at = 0; at < length;) {
      journal_entry entry{};
      std::memcpy(&entry, state_.journal() + at, sizeof entry);
      at += sizeof entry;
      store_change change{
          static_cast<store_change::kind>(entry.what),
          {state_.journal() + at, entry.path},
          {state_.journal() + at + entry.path, entry.value},
          {entry.owner, entry.has_reader != 0 ? std::optional(entry.reader) : std::nullopt}};
      at += entry.path + entry.value;
      apply_one(change, static_cast<domain_id>(state_.store().journal_domain));
    }
    shared(state_.store().journal_length).store(0);
  }

  robust_lock lock_;
  const shared_state& state_;
  store_tree tree_;
  store_watches watches_;
};

}  // namespace pvring::platform::detail
