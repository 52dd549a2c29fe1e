// SPDX-License-Identifier: MIT
// The half of a grant handle that maps. A map marks its grants in the shared table before it looks
// at them, and an unmap takes the marks away after the pages.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "frame_mapping.hpp"
#include "grant_core.hpp"
#include "mapping_table.hpp"

namespace pvring::platform::detail {

class page_mapper {
 public:
  /// Throws std::system_error (EINVAL) where the quota is out of all proportion.
  explicit page_mapper(std::size_t quota) : table_(checked(quota)), frames_(quota) {}

  [[nodiscard]] const mapping_table& table() const noexcept { return table_; }

  [[nodiscard]] map_result map(grant_core& core, domain_id domain,
                               std::span<const grant_reference> references, access how) noexcept {
    core.counters.map_calls.add();
    core.counters.hypercalls.add();
    const map_result result = try_map(core, domain, references, how);
    core.counters.map_failures.add(result.error != 0 ? 1 : 0);
    core.counters.pages_mapped.add(result.pages.count);
    return result;
  }

  [[nodiscard]] int unmap(grant_core& core, const mapping& pages) noexcept {
    core.counters.unmap_calls.add();
    core.counters.hypercalls.add();
    if (core.faults != nullptr) {
      if (const int error = core.faults->next_unmap(); error != 0) {
        return error;
      }
    }
    const auto* entry = table_.find(pages.address);
    if (entry == nullptr || entry->count != pages.count) {
      return EINVAL;
    }
    if (is_in_flight(core, *entry)) {
      return EBUSY;
    }
    remove(core, entry);
    core.counters.pages_unmapped.add(pages.count);
    return 0;
  }

  /// Unmaps everything, also what is in flight: the handle is going away.
  void unmap_all(grant_core& core) noexcept {
    table_.drain([&](const mapping_table::entry* entry) {
      (void)is_in_flight(core, *entry);
      remove(core, entry);
    });
  }

 private:
  static std::size_t checked(std::size_t quota) {
    constexpr std::size_t most = 1U << 20;
    if (quota > most) {
      throw std::system_error(EINVAL, std::generic_category(),
                              "a grant handle for " + std::to_string(quota) + " pages; at most " +
                                  std::to_string(most));
    }
    return quota;
  }

  map_result try_map(grant_core& core, domain_id domain,
                     std::span<const grant_reference> references, access how) noexcept {
    if (core.faults != nullptr) {
      if (const int error = core.faults->next_map(); error != 0) {
        return {{}, error};
      }
    }
    const std::size_t n = references.size();
    if (n > table_.quota() - table_.pages()) {
      return {{}, ENOSPC};
    }
    const auto from = core.find(domain);
    if (n == 0 || !from) {
      return {{}, EINVAL};
    }
    // Counted before it is marked: a domain's slot is kept as long as the count is not 0.
    count(core, *from, static_cast<std::int64_t>(n));
    int error = mark_all(core, *from, references, how);
    if (error == 0) {
      const mapped_frames mapped =
          map_frames(*core.state, std::span(frames_).first(n), how, core.counters);
      if (mapped.address != nullptr) {
        table_.insert(mapped.address, *from, references);
        return {{mapped.address, static_cast<std::uint32_t>(n)}, 0};
      }
      error = mapped.error;
      unmark(core, *from, references);
    }
    count(core, *from, -static_cast<std::int64_t>(n));
    return {{}, error};
  }

  // Marks every reference as mapped and looks up its frame, or marks none. 0, or EINVAL.
  int mark_all(const grant_core& core, std::uint32_t domain,
               std::span<const grant_reference> references, access how) noexcept {
    for (std::size_t i = 0; i < references.size(); ++i) {
      const grant_reference r = references[i];
      if (r >= core.state->options().grants_per_domain ||
          !add_mark(*core.state, domain, r, core.slot, core.generation)) {
        unmark(core, domain, references.first(i));
        return EINVAL;
      }
      // The frame comes from the entry that was checked: the guest may be ending the grant now.
      const grant_check found =
          check_grant(*core.state, domain, r, core.self, how == access::read_write);
      if (found.status != grant_status::okay) {
        unmark(core, domain, references.first(i + 1));
        return EINVAL;
      }
      frames_[i] = found.frame;
    }
    return 0;
  }

  static void unmark(const grant_core& core, std::uint32_t domain,
                     std::span<const grant_reference> references) noexcept {
    for (const grant_reference r : references) {
      drop_mark(*core.state, domain, r, core.slot, core.generation);
    }
  }

  static void count(const grant_core& core, std::uint32_t domain, std::int64_t pages) noexcept {
    grant_slot& slot = core.state->grants(core.slot);
    const auto by = static_cast<std::uint32_t>(pages);  // wraps around as meant
    shared(slot.pages_of[domain]).store(slot.pages_of[domain] + by);
    shared(slot.pages_mapped).store(slot.pages_mapped + by, std::memory_order_relaxed);
  }

  // Whether I/O is in flight on the pages; then that is recorded and logged.
  static bool is_in_flight(const grant_core& core, const mapping_table::entry& entry) noexcept {
    if (core.in_flight == nullptr ||
        !core.in_flight->unmapping(entry.address, std::size_t{entry.count} * page_size)) {
      return false;
    }
    log::write(log::level::error, "unmap of granted pages with I/O in flight");
    return true;
  }

  void remove(grant_core& core, const mapping_table::entry* entry) noexcept {
    const std::uint32_t domain = entry->domain;
    const std::uint32_t pages = entry->count;
    (void)::munmap(entry->address, std::size_t{pages} * page_size);
    core.counters.system_calls.add();
    // The marks go after the pages: a guest that sees no mark may give the page to somebody else.
    table_.erase(entry, [&](grant_reference r) {
      drop_mark(*core.state, domain, r, core.slot, core.generation);
    });
    count(core, domain, -std::int64_t{pages});
  }

  mapping_table table_;
  std::vector<std::uint32_t> frames_;  // of the map being made
};

}  // namespace pvring::platform::detail
