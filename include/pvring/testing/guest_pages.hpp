// SPDX-License-Identifier: MIT
// The data pages of one frontend queue: granted for one request, or granted once and used again. It
// knows when a grant has to be over, and says so when it is not.
#pragma once

#include <cerrno>
#include <cstddef>
#include <optional>
#include <system_error>
#include <vector>

#include "../platform/emulated/guest.hpp"
#include "../platform/grant_mapper.hpp"

namespace pvring::testing {

/// A page of the guest that a backend may use.
struct granted_page {
  std::byte* address = nullptr;
  platform::grant_reference reference = 0;  ///< 0: not granted
};

/// One thread uses it.
///
/// Persistent, it does what Linux does: what the backend still has mapped when it answers stays
/// granted and is used first, the last one given back before all others; a page that the backend
/// has let go of is granted anew when it is used again.
class guest_pages {
 public:
  /// The guest outlives it.
  guest_pages(platform::emulated_guest& guest, domain_id backend) noexcept
      : guest_(guest), backend_(backend) {}
  guest_pages(const guest_pages&) = delete;
  guest_pages& operator=(const guest_pages&) = delete;
  // NOLINTNEXTLINE(bugprone-exception-escape): a lost lock of the emulated host ends the process
  ~guest_pages() { (void)clear(); }

  /// \pre no page is out
  void set_persistent(bool persistent) noexcept { persistent_ = persistent; }
  [[nodiscard]] bool persistent() const noexcept { return persistent_; }

  /// A granted page, or nothing when the guest has none left. A persistent one can always be
  /// written by the backend.
  [[nodiscard]] std::optional<granted_page> take(platform::access how) {
    if (!granted_.empty()) {
      const granted_page page = granted_.back();
      granted_.pop_back();
      return page;
    }
    try {
      granted_page page;
      if (bare_.empty()) {
        page.address = guest_.allocate_pages();
      } else {
        page.address = bare_.back();
        bare_.pop_back();
      }
      try {
        page.reference =
            guest_.grant(backend_, page.address, persistent_ ? platform::access::read_write : how);
      } catch (const std::system_error&) {
        bare_.push_back(page.address);
        throw;
      }
      return page;
    } catch (const std::system_error& e) {
      if (e.code().value() == ENOMEM || e.code().value() == ENOSPC) {
        return std::nullopt;
      }
      throw;
    }
  }

  /// Ends the grant of a page whose request was answered; the page stays out. False when the
  /// backend still has it mapped and must not.
  [[nodiscard]] bool end(granted_page& page) {
    if (guest_.end_grant(page.reference)) {
      page.reference = 0;
      return true;
    }
    return persistent_;
  }

  /// Takes a page back after `end`. One that is still granted though it should not be is out of use
  /// for ever.
  void give_back(const granted_page& page) {
    if (page.reference == 0) {
      bare_.push_back(page.address);
    } else if (persistent_) {
      granted_.push_back(page);
    } else {
      ++lost_;
    }
  }

  /// Frees all pages that are not out. Returns how many could not be: the backend still has them
  /// mapped.
  [[nodiscard]] std::size_t clear() {
    std::size_t mapped = 0;
    for (const granted_page& page : granted_) {
      if (guest_.end_grant(page.reference)) {
        bare_.push_back(page.address);
      } else {
        ++mapped;
      }
    }
    granted_.clear();
    for (std::byte* page : bare_) {
      guest_.free_pages(page);
    }
    bare_.clear();
    lost_ += mapped;
    return mapped;
  }

  /// Pages given up because the backend kept them mapped.
  [[nodiscard]] std::size_t lost() const noexcept { return lost_; }
  /// Pages that are granted and not in use.
  [[nodiscard]] std::size_t granted() const noexcept { return granted_.size(); }

 private:
  platform::emulated_guest& guest_;
  domain_id backend_;
  bool persistent_ = false;
  std::vector<granted_page> granted_;  // still granted; the last one is used first
  std::vector<std::byte*> bare_;       // not granted
  std::size_t lost_ = 0;
};

}  // namespace pvring::testing
