// SPDX-License-Identifier: MIT
// A table from a mapping's address to what its grant handle knows of it. Its size is fixed when it
// is made, so that mapping and unmapping allocate nothing.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

#include "grant_mapper.hpp"

namespace pvring::platform::detail {

struct zeroed_release {
  void operator()(void* memory) const noexcept { std::free(memory); }
};
template <class T>
using zeroed_array = std::unique_ptr<T[], zeroed_release>;

/// `n` zeroed objects. calloc leaves large arrays untouched, so that a handle with a generous quota
/// costs only what it uses. \throws std::bad_alloc
template <class T>
  requires std::is_trivially_destructible_v<T>
[[nodiscard]] zeroed_array<T> make_zeroed(std::size_t n) {
  void* memory = std::calloc(n, sizeof(T));
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return zeroed_array<T>(static_cast<T*>(memory));
}

/// Open addressing with linear probing, at most half full. \tparam Entry trivial, all zero where
/// empty, with a page's `address` as its key.
template <class Entry>
  requires std::same_as<decltype(Entry::address), std::byte*>
class address_table {
 public:
  /// \throws std::bad_alloc
  explicit address_table(std::size_t entries) {
    std::size_t places = 2;
    while (places / 2 < entries) {
      places *= 2;
    }
    places_ = make_zeroed<Entry>(places);
    mask_ = places - 1;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Precondition: there is room, and nothing is known at its address.
  void insert(const Entry& added) noexcept {
    std::size_t i = home(added.address);
    while (places_[i].address != nullptr) {
      i = (i + 1) & mask_;
    }
    places_[i] = added;
    ++size_;
  }

  /// The entry of `address`, or null.
  [[nodiscard]] const Entry* find(const std::byte* address) const noexcept {
    if (address == nullptr) {
      return nullptr;
    }
    for (std::size_t i = home(address); places_[i].address != nullptr; i = (i + 1) & mask_) {
      if (places_[i].address == address) {
        return &places_[i];
      }
    }
    return nullptr;
  }

  /// Precondition: `gone` is an entry of this table.
  void erase(const Entry* gone) noexcept {
    --size_;
    auto hole = static_cast<std::size_t>(gone - places_.get());
    // Entries behind the hole move up, so that no search stops at it before they are found.
    for (std::size_t i = (hole + 1) & mask_; places_[i].address != nullptr; i = (i + 1) & mask_) {
      if (((i - home(places_[i].address)) & mask_) >= ((i - hole) & mask_)) {
        places_[hole] = places_[i];
        hole = i;
      }
    }
    places_[hole] = {};
  }

  /// Calls `f(const Entry*)`, which erases it, until none is left.
  template <class F>
  void drain(F&& f) noexcept {
    // What erasing moves comes from further on, so nothing lands behind this scan.
    for (std::size_t i = 0; size_ != 0; ++i) {
      while (places_[i].address != nullptr) {
        f(static_cast<const Entry*>(&places_[i]));
      }
    }
  }

 private:
  [[nodiscard]] std::size_t home(const std::byte* address) const noexcept {
    const auto page = reinterpret_cast<std::uintptr_t>(address) / page_size;
    return static_cast<std::size_t>((page * 0x9e37'79b9'7f4a'7c15U) >> 20) & mask_;
  }

  std::size_t mask_ = 0;
  std::size_t size_ = 0;
  zeroed_array<Entry> places_;
};

}  // namespace pvring::platform::detail
