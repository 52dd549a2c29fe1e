// SPDX-License-Identifier: MIT
// What a grant handle has mapped: where, and how many pages. Its size is fixed by the handle's
// quota, so that mapping and unmapping allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "../grant_mapper.hpp"

namespace pvring::platform::detail {

/// Address → pages, by open addressing with linear probing, at most half full. The kernel is no
/// substitute: asked to unmap from the middle of a map, or a map of another handle, it unmaps
/// something.
class mapped_ranges {
 public:
  explicit mapped_ranges(std::size_t quota) : quota_(quota) {
    std::size_t buckets = 2;
    while (buckets / 2 < quota) {
      buckets *= 2;
    }
    // calloc leaves large arrays untouched: a generous quota costs only what is used of it.
    entries_.reset(static_cast<mapping*>(std::calloc(buckets, sizeof(mapping))));
    if (!entries_) {
      throw std::bad_alloc();
    }
    mask_ = buckets - 1;
  }

  [[nodiscard]] std::size_t quota() const noexcept { return quota_; }
  [[nodiscard]] std::size_t pages() const noexcept { return pages_; }
  [[nodiscard]] std::size_t maps() const noexcept { return maps_; }

  /// Precondition: the pages fit the quota, and nothing is known at their address.
  void insert(mapping added) noexcept {
    std::size_t i = home(added.address);
    while (entries_[i]) {
      i = (i + 1) & mask_;
    }
    entries_[i] = added;
    pages_ += added.count;
    ++maps_;
  }

  /// Whether exactly this was mapped.
  [[nodiscard]] bool contains(mapping wanted) const noexcept {
    return wanted && entries_[find(wanted.address)].count == wanted.count && wanted.count != 0;
  }

  /// Precondition: `contains(gone)`.
  void erase(mapping gone) noexcept {
    std::size_t hole = find(gone.address);
    pages_ -= gone.count;
    --maps_;
    // Entries behind the hole move up, so that no search stops at it before they are found.
    for (std::size_t i = (hole + 1) & mask_; entries_[i]; i = (i + 1) & mask_) {
      if (((i - home(entries_[i].address)) & mask_) >= ((i - hole) & mask_)) {
        entries_[hole] = entries_[i];
        hole = i;
      }
    }
    entries_[hole] = {};
  }

  /// Calls `f(mapping)` for each; for closing.
  template <class F>
  void for_each(F&& f) const {
    for (std::size_t i = 0; maps_ != 0 && i <= mask_; ++i) {
      if (entries_[i]) {
        f(entries_[i]);
      }
    }
  }

 private:
  struct release {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };

  // Where `address` is, or the empty place at which its search ends.
  [[nodiscard]] std::size_t find(const std::byte* address) const noexcept {
    std::size_t i = home(address);
    while (entries_[i] && entries_[i].address != address) {
      i = (i + 1) & mask_;
    }
    return i;
  }
  [[nodiscard]] std::size_t home(const std::byte* address) const noexcept {
    const auto page = reinterpret_cast<std::uintptr_t>(address) / page_size;
    return static_cast<std::size_t>((page * 0x9e37'79b9'7f4a'7c15U) >> 20) & mask_;
  }

  std::size_t quota_;
  std::size_t mask_ = 0;
  std::size_t pages_ = 0;
  std::size_t maps_ = 0;
  std::unique_ptr<mapping[], release> entries_;
};

}  // namespace pvring::platform::detail
