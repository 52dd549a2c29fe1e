// SPDX-License-Identifier: MIT
// A store in memory for tests of one thread: several connections to one tree, transactions whose
// conflicts can be scripted, watches that merge events, and counts of what was done. Permissions
// are kept and not enforced.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "pvring/base/unique_fd.hpp"
#include "pvring/platform/store.hpp"

namespace pvring::test {

class scripted_store;

/// What all connections see.
class store_tree {
 public:
  struct node {
    std::string value;
    platform::node_permissions permissions;
  };
  using nodes = std::map<std::string, node, std::less<>>;

  nodes content;
  std::vector<scripted_store*> connections;
  std::map<std::string, int, std::less<>> writes;  ///< committed writes of each node
  int conflicts = 0;                               ///< so many commits from now on fail with EAGAIN
  int bodies = 0;                                  ///< transaction bodies that were called
  int commits = 0;
  /// Runs between a transaction's body and its commit, once: somebody else's change.
  std::function<void()> meanwhile;
  /// Access to this path fails.
  std::string broken_path;
  int error = EIO;

  [[nodiscard]] std::string get(std::string_view path) const {
    const auto found = content.find(path);
    return found == content.end() ? "(missing)" : found->second.value;
  }
  [[nodiscard]] bool has(std::string_view path) const { return content.contains(path); }
  [[nodiscard]] int written(std::string_view path) const {
    const auto found = writes.find(path);
    return found == writes.end() ? 0 : found->second;
  }
  /// Writes as a third party would: watches fire.
  void put(std::string_view path, std::string_view value);
  void drop(std::string_view path);
};

namespace detail {

inline bool at_or_below(std::string_view path, std::string_view root) {
  return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}

inline void write_node(store_tree::nodes& content, std::string_view path, std::string_view value) {
  if (const auto found = content.find(path); found != content.end()) {
    found->second.value = value;
    return;
  }
  for (std::size_t slash = path.find('/', 1); slash != std::string_view::npos;
       slash = path.find('/', slash + 1)) {
    content.try_emplace(std::string(path.substr(0, slash)));
  }
  content[std::string(path)].value = value;
}

inline void remove_node(store_tree::nodes& content, std::string_view path) {
  std::erase_if(content, [&](const auto& entry) { return at_or_below(entry.first, path); });
}

inline std::vector<std::string> children(const store_tree::nodes& content, std::string_view path) {
  std::vector<std::string> names;
  for (const auto& [full, node] : content) {
    if (full.size() > path.size() + 1 && at_or_below(full, path) &&
        full.find('/', path.size() + 1) == std::string::npos) {
      names.push_back(full.substr(path.size() + 1));
    }
  }
  return names;
}

}  // namespace detail

/// One connection. Models platform::store.
class scripted_store {
 public:
  explicit scripted_store(store_tree& tree)
      : tree_(tree), bell_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    tree_.connections.push_back(this);
  }
  scripted_store(const scripted_store&) = delete;
  scripted_store& operator=(const scripted_store&) = delete;
  ~scripted_store() { std::erase(tree_.connections, this); }

  /// Calls of a transaction's body before it is given up.
  static constexpr int most_attempts = 8;

  class transaction {
   public:
    [[nodiscard]] std::optional<std::string> read(std::string_view path) {
      check(tree_, path);
      const auto found = content_.find(path);
      return found == content_.end() ? std::nullopt : std::optional(found->second.value);
    }
    void write(std::string_view path, std::string_view value) {
      check(tree_, path);
      detail::write_node(content_, path, value);
      changed_.emplace_back(path);
    }
    void remove(std::string_view path) {
      check(tree_, path);
      if (content_.contains(path)) {
        detail::remove_node(content_, path);
        changed_.emplace_back(path);
      }
    }
    [[nodiscard]] std::vector<std::string> list(std::string_view path) const {
      return detail::children(content_, path);
    }
    void set_permissions(std::string_view path, platform::node_permissions permissions) {
      content_[std::string(path)].permissions = permissions;
    }

   private:
    friend class scripted_store;
    explicit transaction(const store_tree& tree) : tree_(tree), content_(tree.content) {}

    const store_tree& tree_;
    store_tree::nodes content_;
    std::vector<std::string> changed_;
  };

  [[nodiscard]] std::optional<std::string> read(std::string_view path) {
    check(tree_, path);
    const auto found = tree_.content.find(path);
    return found == tree_.content.end() ? std::nullopt : std::optional(found->second.value);
  }
  void write(std::string_view path, std::string_view value) {
    check(tree_, path);
    detail::write_node(tree_.content, path, value);
    changed(tree_, path, false);
  }
  void remove(std::string_view path) {
    check(tree_, path);
    if (tree_.content.contains(path)) {
      detail::remove_node(tree_.content, path);
      changed(tree_, path, true);
    }
  }
  [[nodiscard]] std::vector<std::string> list(std::string_view path) const {
    return detail::children(tree_.content, path);
  }
  void set_permissions(std::string_view path, platform::node_permissions permissions) {
    tree_.content[std::string(path)].permissions = permissions;
  }

  template <class Body>
  void transact(Body&& body) {
    for (int i = 0; i < most_attempts; ++i) {
      transaction attempt(tree_);
      const std::size_t seen = tree_.content.size();
      ++tree_.bodies;
      body(attempt);
      const int before = version(tree_);
      if (tree_.meanwhile) {
        std::exchange(tree_.meanwhile, nullptr)();
      }
      if (tree_.conflicts > 0) {
        --tree_.conflicts;
        continue;
      }
      if (seen != tree_.content.size() || before != version(tree_)) {
        continue;
      }
      ++tree_.commits;
      tree_.content = std::move(attempt.content_);
      for (const std::string& path : attempt.changed_) {
        changed(tree_, path, !tree_.content.contains(path));
      }
      return;
    }
    throw std::system_error(EAGAIN, std::generic_category(), "transaction");
  }

  void watch(std::string_view path, std::string_view token) {
    check(tree_, path);
    watches_.emplace(path, token);
    queue(path, token);
  }
  void unwatch(std::string_view path, std::string_view token) {
    watches_.erase({std::string(path), std::string(token)});
    std::erase_if(events_, [&](const auto& event) {
      return event.token == token && detail::at_or_below(event.path, path);
    });
    ring();
  }
  [[nodiscard]] int fd() const noexcept { return bell_.get(); }
  [[nodiscard]] std::optional<platform::watch_event> next_event() {
    if (events_.empty()) {
      return std::nullopt;
    }
    platform::watch_event event = std::move(events_.front());
    events_.pop_front();
    ring();
    return event;
  }

  [[nodiscard]] std::size_t watches() const noexcept { return watches_.size(); }
  [[nodiscard]] std::size_t waiting() const noexcept { return events_.size(); }
  /// Puts any event into the queue, also ones that no watch could cause.
  void queue(std::string_view path, std::string_view token) {
    const bool merged = std::any_of(events_.begin(), events_.end(), [&](const auto& event) {
      return event.path == path && event.token == token;
    });
    if (!merged) {
      events_.push_back({std::string(path), std::string(token)});
    }
    ring();
  }

 private:
  friend class store_tree;

  static void check(const store_tree& tree, std::string_view path) {
    if (!tree.broken_path.empty() && detail::at_or_below(path, tree.broken_path)) {
      throw std::system_error(tree.error, std::generic_category(), std::string(path));
    }
  }

  static int version(const store_tree& tree) {
    int sum = 0;
    for (const auto& [path, count] : tree.writes) {
      sum += count;
    }
    return sum;
  }

  static void changed(store_tree& tree, std::string_view path, bool removed) {
    ++tree.writes.try_emplace(std::string(path)).first->second;
    for (scripted_store* connection : tree.connections) {
      for (const auto& [watched, token] : connection->watches_) {
        if (detail::at_or_below(path, watched) || (removed && detail::at_or_below(watched, path))) {
          connection->queue(removed ? std::string_view(watched) : path, token);
        }
      }
    }
  }

  void ring() const {
    std::uint64_t count = 1;
    if (events_.empty()) {
      [[maybe_unused]] const auto got = ::read(bell_.get(), &count, sizeof count);
    } else {
      [[maybe_unused]] const auto put = ::write(bell_.get(), &count, sizeof count);
    }
  }

  store_tree& tree_;
  unique_fd bell_;
  std::set<std::pair<std::string, std::string>> watches_;
  std::deque<platform::watch_event> events_;
};

inline void store_tree::put(std::string_view path, std::string_view value) {
  detail::write_node(content, path, value);
  scripted_store::changed(*this, path, false);
}
inline void store_tree::drop(std::string_view path) {
  detail::remove_node(content, path);
  scripted_store::changed(*this, path, true);
}

static_assert(platform::store<scripted_store>);

/// A store that cannot do transactions.
struct store_without_transactions : scripted_store {
  using scripted_store::scripted_store;
  void transact() = delete;
};
static_assert(platform::node_access<store_without_transactions>);
static_assert(!platform::store<store_without_transactions>);

}  // namespace pvring::test
