// SPDX-License-Identifier: MIT
// The emulated grant handle. Maps are real mappings of the guest's pages, copies are real system
// calls, and both are refused wherever Xen or Linux's gntdev would refuse them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "page_copier.hpp"
#include "page_mapper.hpp"

namespace pvring::platform {

/// Models `grant_mapper`. One thread uses it. Opened by `emulated::open_grants`; must not be used
/// in a child after fork. Nothing allocates after it was opened.
class emulated_grants {
 public:
  /// Throws std::system_error: ENOSPC where the host has no handle left, EINVAL for a quota that no
  /// host has pages for.
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

  /// Follows `faults` from now on; null for none.
  void set_faults(fault_plan* faults) noexcept { body_->core.faults = faults; }
  /// Asks `registry` before each unmap; null for none.
  void set_in_flight(in_flight_registry* registry) noexcept { body_->core.in_flight = registry; }

  [[nodiscard]] bool has_copy() const noexcept { return body_->copier.available(); }
  [[nodiscard]] std::size_t batch_limit() const noexcept { return detail::copy_pieces::per_call; }
  [[nodiscard]] const grant_counters& counters() const noexcept { return body_->core.counters; }

  /// What is mapped at present.
  [[nodiscard]] std::size_t mapped_pages() const noexcept { return body_->mapper.table().pages(); }
  [[nodiscard]] std::size_t mapped_maps() const noexcept { return body_->mapper.table().maps(); }

  /// EINVAL for a reference that is none, that is not for this domain, or that is read-only and
  /// shall be written, and for no references or no such domain; ENOSPC over the quota; ENOMEM from
  /// the kernel.
  [[nodiscard]] map_result map(domain_id domain, std::span<const grant_reference> references,
                               access how) noexcept {
    return body_->mapper.map(body_->core, domain, references, how);
  }
  /// EINVAL where address and count are not those of a map; EBUSY, and a recorded violation, where
  /// I/O is in flight.
  [[nodiscard]] int unmap(mapping pages) noexcept {
    return body_->mapper.unmap(body_->core, pages);
  }
  /// EINVAL where an operation is malformed (no length, more than a page, or beyond the granted
  /// page); EFAULT where local memory is not there; EOPNOTSUPP without grant copy.
  [[nodiscard]] int copy(domain_id domain, direction way,
                         std::span<copy_operation> operations) noexcept {
    return body_->copier.copy(body_->core, domain, way, operations);
  }

 private:
  struct body {
    body(std::shared_ptr<const detail::shared_state> state, domain_id self, std::size_t quota,
         fault_plan* faults, in_flight_registry* in_flight)
        : mapper(quota), copier(*state), core(std::move(state), self, faults, in_flight) {}

    detail::page_mapper mapper;
    detail::page_copier copier;
    detail::grant_core core;  // last, because nothing may fail once a slot is occupied
  };

  void close() noexcept {
    if (!body_ || !detail::is_mine(body_->core.state->grants(body_->core.slot).owner)) {
      return;
    }
    const detail::shared_state& state = *body_->core.state;
    if (const std::size_t pages = mapped_pages(); pages != 0) {
      detail::shared(state.header().leaked_pages).fetch_add(pages);
      log::write(log::level::warning,
                 "a grant handle of domain " + std::to_string(body_->core.self) +
                     " was closed with " + std::to_string(mapped_maps()) + " maps (" +
                     std::to_string(pages) + " pages) left; they are unmapped");
      body_->mapper.unmap_all(body_->core);
    }
    const detail::registry_lock lock(state);
    detail::release_grants(state, body_->core.slot);
  }

  std::unique_ptr<body> body_;
};

static_assert(grant_mapper<emulated_grants>);

}  // namespace pvring::platform
