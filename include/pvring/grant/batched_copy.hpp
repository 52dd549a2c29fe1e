// SPDX-License-Identifier: MIT
// Grant copy, batched across requests: one call per pass brings in what all writes carry, one call
// takes out what all reads have read. Bytes are private while the engine has them.
#pragma once

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "arena.hpp"
#include "strategy.hpp"

namespace pvring::grant {

/// The strategy where the platform offers grant copy.
struct batched_copy {
  using policy_kind = pvring::policy_kind::grants;
  static constexpr std::string_view name = "batched_copy";
  static constexpr bool needs_frontend = false;

  [[nodiscard]] static constexpr bool usable(const circumstances& known) noexcept {
    return known.has_copy;
  }

  template <platform::grant_mapper Mapper>
  class bind;
};

/// Buffers are page-congruent where the engine can scatter: every piece lies at its own offset in a
/// page of its own, so that no operation crosses a local page, and pieces that fill their pages
/// still merge into one buffer. Where it cannot, a request is packed into one run, and operations
/// are split at page ends.
template <platform::grant_mapper Mapper>
class batched_copy::bind : public detail::strategy_base {
 public:
  static constexpr bool mapped = false;

  /// \throws std::system_error when there is no memory for the buffers
  bind(Mapper& mapper, const strategy_options& options)
      : mapper_(mapper),
        domain_(options.domain),
        scatter_(options.scatter),
        arena_(pages_for(options)),
        // A packed piece may straddle two local pages, so each can cost two operations.
        limit_(std::max<std::size_t>(std::size_t{options.max_pieces} * 2, least_operations)) {
    operations_.reserve(limit_);
    batch_.reserve(options.max_leases);
  }

  /// Where all buffers lie, for engines that can prepare that.
  [[nodiscard]] std::span<std::byte> buffers() const noexcept { return arena_.region(); }

  [[nodiscard]] acquired acquire(lease_state& lease) noexcept {
    if (!(scatter_ ? place_congruent(lease) : place_packed(lease))) {
      counters_.waits.add();
      return acquired::wait;
    }
    ++leases_;
    if (lease.direction == platform::direction::to_peer) {
      return acquired::ready;  // a read: there is nothing to bring in
    }
    add(lease, platform::direction::from_peer);
    queued_.push_back(lease);
    return acquired::queued;
  }

  template <class F>
  void finish_acquires(F&& each) noexcept {
    assert((queued_.empty() || queued_.front().direction == platform::direction::from_peer) &&
           "releases end before acquires begin");
    run(platform::direction::from_peer);
    drain(each);
  }

  template <class F>
  void release(lease_state& lease, bool ok, F&& each) noexcept {
    if (ok && lease.error == 0 && lease.direction == platform::direction::to_peer) {
      add(lease, platform::direction::to_peer);
      queued_.push_back(lease);
    } else {
      free(lease);
      prove(lease, each);
    }
  }

  template <class F>
  void finish_releases(F&& each) noexcept {
    run(platform::direction::to_peer);
    while (!queued_.empty()) {
      lease_state& lease = queued_.front();
      queued_.pop_front();
      free(lease);
      prove(lease, each);
    }
  }

  [[nodiscard]] std::uint64_t trim(std::uint64_t /*now*/) noexcept { return 0; }
  void clear() noexcept {}
  [[nodiscard]] std::uint32_t leases() const noexcept { return leases_; }

 private:
  // Two calls of a platform that carries 1024 pieces, at most; a queue of 32 single pages never
  // gets there.
  static constexpr std::size_t least_operations = 512;

  static std::uint32_t pages_for(const strategy_options& options) noexcept {
    const std::size_t least = std::size_t{options.max_pieces} + 1;
    const std::size_t asked =
        options.budget_bytes != 0
            ? options.budget_bytes / platform::page_size
            : std::max<std::size_t>(std::size_t{options.max_leases} * 11, 512);
    return static_cast<std::uint32_t>(std::max(asked, least));
  }

  bool place_congruent(lease_state& lease) noexcept {
    const auto count = static_cast<std::uint32_t>(lease.pieces.size());
    if (count > arena_.runs().free_units()) {
      return false;
    }
    // One run where there is one; else what there is, in halves: enough units are free, so this
    // ends.
    std::uint32_t placed = 0;
    std::uint32_t want = count;
    while (placed < count) {
      want = std::min(want, count - placed);
      if (const auto first = arena_.runs().take(want)) {
        for (std::uint32_t i = 0; i < want; ++i) {
          lease.pieces[placed + i].mark = *first + i;
        }
        placed += want;
      } else {
        want = (want + 1) / 2;
      }
    }
    for (piece& part : lease.pieces) {
      lease.append(arena_.page(part.mark) + part.offset, part.length);
    }
    return true;
  }

  bool place_packed(lease_state& lease) noexcept {
    std::size_t bytes = 0;
    for (const piece& part : lease.pieces) {
      bytes += part.length;
    }
    const auto pages =
        static_cast<std::uint32_t>((bytes + platform::page_size - 1) / platform::page_size);
    const auto first = arena_.runs().take(pages);
    if (!first) {
      return false;
    }
    lease.first = *first;
    lease.pages.count = pages;
    lease.append(arena_.page(*first), bytes);
    return true;
  }

  void free(lease_state& lease) noexcept {
    if (!scatter_) {
      arena_.runs().give_back(lease.first, lease.pages.count);
    } else {
      // Pages of one run are given back together.
      std::size_t start = 0;
      for (std::size_t i = 1; i <= lease.pieces.size(); ++i) {
        if (i == lease.pieces.size() || lease.pieces[i].mark != lease.pieces[i - 1].mark + 1) {
          arena_.runs().give_back(lease.pieces[start].mark, static_cast<std::uint32_t>(i - start));
          start = i;
        }
      }
    }
    --leases_;
  }

  // Adds the operations of one request; runs those collected before where there is no room for all
  // of them, so that a request's operations are always in one call.
  void add(lease_state& lease, platform::direction way) noexcept {
    if (operations_.size() + lease.pieces.size() * (scatter_ ? 1 : 2) > limit_) {
      run(way);
    }
    const auto owner = static_cast<std::uint32_t>(batch_.size());
    batch_.push_back(&lease);
    if (scatter_) {
      for (const piece& part : lease.pieces) {
        operations_.push_back({.local = arena_.page(part.mark) + part.offset,
                               .reference = part.reference,
                               .offset = part.offset,
                               .length = part.length,
                               .owner = owner});
      }
      return;
    }
    std::byte* local = arena_.page(lease.first);
    std::size_t room = platform::page_size;
    for (const piece& part : lease.pieces) {
      std::uint16_t offset = part.offset;
      for (std::uint16_t left = part.length; left != 0;) {
        const auto length = static_cast<std::uint16_t>(std::min<std::size_t>(left, room));
        operations_.push_back({.local = local,
                               .reference = part.reference,
                               .offset = offset,
                               .length = length,
                               .owner = owner});
        local += length;
        offset = static_cast<std::uint16_t>(offset + length);
        left = static_cast<std::uint16_t>(left - length);
        room = room == length ? platform::page_size : room - length;
      }
    }
  }

  void run(platform::direction way) noexcept {
    if (operations_.empty()) {
      return;
    }
    if (call(way, operations_) != 0 && batch_.size() > 1) {
      // Nothing is known to be copied. Copies are idempotent, so each request has a call of its
      // own, and only the culprit's fails.
      counters_.failures.add();
      for (std::size_t start = 0; start < operations_.size();) {
        std::size_t end = start + 1;
        while (end < operations_.size() && operations_[end].owner == operations_[start].owner) {
          ++end;
        }
        const std::span<platform::copy_operation> own{&operations_[start], end - start};
        if (call(way, own) != 0) {
          counters_.failures.add();
          batch_[operations_[start].owner]->error = -EIO;
        }
        start = end;
      }
    } else if (batch_.size() == 1 && failed_) {
      counters_.failures.add();
      batch_.front()->error = -EIO;
    }
    operations_.clear();
    batch_.clear();
  }

  // One call; statuses go to their requests. A failed call has no statuses worth a look.
  int call(platform::direction way, std::span<platform::copy_operation> operations) noexcept {
    counters_.calls.add();
    counters_.operations.add(operations.size());
    const int error = mapper_.copy(domain_, way, operations);
    failed_ = error != 0;
    if (error == 0) {
      for (const platform::copy_operation& operation : operations) {
        if (operation.status != platform::grant_status::okay) [[unlikely]] {
          batch_[operation.owner]->error = -EIO;
        }
      }
    }
    return error;
  }

  template <class F>
  void drain(F&& each) noexcept {
    while (!queued_.empty()) {
      lease_state& lease = queued_.front();
      queued_.pop_front();
      each(lease);
    }
  }

  Mapper& mapper_;
  domain_id domain_;
  bool scatter_;
  bool failed_ = false;
  std::uint32_t leases_ = 0;
  arena arena_;
  std::size_t limit_;
  std::vector<platform::copy_operation> operations_;
  std::vector<lease_state*> batch_;
  lease_list queued_;
};

}  // namespace pvring::grant
