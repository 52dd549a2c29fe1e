// SPDX-License-Identifier: MIT
// The store's nodes in shared memory. Every change becomes visible by the store of one word, so
// that a process that is killed half-way leaves a tree that is whole, and at worst some free space
// to be found again.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../store.hpp"
#include "shared_state.hpp"
#include "store_path.hpp"

namespace pvring::platform::detail {

/// All functions need the store's lock. Paths are absolute and valid.
class store_tree {
 public:
  static constexpr std::uint32_t none = 0;
  static constexpr std::uint32_t root = 1;

  explicit store_tree(const shared_state& state) : state_(state), header_(state.store()) {
    if (header_.node_next == 0) {
      header_.chunk_next = 1;
      header_.chunks_left = state_.chunks();
      header_.nodes_left = state_.options().store_nodes - 1;
      state_.node(root).used = 1;
      header_.node_next = root + 1;
    }
  }

  /// The node, or `none`.
  [[nodiscard]] std::uint32_t find(std::string_view path) const noexcept {
    std::string_view rest;
    const std::uint32_t at = deepest(path, rest);
    return rest.empty() ? at : none;
  }

  /// The deepest node on the way to `path` that exists, and what of the path is missing.
  [[nodiscard]] std::uint32_t deepest(std::string_view path,
                                      std::string_view& missing) const noexcept {
    std::uint32_t at = root;
    missing = path == "/" ? std::string_view{} : path;
    while (!missing.empty()) {
      std::string_view rest = missing;
      const std::uint32_t next = child(at, take_name(rest));
      if (next == none) {
        break;
      }
      at = next;
      missing = rest;
    }
    return at;
  }

  [[nodiscard]] std::string value(std::uint32_t node) const {
    const std::uint64_t where = state_.node(node).value;
    std::size_t left = static_cast<std::uint32_t>(where);
    std::string text;
    text.reserve(left);
    for (auto chunk = static_cast<std::uint32_t>(where >> 32); left != 0;
         chunk = state_.chunk(chunk).next) {
      const std::size_t n = std::min(left, store_chunk::bytes);
      text.append(state_.chunk(chunk).text.data(), n);
      left -= n;
    }
    return text;
  }

  [[nodiscard]] std::vector<std::string> children(std::uint32_t node) const {
    std::vector<std::string> names;
    for (std::uint32_t c = state_.node(node).child; c != none; c = state_.node(c).sibling) {
      names.emplace_back(name(c));
    }
    return names;
  }

  [[nodiscard]] std::uint64_t version(std::uint32_t node) const noexcept {
    return state_.node(node).version;
  }
  [[nodiscard]] std::uint64_t version() const noexcept { return header_.version; }

  /// Domain 0 may do anything, an owner anything with its node, a reader read it; the root may be
  /// read by everyone.
  [[nodiscard]] bool may_write(std::uint32_t node, domain_id who) const noexcept {
    return who == 0 || state_.node(node).owner == who;
  }
  [[nodiscard]] bool may_read(std::uint32_t node, domain_id who) const noexcept {
    const store_node& n = state_.node(node);
    return node == root || may_write(node, who) || (n.has_reader != 0 && n.reader == who);
  }

  /// Nodes that the domain owns, and chunks of their values.
  struct usage {
    std::uint32_t nodes = 0;
    std::uint32_t chunks = 0;
  };
  [[nodiscard]] usage used_by(domain_id owner) const noexcept {
    usage sum;
    for (std::uint32_t i = root; i < header_.node_next; ++i) {
      const store_node& n = state_.node(i);
      if (n.used != 0 && n.owner == owner) {
        ++sum.nodes;
        sum.chunks += chunks_for(static_cast<std::uint32_t>(n.value));
      }
    }
    return sum;
  }
  [[nodiscard]] usage left() const noexcept { return {header_.nodes_left, header_.chunks_left}; }
  [[nodiscard]] static std::uint32_t chunks_for(std::size_t bytes) noexcept {
    return static_cast<std::uint32_t>((bytes + store_chunk::bytes - 1) / store_chunk::bytes);
  }

  /// Creates the node and its parents as needed, and sets the value. Precondition: there is space
  /// for it. A new node has its parent's permissions; where `who` is not domain 0, `who` owns it.
  std::uint32_t write(std::string_view path, std::string_view text, domain_id who) noexcept {
    std::string_view missing;
    std::uint32_t at = deepest(path, missing);
    while (!missing.empty()) {
      at = add_child(at, take_name(missing), who);
    }
    std::uint32_t first = none;
    for (std::size_t end = text.size(); end != 0;) {
      const std::size_t begin = (end - 1) / store_chunk::bytes * store_chunk::bytes;
      const std::uint32_t chunk = take_chunk();
      state_.chunk(chunk).next = first;
      std::memcpy(state_.chunk(chunk).text.data(), text.data() + begin, end - begin);
      first = chunk;
      end = begin;
    }
    store_node& node = state_.node(at);
    const std::uint64_t old = node.value;
    shared(node.value).store(std::uint64_t{first} << 32 | text.size());
    node.version = ++header_.version;
    free_chunks(old);
    return at;
  }

  /// Removes a node other than the root with all below it.
  void remove(std::uint32_t gone) noexcept {
    store_node& parent = state_.node(state_.node(gone).parent);
    std::uint32_t* link = &parent.child;
    while (*link != gone) {
      link = &state_.node(*link).sibling;
    }
    shared(*link).store(state_.node(gone).sibling);
    parent.version = ++header_.version;
    free_subtree(gone);
  }

  void set_permissions(std::uint32_t at, const node_permissions& to) noexcept {
    store_node& node = state_.node(at);
    node.has_reader = 0;
    node.owner = to.owner;
    node.reader = to.reader.value_or(0);
    node.has_reader = to.reader ? 1 : 0;
    node.version = ++header_.version;
  }

  /// Finds the free space again after a process died while it changed the tree.
  void repair() {
    std::vector<bool> node_used(header_.node_next), chunk_used(header_.chunk_next);
    std::vector<std::uint32_t> todo{root};
    while (!todo.empty()) {
      const std::uint32_t at = todo.back();
      todo.pop_back();
      node_used[at] = true;
      const store_node& n = state_.node(at);
      std::uint32_t chunk = static_cast<std::uint32_t>(n.value >> 32);
      for (std::uint32_t i = chunks_for(static_cast<std::uint32_t>(n.value)); i != 0; --i) {
        chunk_used[chunk] = true;
        chunk = state_.chunk(chunk).next;
      }
      for (std::uint32_t c = n.child; c != none; c = state_.node(c).sibling) {
        todo.push_back(c);
      }
    }
    header_.node_free = header_.chunk_free = none;
    header_.nodes_left = state_.options().store_nodes + 1 - header_.node_next;
    header_.chunks_left = state_.chunks() + 1 - header_.chunk_next;
    for (std::uint32_t i = root; i < node_used.size(); ++i) {
      if (!node_used[i]) {
        give_node(i);
      }
    }
    for (std::uint32_t i = 1; i < chunk_used.size(); ++i) {
      if (!chunk_used[i]) {
        give_chunk(i);
      }
    }
  }

 private:
  [[nodiscard]] std::string_view name(std::uint32_t node) const noexcept {
    const store_node& n = state_.node(node);
    return {n.name.data(), n.name_length};
  }

  [[nodiscard]] std::uint32_t child(std::uint32_t of, std::string_view wanted) const noexcept {
    for (std::uint32_t c = state_.node(of).child; c != none; c = state_.node(c).sibling) {
      if (name(c) == wanted) {
        return c;
      }
    }
    return none;
  }

  std::uint32_t add_child(std::uint32_t parent, std::string_view wanted, domain_id who) noexcept {
    std::uint32_t fresh = header_.node_free;
    if (fresh != none) {
      header_.node_free = state_.node(fresh).sibling;
    } else {
      fresh = header_.node_next++;
    }
    --header_.nodes_left;
    store_node& n = state_.node(fresh);
    n = store_node{};
    n.parent = parent;
    n.used = 1;
    n.owner = who != 0 ? who : state_.node(parent).owner;
    n.reader = state_.node(parent).reader;
    n.has_reader = state_.node(parent).has_reader;
    n.name_length = static_cast<std::uint16_t>(wanted.size());
    std::copy(wanted.begin(), wanted.end(), n.name.begin());
    n.version = ++header_.version;
    // Kept in order, so that listing is the same whatever order the nodes were made in.
    std::uint32_t* link = &state_.node(parent).child;
    while (*link != none && name(*link) < wanted) {
      link = &state_.node(*link).sibling;
    }
    n.sibling = *link;
    shared(*link).store(fresh);
    state_.node(parent).version = n.version;
    return fresh;
  }

  [[nodiscard]] std::uint32_t take_chunk() noexcept {
    std::uint32_t fresh = header_.chunk_free;
    if (fresh != none) {
      header_.chunk_free = state_.chunk(fresh).next;
    } else {
      fresh = header_.chunk_next++;
    }
    --header_.chunks_left;
    return fresh;
  }

  void give_chunk(std::uint32_t chunk) noexcept {
    state_.chunk(chunk).next = header_.chunk_free;
    header_.chunk_free = chunk;
    ++header_.chunks_left;
  }

  void give_node(std::uint32_t node) noexcept {
    state_.node(node).used = 0;
    state_.node(node).sibling = header_.node_free;
    header_.node_free = node;
    ++header_.nodes_left;
  }

  void free_chunks(std::uint64_t value) noexcept {
    auto chunk = static_cast<std::uint32_t>(value >> 32);
    for (std::uint32_t i = chunks_for(static_cast<std::uint32_t>(value)); i != 0; --i) {
      const std::uint32_t next = state_.chunk(chunk).next;
      give_chunk(chunk);
      chunk = next;
    }
  }

  // As deep as paths are long, which is bounded.
  void free_subtree(std::uint32_t gone) noexcept {
    for (std::uint32_t c = state_.node(gone).child; c != none;) {
      const std::uint32_t next = state_.node(c).sibling;
      free_subtree(c);
      c = next;
    }
    free_chunks(state_.node(gone).value);
    give_node(gone);
  }

  const shared_state& state_;
  store_header& header_;
};

}  // namespace pvring::platform::detail
