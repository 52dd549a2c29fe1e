// SPDX-License-Identifier: MIT
// Slots of handles, and what happens to them when their process dies: a handle's maps and ports end
// with it, as those of gntdev and evtchn do. Nothing here is on the data path.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

#include "../../base/log.hpp"
#include "shared_state.hpp"

namespace pvring::platform::detail {

[[nodiscard]] inline process_identity process_of(slot_owner& owner) noexcept {
  return {shared(owner.process.pid).load(), 0, shared(owner.process.start_time).load()};
}

/// Whether the slot belongs to a process that no longer runs.
[[nodiscard]] inline bool is_abandoned(slot_owner& owner) noexcept {
  return shared(owner.in_use).load() != 0 && !is_alive(process_of(owner));
}

inline void occupy(slot_owner& owner) noexcept {
  const process_identity self = this_process();
  shared(owner.process.pid).store(self.pid);
  shared(owner.process.start_time).store(self.start_time);
  shared(owner.generation).store(owner.generation + 1);
  shared(owner.in_use).store(1);
}

inline void vacate(slot_owner& owner) noexcept { shared(owner.in_use).store(0); }

/// Takes a port out of use; its peer can be bound to again. Call with the registry locked.
inline void free_port(const shared_state& state, std::uint32_t number) noexcept {
  port_slot& gone = state.port(number);
  if (const std::uint32_t other = shared(gone.peer).load(); other != 0) {
    port_slot& peer = state.port(other);
    if (shared(peer.peer).load() == number) {
      shared(peer.peer).store(0);
      // A kick that the dead end never saw is kept for whoever binds next.
      if ((shared(gone.flags).load() & port_pending) != 0) {
        shared(peer.kicked).store(1);
      }
    }
  }
  shared(gone.peer).store(0);
  shared(gone.flags).store(port_masked);
  shared(gone.kicked).store(0);
  shared(gone.handle).store(0);
}

/// Frees an event handle's ports and its slot. Call with the registry locked.
inline void release_events(const shared_state& state, std::uint32_t handle) noexcept {
  event_slot& slot = state.events(handle);
  for (std::uint32_t p = 1; p < ports; ++p) {
    if (shared(state.port(p).handle).load() == handle + 1) {
      free_port(state, p);
    }
  }
  shared(state.header().closed_notifies[static_cast<std::size_t>(slot.role)])
      .fetch_add(shared(slot.notifies).exchange(0));
  vacate(slot.owner);
}

/// Frees a grant handle's slot: its marks become invalid with it. Call with the registry locked.
inline void release_grants(const shared_state& state, std::uint32_t handle) noexcept {
  grant_slot& slot = state.grants(handle);
  for (std::uint32_t& pages : slot.pages_of) {
    shared(pages).store(0);
  }
  shared(slot.pages_mapped).store(0);
  // A process that died in the middle of a copy left its mark, for which guests would wait.
  shared(slot.copying).store(shared(slot.copying).load() >> 8 << 8);
  vacate(slot.owner);
}

/// Frees what dead processes left. Call with the registry locked.
inline void reap(const shared_state& state) {
  for (std::uint32_t i = 0; i < state.options().event_handles; ++i) {
    if (is_abandoned(state.events(i).owner)) {
      release_events(state, i);
    }
  }
  for (std::uint32_t i = 0; i < state.options().grant_handles; ++i) {
    grant_slot& slot = state.grants(i);
    if (is_abandoned(slot.owner)) {
      const std::uint32_t pages = shared(slot.pages_mapped).load();
      shared(state.header().lost_pages).fetch_add(pages);
      log::write(log::level::info, "process " + std::to_string(process_of(slot.owner).pid) +
                                       " died with " + std::to_string(pages) +
                                       " granted pages mapped");
      release_grants(state, i);
    }
  }
}

/// Holds the registry's lock, with what a dead holder left half done put right.
class registry_lock {
 public:
  explicit registry_lock(const shared_state& state) : lock_(state.header().registry) {
    if (lock_.owner_died()) {
      reap(state);
      for (std::uint32_t p = 1; p < ports; ++p) {
        const std::uint32_t peer = shared(state.port(p).peer).load();
        if (peer != 0 && shared(state.port(peer).peer).load() != p) {
          shared(state.port(p).peer).store(0);
        }
      }
    }
  }

 private:
  robust_lock lock_;
};

[[noreturn]] inline void throw_full(const char* what, std::uint32_t limit) {
  throw std::system_error(ENOSPC, std::generic_category(),
                          "emulated host: all " + std::to_string(limit) + " " + what +
                              " are in use; create the host with more");
}

/// A free slot for an event handle. Throws std::system_error (ENOSPC).
inline std::uint32_t open_events_slot(const shared_state& state, domain_id domain,
                                      event_role role) {
  const registry_lock lock(state);
  reap(state);
  for (std::uint32_t i = 0; i < state.options().event_handles; ++i) {
    event_slot& slot = state.events(i);
    if (shared(slot.owner.in_use).load() == 0) {
      slot.domain = domain;
      slot.role = role;
      shared(slot.notifies).store(0);
      for (std::uint64_t& word : slot.ready) {
        shared(word).store(0);
      }
      shared(slot.selector).store(0);
      std::uint64_t stale = 0;
      (void)!::read(state.event_bell(i), &stale, sizeof stale);
      occupy(slot.owner);
      return i;
    }
  }
  throw_full("event handles", state.options().event_handles);
}

/// A free slot for a grant handle. Throws std::system_error (ENOSPC).
inline std::uint32_t open_grants_slot(const shared_state& state, domain_id domain) {
  const registry_lock lock(state);
  reap(state);
  for (std::uint32_t i = 0; i < state.options().grant_handles; ++i) {
    grant_slot& slot = state.grants(i);
    if (shared(slot.owner.in_use).load() == 0) {
      slot.domain = domain;
      occupy(slot.owner);
      return i;
    }
  }
  throw_full("grant handles", state.options().grant_handles);
}

/// Whether this process opened the slot: a child that inherited a handle by fork must not close its
/// parent's.
[[nodiscard]] inline bool is_mine(slot_owner& owner) noexcept {
  return shared(owner.process.pid).load() == static_cast<std::uint32_t>(::getpid());
}

}  // namespace pvring::platform::detail
