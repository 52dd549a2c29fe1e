// SPDX-License-Identifier: MIT
// What a grant handle has mapped: found by address, with the references behind it. Its size is
// fixed by the handle's quota, so that mapping and unmapping allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "../address_table.hpp"
#include "../grant_mapper.hpp"

namespace pvring::platform::detail {

/// Address → pages and references.
class mapping_table {
 public:
  struct entry {
    std::byte* address;
    std::uint32_t count;
    std::uint32_t domain;     ///< slot of the granting domain
    std::uint32_t reference;  ///< head of the chain of references
  };

  /// Room for `quota` pages. \throws std::bad_alloc
  explicit mapping_table(std::size_t quota)
      : quota_(quota), table_(quota), links_(make_zeroed<link>(quota + 1)) {}

  [[nodiscard]] std::size_t quota() const noexcept { return quota_; }
  [[nodiscard]] std::size_t pages() const noexcept { return pages_; }
  [[nodiscard]] std::size_t maps() const noexcept { return table_.size(); }

  /// Precondition: `references` fit the quota, and `address` is not in the table.
  void insert(std::byte* address, std::uint32_t domain,
              std::span<const grant_reference> references) noexcept {
    std::uint32_t head = 0;
    for (const grant_reference r : references) {
      std::uint32_t at = free_;
      if (at != 0) {
        free_ = links_[at].next;
      } else {
        at = ++used_;
      }
      links_[at] = {r, head};
      head = at;
    }
    table_.insert({address, static_cast<std::uint32_t>(references.size()), domain, head});
    pages_ += references.size();
  }

  /// The map that begins at `address`, or null.
  [[nodiscard]] const entry* find(const std::byte* address) const noexcept {
    return table_.find(address);
  }

  /// Calls `f(reference)` for each of the map's pages and forgets it.
  template <class F>
  void erase(const entry* gone, F&& f) noexcept {
    std::uint32_t last = 0;
    for (std::uint32_t at = gone->reference; at != 0; at = links_[at].next) {
      f(links_[at].reference);
      last = at;
    }
    links_[last].next = free_;
    free_ = gone->reference;
    pages_ -= gone->count;
    table_.erase(gone);
  }

  /// Calls `f(const entry*)`, which erases it, until none is left.
  template <class F>
  void drain(F&& f) noexcept {
    table_.drain(f);
  }

 private:
  struct link {
    grant_reference reference;
    std::uint32_t next;
  };

  std::size_t quota_;
  std::size_t pages_ = 0;
  address_table<entry> table_;
  zeroed_array<link> links_;
  std::uint32_t used_ = 0;
  std::uint32_t free_ = 0;
};

}  // namespace pvring::platform::detail
