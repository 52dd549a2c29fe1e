// SPDX-License-Identifier: MIT
// What a grant handle has mapped: found by address, with the references behind it. Its size is
// fixed by the handle's quota, so that mapping and unmapping allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

#include "../grant_mapper.hpp"

namespace pvring::platform::detail {

/// Address → pages and references, by open addressing with linear probing; look-ups are O(1) at
/// half load.
class mapping_table {
 public:
  struct entry {
    std::byte* address;
    std::uint32_t count;
    std::uint32_t domain;     ///< slot of the granting domain
    std::uint32_t reference;  ///< head of the chain of references
  };

  /// Room for `quota` pages.
  explicit mapping_table(std::size_t quota) : quota_(quota) {
    std::size_t buckets = 2;
    while (buckets < quota * 2) {
      buckets *= 2;
    }
    entries_ = zeroed<entry>(buckets);
    links_ = zeroed<link>(quota + 1);
    mask_ = buckets - 1;
  }

  [[nodiscard]] std::size_t quota() const noexcept { return quota_; }
  [[nodiscard]] std::size_t pages() const noexcept { return pages_; }
  [[nodiscard]] std::size_t maps() const noexcept { return maps_; }

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
    std::size_t i = home(address);
    while (entries_[i].address != nullptr) {
      i = (i + 1) & mask_;
    }
    entries_[i] = {address, static_cast<std::uint32_t>(references.size()), domain, head};
    pages_ += references.size();
    ++maps_;
  }

  /// The map that begins at `address`, or null.
  [[nodiscard]] const entry* find(const std::byte* address) const noexcept {
    if (address == nullptr) {
      return nullptr;
    }
    for (std::size_t i = home(address); entries_[i].address != nullptr; i = (i + 1) & mask_) {
      if (entries_[i].address == address) {
        return &entries_[i];
      }
    }
    return nullptr;
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
    --maps_;
    // Entries behind the hole move up, so that no search stops at it before they are found.
    auto hole = static_cast<std::size_t>(gone - entries_.get());
    for (std::size_t i = (hole + 1) & mask_; entries_[i].address != nullptr; i = (i + 1) & mask_) {
      if (((i - home(entries_[i].address)) & mask_) >= ((i - hole) & mask_)) {
        entries_[hole] = entries_[i];
        hole = i;
      }
    }
    entries_[hole].address = nullptr;
  }

  /// Any map, or null when there is none. Linear: for closing.
  [[nodiscard]] const entry* any() const noexcept {
    for (std::size_t i = 0; maps_ != 0 && i <= mask_; ++i) {
      if (entries_[i].address != nullptr) {
        return &entries_[i];
      }
    }
    return nullptr;
  }

 private:
  struct link {
    grant_reference reference;
    std::uint32_t next;
  };
  struct release {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  template <class T>
  using array = std::unique_ptr<T[], release>;

  // calloc leaves large arrays untouched, so that a handle with a generous quota costs only what it
  // uses.
  template <class T>
  static array<T> zeroed(std::size_t n) {
    void* memory = std::calloc(n, sizeof(T));
    if (memory == nullptr) {
      throw std::bad_alloc();
    }
    return array<T>(static_cast<T*>(memory));
  }

  [[nodiscard]] std::size_t home(const std::byte* address) const noexcept {
    const auto page = reinterpret_cast<std::uintptr_t>(address) / page_size;
    return static_cast<std::size_t>((page * 0x9e37'79b9'7f4a'7c15U) >> 20) & mask_;
  }

  std::size_t quota_;
  std::size_t mask_ = 0;
  std::size_t pages_ = 0;
  std::size_t maps_ = 0;
  std::uint32_t used_ = 0;
  std::uint32_t free_ = 0;
  array<entry> entries_;
  array<link> links_;
};

}  // namespace pvring::platform::detail
