// SPDX-License-Identifier: MIT
// What a grant handle has mapped: where, and how many pages. The kernel is no substitute: asked to
// unmap from the middle of a map, or a map of another handle, it unmaps something.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../address_table.hpp"
#include "../grant_mapper.hpp"

namespace pvring::platform::detail {

/// Address → pages.
class mapped_ranges {
 public:
  /// Room for `quota` pages. \throws std::bad_alloc
  explicit mapped_ranges(std::size_t quota) : quota_(quota), table_(quota) {}

  [[nodiscard]] std::size_t quota() const noexcept { return quota_; }
  [[nodiscard]] std::size_t pages() const noexcept { return pages_; }
  [[nodiscard]] std::size_t maps() const noexcept { return table_.size(); }

  /// Precondition: the pages fit the quota, and nothing is known at their address.
  void insert(mapping added) noexcept {
    table_.insert(added);
    pages_ += added.count;
  }

  /// Whether exactly this was mapped.
  [[nodiscard]] bool contains(mapping wanted) const noexcept {
    const mapping* const known = table_.find(wanted.address);
    return known != nullptr && known->count == wanted.count && wanted.count != 0;
  }

  /// Precondition: `contains(gone)`.
  void erase(mapping gone) noexcept {
    table_.erase(table_.find(gone.address));
    pages_ -= gone.count;
  }

  /// Forgets each, then calls `f(mapping)` for it; for closing.
  template <class F>
  void drain(F&& f) noexcept {
    table_.drain([&](const mapping* entry) {
      const mapping gone = *entry;
      erase(gone);
      f(gone);
    });
  }

 private:
  std::size_t quota_;
  std::size_t pages_ = 0;
  address_table<mapping> table_;
};

}  // namespace pvring::platform::detail
