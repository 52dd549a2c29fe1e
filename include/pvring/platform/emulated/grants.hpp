// SPDX-License-Identifier: MIT
// The emulated grant handle. Maps are real mappings of the guest's pages, copies are real system
// calls, and both are refused wherever Xen or Linux's gntdev would refuse them.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "../counters.hpp"
#include "copy_pieces.hpp"
#include "fault_plan.hpp"
#include "frame_mapping.hpp"
#include "grant_table.hpp"
#include "in_flight_registry.hpp"
#include "mapping_table.hpp"

namespace pvring::platform {

/// Models `grant_mapper`. One thread uses it. Opened by `emulated::open_grants`; must not be used
/// in a child after fork. Nothing allocates after it was opened.
class emulated_grants {
 public:
  emulated_grants(std::shared_ptr<const detail::shared_state> state, domain_id self,
                  std::size_t quota, fault_plan* faults, in_flight_registry* in_flight)
      : body_(std::make_unique<body>(std::move(state), self, quota, faults, in_flight)) {}
  emulated_grants(emulated_grants&&) noexcept = default;
  emulated_grants& operator=(emulated_grants&& other) noexcept {
    if (this != &other) {
      close();
      body_ = std::move(other.body_);
    }
    return *this;
  }
  /// Unmaps what is left, and reports it: see `emulated_host::leaked_pages`.
  ~emulated_grants() { close(); }

  [[nodiscard]] bool has_copy() const noexcept { return body_->copies; }
  [[nodiscard]] std::size_t batch_limit() const noexcept { return detail::copy_pieces::per_call; }
  [[nodiscard]] const grant_counters& counters() const noexcept { return body_->counters; }

  /// What is mapped at present.
  [[nodiscard]] std::size_t mapped_pages() const noexcept { return body_->table.pages(); }
  [[nodiscard]] std::size_t mapped_maps() const noexcept { return body_->table.maps(); }

  /// Follows `faults` from now on; null for none.
  void set_faults(fault_plan* faults) noexcept { body_->faults = faults; }
  /// Asks `registry` before each unmap; null for none.
  void set_in_flight(in_flight_registry* registry) noexcept { body_->in_flight = registry; }

  /// EINVAL for a reference that is none, that is not for this domain, or that is read-only and
  /// shall be written, and for no references or no such domain; ENOSPC over the quota; ENOMEM from
  /// the kernel.
  [[nodiscard]] map_result map(domain_id domain, std::span<const grant_reference> references,
                               access how) noexcept;
  /// EINVAL where address and count are not those of a map; EBUSY, and a recorded violation, where
  /// I/O is in flight.
  [[nodiscard]] int unmap(mapping pages) noexcept;
  /// EINVAL where an operation is malformed (no length, more than a page, or beyond the granted
  /// page); EFAULT where local memory is not there; EOPNOTSUPP without grant copy.
  [[nodiscard]] int copy(domain_id domain, direction way,
                         std::span<copy_operation> operations) noexcept;

 private:
  struct body {
    body(std::shared_ptr<const detail::shared_state> host, domain_id domain, std::size_t quota,
         fault_plan* plan, in_flight_registry* registry)
        : state(std::move(host)),
          self(domain),
          faults(plan),
          in_flight(registry),
          table(checked(quota)),
          frames(quota),
          copies(state->options().grant_copy && detail::copy_pieces::available()),
          slot(detail::open_grants_slot(*state, domain)),
          generation(state->grants(slot).owner.generation) {
      if (state->options().grant_copy && !copies) {
        log::write(
            log::level::warning,
            "no grant copy: this system does not let a process call process_vm_readv on itself");
      }
    }

    static std::size_t checked(std::size_t quota) {
      constexpr std::size_t most = 1U << 20;
      if (quota > most) {
        throw std::system_error(EINVAL, std::generic_category(),
                                "a grant handle for " + std::to_string(quota) + " pages; at most " +
                                    std::to_string(most));
      }
      return quota;
    }

    // The slot of a live domain; asked for each call, so the last answer is tried first.
    [[nodiscard]] std::optional<std::uint32_t> find(domain_id domain) noexcept {
      if (detail::shared(state->domain(last_domain).tag).load() !=
          (detail::domain_alive | domain)) {
        const auto found = state->find_domain(domain);
        if (!found) {
          return std::nullopt;
        }
        last_domain = *found;
      }
      return last_domain;
    }

    std::shared_ptr<const detail::shared_state> state;
    domain_id self;
    fault_plan* faults;
    in_flight_registry* in_flight;
    detail::mapping_table table;
    std::vector<std::uint32_t> frames;  // of the map being made
    bool copies;
    std::uint32_t slot;
    std::uint32_t generation;
    std::uint32_t last_domain = 0;
    grant_counters counters;
    detail::copy_pieces pieces;
  };

  [[nodiscard]] int mark_all(std::uint32_t domain, std::span<const grant_reference> references,
                             access how) noexcept;
  void unmark(std::uint32_t domain, std::span<const grant_reference> references) noexcept;
  void count_mapped(std::uint32_t domain, std::int64_t pages) noexcept;
  void unmap_entry(const detail::mapping_table::entry* entry) noexcept;
  [[nodiscard]] int prepare(std::span<copy_operation> operations) noexcept;
  [[nodiscard]] detail::grant_check check_operation(std::uint32_t domain, const copy_operation& op,
                                                    direction way) noexcept;
  [[nodiscard]] int copy_from(std::uint32_t domain, direction way,
                              std::span<copy_operation> operations) noexcept;
  void close() noexcept;

  std::unique_ptr<body> body_;
};

inline void emulated_grants::count_mapped(std::uint32_t domain, std::int64_t pages) noexcept {
  detail::grant_slot& slot = body_->state->grants(body_->slot);
  const auto by = static_cast<std::uint32_t>(pages);  // wraps around as meant
  detail::shared(slot.pages_of[domain]).store(slot.pages_of[domain] + by);
  detail::shared(slot.pages_mapped).store(slot.pages_mapped + by, std::memory_order_relaxed);
}

// Marks every reference as mapped and looks up its frame, or marks none. 0, or EINVAL.
inline int emulated_grants::mark_all(std::uint32_t domain,
                                     std::span<const grant_reference> references,
                                     access how) noexcept {
  body& b = *body_;
  for (std::size_t i = 0; i < references.size(); ++i) {
    const grant_reference r = references[i];
    if (r >= b.state->options().grants_per_domain ||
        !detail::add_mark(*b.state, domain, r, b.slot, b.generation)) {
      unmark(domain, references.first(i));
      return EINVAL;
    }
    // The frame is taken from the entry that was checked: the guest may be trying to end the grant
    // at this moment.
    const auto found = detail::check_grant(*b.state, domain, r, b.self, how == access::read_write);
    if (found.status != grant_status::okay) {
      unmark(domain, references.first(i + 1));
      return EINVAL;
    }
    b.frames[i] = found.frame;
  }
  return 0;
}

inline void emulated_grants::unmark(std::uint32_t domain,
                                    std::span<const grant_reference> references) noexcept {
  for (const grant_reference r : references) {
    detail::drop_mark(*body_->state, domain, r, body_->slot, body_->generation);
  }
}

inline map_result emulated_grants::map(domain_id domain,
                                       std::span<const grant_reference> references,
                                       access how) noexcept {
  body& b = *body_;
  b.counters.map_calls.add();
  b.counters.hypercalls.add();
  const auto fail = [&b](int error) {
    b.counters.map_failures.add();
    return map_result{{}, error};
  };
  if (b.faults != nullptr) {
    if (const int error = b.faults->next_map(); error != 0) {
      return fail(error);
    }
  }
  if (references.size() > b.table.quota() - b.table.pages()) {
    return fail(ENOSPC);
  }
  const auto from = b.find(domain);
  if (references.empty() || !from) {
    return fail(EINVAL);
  }
  // Counted before it is marked: the slot of a domain that goes away is kept as long as the count
  // is not 0.
  const std::size_t n = references.size();
  count_mapped(*from, static_cast<std::int64_t>(n));
  int error = mark_all(*from, references, how);
  if (error == 0) {
    const detail::mapped_frames mapped =
        detail::map_frames(*b.state, std::span(b.frames).first(n), how, b.counters);
    if (mapped.address != nullptr) {
      b.table.insert(mapped.address, *from, references);
      b.counters.pages_mapped.add(n);
      return {{mapped.address, static_cast<std::uint32_t>(n)}, 0};
    }
    error = mapped.error;
    unmark(*from, references);
  }
  count_mapped(*from, -static_cast<std::int64_t>(n));
  return fail(error);
}

inline void emulated_grants::unmap_entry(const detail::mapping_table::entry* entry) noexcept {
  body& b = *body_;
  (void)::munmap(entry->address, std::size_t{entry->count} * page_size);
  b.counters.system_calls.add();
  const std::uint32_t domain = entry->domain;
  const std::uint32_t count = entry->count;
  // The marks go after the pages: a guest that sees no mark may give the page to somebody else.
  b.table.erase(entry, [&](grant_reference r) {
    detail::drop_mark(*b.state, domain, r, b.slot, b.generation);
  });
  count_mapped(domain, -std::int64_t{count});
}

inline int emulated_grants::unmap(mapping pages) noexcept {
  body& b = *body_;
  b.counters.unmap_calls.add();
  b.counters.hypercalls.add();
  if (b.faults != nullptr) {
    if (const int error = b.faults->next_unmap(); error != 0) {
      return error;
    }
  }
  const auto* entry = b.table.find(pages.address);
  if (entry == nullptr || entry->count != pages.count) {
    return EINVAL;
  }
  if (b.in_flight != nullptr &&
      b.in_flight->unmapping(pages.address, std::size_t{pages.count} * page_size)) {
    log::write(log::level::error, "unmap of granted pages with I/O in flight");
    return EBUSY;
  }
  unmap_entry(entry);
  b.counters.pages_unmapped.add(pages.count);
  return 0;
}

// Refuses the call where one operation is malformed, presets statuses, and counts. 0, or EINVAL.
inline int emulated_grants::prepare(std::span<copy_operation> operations) noexcept {
  std::uint64_t on_xen = 0;
  for (copy_operation& op : operations) {
    if (op.length == 0 || op.length > page_size || std::size_t{op.offset} + op.length > page_size) {
      return EINVAL;
    }
    // gntdev presets this, also for pieces that it then never copies: after a failed call it says
    // nothing.
    op.status = grant_status::okay;
    const auto in_page = reinterpret_cast<std::uintptr_t>(op.local) % page_size;
    on_xen += in_page + op.length > page_size ? 2 : 1;
  }
  body_->counters.hypercalls.add((on_xen + 15) / 16);
  return 0;
}

inline detail::grant_check emulated_grants::check_operation(std::uint32_t domain,
                                                            const copy_operation& op,
                                                            direction way) noexcept {
  // The kernel repeats a piece whose page is being paged in, a bounded number of times.
  constexpr int attempts = 8;
  body& b = *body_;
  if (b.faults != nullptr) {
    std::int16_t status = grant_status::try_again;
    for (int i = 0; i < attempts && status == grant_status::try_again; ++i) {
      b.counters.copy_retries.add(i != 0 ? 1 : 0);
      status = b.faults->next_operation(op.reference, i == 0);
    }
    if (status != grant_status::okay) {
      return {status};
    }
  }
  return detail::check_grant(*b.state, domain, op.reference, b.self, way == direction::to_peer);
}

inline int emulated_grants::copy_from(std::uint32_t domain, direction way,
                                      std::span<copy_operation> operations) noexcept {
  body& b = *body_;
  for (copy_operation& op : operations) {
    const detail::grant_check found = check_operation(domain, op, way);
    op.status = found.status;
    if (found.status != grant_status::okay) {
      continue;
    }
    std::byte* granted = b.state->frame(found.frame) + op.offset;
    const int error = way == direction::from_peer
                          ? b.pieces.add(op.local, granted, op.length, b.counters)
                          : b.pieces.add(granted, op.local, op.length, b.counters);
    if (error != 0) {
      return error;
    }
  }
  return b.pieces.flush(b.counters);
}

inline int emulated_grants::copy(domain_id domain, direction way,
                                 std::span<copy_operation> operations) noexcept {
  body& b = *body_;
  b.counters.copy_calls.add();
  b.counters.copy_operations.add(operations.size());
  fault_plan::call_fate fate;
  if (b.faults != nullptr) {
    fate = b.faults->next_copy();
  }
  int error = !b.copies ? EOPNOTSUPP : fate.after == 0 ? fate.error : 0;
  error = error != 0 ? error : prepare(operations);
  if (error != 0) {
    b.counters.copy_failures.add();
    return error;
  }
  const auto from = b.find(domain);
  if (!from) {
    for (copy_operation& op : operations) {
      op.status = grant_status::bad_domain;
    }
    return 0;
  }
  if (fate.error != 0) {
    operations = operations.first(std::min<std::size_t>(fate.after, operations.size()));
  }
  const auto copying = detail::shared(b.state->grants(b.slot).copying);
  const std::uint64_t number = (copying.load(std::memory_order_relaxed) >> 8) + 1;
  // seq_cst: a guest that ends a grant from now on sees the copy and waits, or we see that the
  // grant has ended.
  copying.store(number << 8 | (*from + 1));
  error = copy_from(*from, way, operations);
  // release: the pages were read and written before a guest may take them back.
  copying.store(number << 8, std::memory_order_release);
  error = error != 0 ? error : fate.error;
  b.counters.copy_failures.add(error != 0 ? 1 : 0);
  return error;
}

inline void emulated_grants::close() noexcept {
  if (!body_ || !detail::is_mine(body_->state->grants(body_->slot).owner)) {
    return;
  }
  body& b = *body_;
  if (const std::size_t pages = b.table.pages(); pages != 0) {
    detail::shared(b.state->header().leaked_pages).fetch_add(pages);
    log::write(log::level::warning, "a grant handle of domain " + std::to_string(b.self) +
                                        " was closed with " + std::to_string(b.table.maps()) +
                                        " maps (" + std::to_string(pages) +
                                        " pages) left; they are unmapped");
  }
  while (const auto* entry = b.table.any()) {
    if (b.in_flight != nullptr &&
        b.in_flight->unmapping(entry->address, std::size_t{entry->count} * page_size)) {
      log::write(log::level::error, "a grant handle was closed with I/O in flight on its pages");
    }
    unmap_entry(entry);
  }
  const detail::registry_lock lock(*b.state);
  detail::release_grants(*b.state, b.slot);
}

static_assert(grant_mapper<emulated_grants>);

}  // namespace pvring::platform
