// SPDX-License-Identifier: MIT
// Pages that the peer asked to be kept mapped, by reference: what it adds is mapped until it says
// otherwise, and whoever moves bytes looks here first. The network protocol's control ring fills
// it.
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "../base/counter.hpp"
#include "../platform/grant_mapper.hpp"

namespace pvring::grant {

/// One page that is added or removed.
struct mapped_entry {
  platform::grant_reference reference = 0;
  bool read_only = false;  ///< adding: the peer granted it for reading only
  bool done = false;       ///< out: whether it is mapped now (adding), or not any more (removing)
};

/// What another thread asks the one that uses a table to do. It lives until `finished` is called.
struct mapping_order {
  bool add = false;
  std::span<mapped_entry> entries;
  bool okay = false;      ///< out: adding: all of them were mapped; removing: true
  std::size_t count = 0;  ///< out: entries that are `done`
  /// Called by the thread that did it, as its last act on the order.
  void (*finished)(mapping_order& order) noexcept = nullptr;
  void* who = nullptr;  ///< the caller's own
};

/// Counted by a table; any thread may read.
struct mapped_grants_counters {
  counter calls;  ///< map and unmap calls
  counter added;
  counter removed;
  counter refused;  ///< entries that could not be added or removed
};

/// One thread uses it. Nothing allocates after construction.
///
/// Each page is mapped by a call of its own, as a mapping dies whole and the peer takes pages back
/// one by one. A page that somebody uses stays: its removal is refused, and may be asked for again.
template <platform::grant_mapper Mapper>
class mapped_grants {
 public:
  struct page {
    std::byte* address = nullptr;
    platform::grant_reference reference = 0;
    std::uint32_t users = 0;
    bool writable = false;
  };

  /// \param capacity pages; 0: the peer is not offered any
  mapped_grants(Mapper& mapper, domain_id domain, std::uint32_t capacity)
      : mapper_(mapper),
        domain_(domain),
        pages_(capacity),
        index_(std::bit_ceil(std::max<std::size_t>(std::size_t{capacity} * 2, 2)), none) {
    free_.reserve(capacity);
    for (std::uint32_t i = capacity; i-- != 0;) {
      free_.push_back(i);
    }
  }
  mapped_grants(const mapped_grants&) = delete;
  mapped_grants& operator=(const mapped_grants&) = delete;
  ~mapped_grants() { clear(); }

  [[nodiscard]] std::uint32_t capacity() const noexcept {
    return static_cast<std::uint32_t>(pages_.size());
  }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  /// Maps all of them, or none: false where one is there already or twice in the list, cannot be
  /// mapped, or finds no room. Never more calls than entries.
  [[nodiscard]] bool add(std::span<mapped_entry> entries) noexcept {
    std::size_t added = 0;
    while (added < entries.size() && add_one(entries[added])) {
      ++added;
    }
    if (added == entries.size()) {
      counters_.added.add(added);
      return true;
    }
    counters_.refused.add(entries.size());
    for (mapped_entry& e : entries.first(added)) {
      (void)remove_one(e.reference);
      e.done = false;
    }
    return false;
  }

  /// Unmaps those that are there and that nobody uses; returns how many.
  std::size_t remove(std::span<mapped_entry> entries) noexcept {
    std::size_t removed = 0;
    for (mapped_entry& e : entries) {
      e.done = remove_one(e.reference);
      removed += e.done ? 1 : 0;
    }
    counters_.removed.add(removed);
    counters_.refused.add(entries.size() - removed);
    return removed;
  }

  /// Does as ordered. `finished` is the caller's to call.
  void perform(mapping_order& order) noexcept {
    if (order.add) {
      order.okay = add(order.entries);
      order.count = order.okay ? order.entries.size() : 0;
    } else {
      order.count = remove(order.entries);
      order.okay = true;
    }
  }

  /// The page of that reference, or null. \param store it must be writable
  [[nodiscard]] page* find(platform::grant_reference reference, bool store) noexcept {
    for (std::size_t at = home(reference);; at = next(at)) {
      if (index_[at] == none) {
        return nullptr;
      }
      page& p = pages_[index_[at]];
      if (p.reference == reference) {
        return !store || p.writable ? &p : nullptr;
      }
    }
  }

  /// Keeps a page from being removed until `let_go`.
  void use(page& p) noexcept { ++p.users; }
  void let_go(page& p) noexcept {
    assert(p.users != 0);
    --p.users;
  }
  [[nodiscard]] std::uint32_t number_of(const page& p) const noexcept {
    return static_cast<std::uint32_t>(&p - pages_.data());
  }
  [[nodiscard]] page& at(std::uint32_t number) noexcept { return pages_[number]; }

  /// Unmaps everything. \pre nobody uses a page
  void clear() noexcept {
    for (std::uint32_t& number : index_) {
      if (number != none) {
        unmap(pages_[number]);
        free_.push_back(number);
        number = none;
      }
    }
    size_ = 0;
  }

  [[nodiscard]] const mapped_grants_counters& counters() const noexcept { return counters_; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  // Open addressing, at most half full. References are small and dense; a multiplication spreads
  // those of one list over all places.
  [[nodiscard]] std::size_t home(platform::grant_reference reference) const noexcept {
    return static_cast<std::size_t>(reference * 0x9e3779b97f4a7c15ULL >> 32U) & (index_.size() - 1);
  }
  [[nodiscard]] std::size_t next(std::size_t at) const noexcept {
    return (at + 1) & (index_.size() - 1);
  }

  bool add_one(mapped_entry& e) noexcept {
    e.done = false;
    if (free_.empty() || find(e.reference, false) != nullptr) {
      return false;
    }
    counters_.calls.add();
    const platform::map_result result =
        mapper_.map(domain_, {&e.reference, 1},
                    e.read_only ? platform::access::read_only : platform::access::read_write);
    if (!result.pages) {
      return false;
    }
    const std::uint32_t number = free_.back();
    free_.pop_back();
    pages_[number] = {result.pages.address, e.reference, 0, !e.read_only};
    std::size_t at = home(e.reference);
    while (index_[at] != none) {
      at = next(at);
    }
    index_[at] = number;
    ++size_;
    e.done = true;
    return true;
  }

  bool remove_one(platform::grant_reference reference) noexcept {
    std::size_t at = home(reference);
    while (index_[at] != none && pages_[index_[at]].reference != reference) {
      at = next(at);
    }
    if (index_[at] == none || pages_[index_[at]].users != 0) {
      return false;
    }
    unmap(pages_[index_[at]]);
    free_.push_back(index_[at]);
    --size_;
    // What lies behind it moves up where its search would else end at the gap.
    std::size_t gap = at;
    for (std::size_t look = next(gap); index_[look] != none; look = next(look)) {
      const std::size_t wanted = home(pages_[index_[look]].reference);
      if (((look - wanted) & (index_.size() - 1)) >= ((look - gap) & (index_.size() - 1))) {
        index_[gap] = index_[look];
        gap = look;
      }
    }
    index_[gap] = none;
    return true;
  }

  void unmap(const page& p) noexcept {
    counters_.calls.add();
    (void)mapper_.unmap({p.address, 1});
  }

  Mapper& mapper_;
  domain_id domain_;
  std::uint32_t size_ = 0;
  std::vector<page> pages_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> index_;
  mapped_grants_counters counters_;
};

}  // namespace pvring::grant
