// SPDX-License-Identifier: MIT
// Offering a port, binding to it, and asking whether somebody is bound. Control path: all of it is
// under the registry's lock, and kicks go on beside it.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

#include "../event_channel.hpp"
#include "registry.hpp"

namespace pvring::platform::detail {

/// A free port, masked and made `handle`'s. Throws std::system_error (ENOSPC). Call with the
/// registry locked.
[[nodiscard]] inline port take_free_port(const shared_state& state, std::uint32_t handle,
                                         domain_id self, domain_id remote) {
  for (port p = 1; p < ports; ++p) {
    port_slot& slot = state.port(p);
    if (shared(slot.handle).load() == 0) {
      shared(slot.flags).store(port_masked);
      shared(slot.kicked).store(0);
      shared(slot.domain).store(self);
      shared(slot.remote).store(remote);
      shared(slot.handle).store(handle + 1);
      return p;
    }
  }
  throw_full("ports", ports - 1);
}

[[noreturn]] inline void refuse_bind(int error, domain_id self, domain_id domain, port remote,
                                     const char* why) {
  throw std::system_error(error, std::generic_category(),
                          "domain " + std::to_string(self) + " binding to port " +
                              std::to_string(remote) + " of domain " + std::to_string(domain) +
                              ": " + why);
}

/// A new port of `handle`, joined to a port that `domain` offered to `self`. Call with the registry
/// locked.
[[nodiscard]] inline port bind_port(const shared_state& state, std::uint32_t handle, domain_id self,
                                    domain_id domain, port remote) {
  if (remote == 0 || remote >= ports || shared(state.port(remote).handle).load() == 0 ||
      shared(state.port(remote).domain).load() != domain) {
    refuse_bind(EINVAL, self, domain, remote,
                "there is no such port; is the node from an earlier connection?");
  }
  port_slot& offered = state.port(remote);
  if (shared(offered.remote).load() != self) {
    refuse_bind(EACCES, self, domain, remote, "it is not offered to this domain");
  }
  if (shared(offered.peer).load() != 0) {
    refuse_bind(EINVAL, self, domain, remote, "somebody is bound to it already");
  }
  const port local = take_free_port(state, handle, self, domain);
  shared(state.port(local).peer).store(remote);
  shared(offered.peer).store(local);
  // After the link, so that a kick of this moment is either noted here or comes by the link.
  if (shared(offered.kicked).exchange(0) != 0) {
    shared(state.port(local).flags).fetch_or(port_pending);
  }
  return local;
}

/// Whether a live process has the port's other end. Call with the registry locked.
[[nodiscard]] inline bool has_live_peer(const shared_state& state, port p) noexcept {
  const std::uint32_t peer = shared(state.port(p).peer).load();
  const std::uint32_t owner = peer != 0 ? shared(state.port(peer).handle).load() : 0;
  return owner != 0 && !is_abandoned(state.events(owner - 1).owner);
}

}  // namespace pvring::platform::detail
