// SPDX-License-Identifier: MIT
// What mapping and copying have in common: for whom a grant handle acts, where it is entered in the
// host's tables, what it counts, and what is to go wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "../counters.hpp"
#include "fault_plan.hpp"
#include "grant_table.hpp"
#include "in_flight_registry.hpp"

namespace pvring::platform::detail {

/// One per grant handle; it occupies one of the host's slots. Used by the handle's thread.
struct grant_core {
  /// Throws std::system_error (ENOSPC).
  grant_core(std::shared_ptr<const shared_state> host, domain_id domain, fault_plan* plan,
             in_flight_registry* registry)
      : state(std::move(host)),
        self(domain),
        faults(plan),
        in_flight(registry),
        slot(open_grants_slot(*state, domain)),
        generation(shared(state->grants(slot).owner.generation).load()) {}

  /// The slot of a domain that is alive. Asked in every call, so the last answer is tried first.
  [[nodiscard]] std::optional<std::uint32_t> find(domain_id domain) noexcept {
    if (shared(state->tag(last_domain)).load() != (domain_alive | domain)) {
      const auto found = state->find_domain(domain);
      if (!found) {
        return std::nullopt;
      }
      last_domain = *found;
    }
    return last_domain;
  }

  std::shared_ptr<const shared_state> state;
  domain_id self;
  fault_plan* faults;             ///< null: none
  in_flight_registry* in_flight;  ///< null: none
  std::uint32_t slot;
  std::uint32_t generation;
  std::uint32_t last_domain = 0;
  grant_counters counters;
};

}  // namespace pvring::platform::detail
