// SPDX-License-Identifier: MIT
// The emulated platform: everything a backend needs from a hypervisor, on any Linux machine.
// Frontend and backend may be threads of one process or two processes.
#pragma once

#include <memory>
#include <utility>

#include "emulated/events.hpp"
#include "emulated/grants.hpp"
#include "emulated/guest.hpp"
#include "emulated/host.hpp"
#include "emulated/store_handle.hpp"
#include "platform.hpp"

namespace pvring::platform {

/// The platform as one domain of an emulated host has it; what a composition names.
///
/// What is real: guest memory is a memory file; a map is an mmap of its pages, write-protected
/// where it is read-only; an unmap is a munmap; a grant copy is process_vm_readv on the own
/// process; a kick is a write to an eventfd. So these cost what the kernel makes them cost, and the
/// memory semantics are those of the hardware.
///
/// What it cannot show: the cost of hypercalls and of editing page tables through a hypervisor; TLB
/// flushes on the CPUs of other domains; pinning and locking in the hypervisor's grant tables; a
/// guest's pages that are paged out (but see `fault_plan::busy`); interrupts of guests, whose kicks
/// may here cost nothing at all while the port is masked. A map of frames that lie side by side is
/// one mmap here, while on Xen each page costs. Counts carry over to Xen; times do not.
class emulated {
 public:
  using policy_kind = pvring::policy_kind::platform;
  using grant_handle = emulated_grants;
  using event_handle = emulated_events;
  using store_handle = emulated_store;

  /// No guest can hold up a map call.
  static constexpr bool map_wait_is_bounded = true;

  /// The platform as domain `self` sees it: 0 for a toolstack's domain, another one for a driver
  /// domain.
  explicit emulated(const emulated_host& host, domain_id self = 0)
      : state_(host.state()), self_(self) {}

  /// Handles opened from now on follow the plan (null: none), which must outlive them.
  void set_faults(fault_plan* faults) noexcept { faults_ = faults; }
  /// Grant handles opened from now on ask the registry before they unmap (null: none); it must
  /// outlive them.
  void set_in_flight(in_flight_registry* registry) noexcept { in_flight_ = registry; }

  [[nodiscard]] domain_id self() const noexcept { return self_; }

  /// Throws std::system_error (ENOSPC) where the host has no handle left.
  [[nodiscard]] emulated_grants open_grants(std::size_t quota) {
    return emulated_grants(state_, self_, quota, faults_, in_flight_);
  }
  [[nodiscard]] emulated_events open_events() {
    return emulated_events(state_, self_, detail::event_role::backend, faults_);
  }
  [[nodiscard]] emulated_store open_store() { return emulated_store(state_, self_, faults_); }

 private:
  std::shared_ptr<const detail::shared_state> state_;
  domain_id self_;
  fault_plan* faults_ = nullptr;
  in_flight_registry* in_flight_ = nullptr;
};

static_assert(host<emulated>);

}  // namespace pvring::platform
