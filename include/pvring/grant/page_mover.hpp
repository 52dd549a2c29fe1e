// SPDX-License-Identifier: MIT
// Moves bytes into pages that a peer posted to be filled, as a network guest's receive ring does:
// at once where the page is mapped, in one batch with all the others where it is not.
#pragma once

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "../base/config.hpp"
#include "../platform/grant_mapper.hpp"
#include "mapped_grants.hpp"
#include "strategy.hpp"

namespace pvring::grant {

template <class Fallback>
struct mapped_first;

/// What a mover is made for.
struct mover_options {
  domain_id domain = 0;
  std::size_t most = 256;  ///< pieces between two flushes
  /// Operations of a copy call; 0: as many as there are. Only to compare.
  std::size_t operations_per_call = 0;
};

namespace detail {
struct any_failure {
  void operator()(std::uint32_t /*owner*/) const noexcept {}
};
}  // namespace detail

/// A mover. One thread uses it; nothing allocates.
///
/// - `move(from, to, owner)`: `to.length` bytes at `from` go to `to`, now or in `flush`; true: they
///   are there. Else they stay as they are until then. `owner` is the caller's mark. \pre at most
///   `most` since the last flush
/// - `flush(f)`: everything has been moved when it returns, but what belongs to the owners that
///   `f(owner)` was called with, once or more.
/// - `pending()`: whether a flush would do anything.
template <class M>
concept page_mover = requires(M& m, const std::byte* from, const piece& to, std::uint32_t owner,
                              detail::any_failure on_failure) {
  { m.move(from, to, owner) } noexcept -> std::same_as<bool>;
  { m.flush(on_failure) } noexcept -> std::same_as<void>;
  { m.pending() } noexcept -> std::same_as<bool>;
  { m.counters() } noexcept -> std::same_as<const counters&>;
};

/// One copy call for everything between two flushes. An operation lies in one page of each side, so
/// a piece that crosses a local page costs two.
template <platform::grant_mapper Mapper>
class copy_mover {
 public:
  copy_mover(Mapper& mapper, const mover_options& options)
      : mapper_(mapper),
        domain_(options.domain),
        per_call_(options.operations_per_call != 0 ? options.operations_per_call
                                                   : options.most * 2) {
    operations_.reserve(options.most * 2);
  }

  [[nodiscard]] bool move(const std::byte* from, const piece& to, std::uint32_t owner) noexcept {
    // The operation's other direction writes there, so the type has no const; this one only reads.
    auto* local = const_cast<std::byte*>(from);  // NOLINT(*-const-cast)
    const std::size_t room =
        platform::page_size - reinterpret_cast<std::uintptr_t>(local) %
                                  platform::page_size;  // NOLINT(*-reinterpret-cast)
    assert(operations_.size() + 2 <= operations_.capacity());
    if (to.length <= room) [[likely]] {
      operations_.push_back({.local = local,
                             .reference = to.reference,
                             .offset = to.offset,
                             .length = to.length,
                             .owner = owner});
      return false;
    }
    const auto first = static_cast<std::uint16_t>(room);
    operations_.push_back({.local = local,
                           .reference = to.reference,
                           .offset = to.offset,
                           .length = first,
                           .owner = owner});
    operations_.push_back({.local = local + first,
                           .reference = to.reference,
                           .offset = static_cast<std::uint16_t>(to.offset + first),
                           .length = static_cast<std::uint16_t>(to.length - first),
                           .owner = owner});
    return false;
  }

  template <class F>
  void flush(F&& failed) noexcept {
    const std::span<platform::copy_operation> all(operations_);
    for (std::size_t at = 0; at < all.size(); at += per_call_) {
      run(all.subspan(at, std::min(per_call_, all.size() - at)), failed);
    }
    operations_.clear();
  }

  [[nodiscard]] bool pending() const noexcept { return !operations_.empty(); }
  [[nodiscard]] const grant::counters& counters() const noexcept { return counters_; }

 protected:
  grant::counters counters_;

 private:
  template <class F>
  void run(std::span<platform::copy_operation> operations, F& failed) noexcept {
    if (call(operations) != 0) [[unlikely]] {
      counters_.failures.add();
      if (operations.size() == 1) {
        failed(operations[0].owner);
        return;
      }
      // Nothing is known to be copied. Copies are idempotent, so each operation has a call of its
      // own, and only the culprit fails.
      for (platform::copy_operation& one : operations) {
        run({&one, 1}, failed);
      }
      return;
    }
    for (const platform::copy_operation& one : operations) {
      if (one.status != platform::grant_status::okay) [[unlikely]] {
        failed(one.owner);
      }
    }
  }

  int call(std::span<platform::copy_operation> operations) noexcept {
    counters_.calls.add();
    counters_.operations.add(operations.size());
    return mapper_.copy(domain_, platform::direction::to_peer, operations);
  }

  Mapper& mapper_;
  domain_id domain_;
  std::size_t per_call_;
  std::vector<platform::copy_operation> operations_;
};

/// For a platform without copy, or where mapping is asked for: maps the pages, fills them, and
/// unmaps them again. Pieces of one flush are mapped together, up to as many as a packet has.
template <platform::grant_mapper Mapper>
class map_mover {
 public:
  map_mover(Mapper& mapper, const mover_options& options)
      : mapper_(mapper), domain_(options.domain) {
    pieces_.reserve(options.most);
  }

  [[nodiscard]] bool move(const std::byte* from, const piece& to, std::uint32_t owner) noexcept {
    assert(pieces_.size() < pieces_.capacity());
    pieces_.push_back({from, to, owner});
    return false;
  }

  template <class F>
  void flush(F&& failed) noexcept {
    const std::span<const waiting> all(pieces_);
    for (std::size_t at = 0; at < all.size(); at += group) {
      run(all.subspan(at, std::min(group, all.size() - at)), failed);
    }
    pieces_.clear();
  }

  [[nodiscard]] bool pending() const noexcept { return !pieces_.empty(); }
  [[nodiscard]] const grant::counters& counters() const noexcept { return counters_; }

 private:
  static constexpr std::size_t group = 19;
  struct waiting {
    const std::byte* from;
    piece to;
    std::uint32_t owner;
  };

  template <class F>
  void run(std::span<const waiting> some, F& failed) noexcept {
    platform::grant_reference references[group];
    for (std::size_t i = 0; i < some.size(); ++i) {
      references[i] = some[i].to.reference;
    }
    counters_.calls.add();
    const platform::map_result result =
        mapper_.map(domain_, {references, some.size()}, platform::access::read_write);
    if (!result.pages) [[unlikely]] {
      counters_.failures.add();
      if (some.size() == 1) {
        failed(some[0].owner);
        return;
      }
      for (const waiting& one : some) {  // one of them is bad; the others are not
        run({&one, 1}, failed);
      }
      return;
    }
    counters_.operations.add(some.size() * 2);
    counters_.calls.add();
    for (std::size_t i = 0; i < some.size(); ++i) {
      std::memcpy(result.pages.address + i * platform::page_size + some[i].to.offset, some[i].from,
                  some[i].to.length);
    }
    if (mapper_.unmap(result.pages) != 0) [[unlikely]] {
      // The peer would find its pages still mapped: no success, though the bytes are there.
      counters_.failures.add();
      for (const waiting& one : some) {
        failed(one.owner);
      }
    }
  }

  Mapper& mapper_;
  domain_id domain_;
  std::vector<waiting> pieces_;
  grant::counters counters_;
};

/// Pages that the peer asked to be kept mapped are filled at once; the others are `Base`'s.
template <class Base, platform::grant_mapper Mapper>
class mapped_mover : public Base {
 public:
  /// `table` outlives it.
  mapped_mover(Mapper& mapper, const mover_options& options, mapped_grants<Mapper>& table)
      : Base(mapper, options), table_(table) {}

  [[nodiscard]] bool move(const std::byte* from, const piece& to, std::uint32_t owner) noexcept {
    if (!table_.empty()) {
      if (const auto* page = table_.find(to.reference, true)) {
        hits_.add();
        std::memcpy(page->address + to.offset, from, to.length);
        return true;
      }
      misses_.add();
    }
    return Base::move(from, to, owner);
  }

  /// Whether there are pages that are filled at once.
  [[nodiscard]] bool immediate() const noexcept { return !table_.empty(); }
  /// Pieces that found their page mapped, and that did not while there were any.
  [[nodiscard]] const counter& hits() const noexcept { return hits_; }
  [[nodiscard]] const counter& misses() const noexcept { return misses_; }

 private:
  mapped_grants<Mapper>& table_;
  counter hits_;
  counter misses_;
};

namespace detail {
template <class Strategy, class Mapper>
struct mover_of {
  using type = copy_mover<Mapper>;
};
template <class Mapper>
struct mover_of<map_each, Mapper> {
  using type = map_mover<Mapper>;
};
template <class Mapper>
struct mover_of<persistent_pool, Mapper> {
  using type = map_mover<Mapper>;
};
template <class Fallback, class Mapper>
struct mover_of<mapped_first<Fallback>, Mapper> {
  using type = mapped_mover<typename mover_of<Fallback, Mapper>::type, Mapper>;
};
template <class Strategy, class Mapper>
  requires requires { typename Strategy::template mover<Mapper>; }
struct mover_of<Strategy, Mapper> {
  using type = typename Strategy::template mover<Mapper>;
};
}  // namespace detail

/// The mover that goes with a strategy; a strategy of one's own may name it as `mover<Mapper>`.
template <class Strategy, platform::grant_mapper Mapper>
using mover_for = typename detail::mover_of<Strategy, Mapper>::type;

/// That mover for a bound strategy of `Strategy`.
template <class Strategy, platform::grant_mapper Mapper>
[[nodiscard]] mover_for<Strategy, Mapper> make_mover(
    Mapper& mapper, const mover_options& options, typename Strategy::template bind<Mapper>& bound) {
  if constexpr (requires { bound.table(); }) {
    return {mapper, options, bound.table()};
  } else {
    return {mapper, options};
  }
}

}  // namespace pvring::grant
