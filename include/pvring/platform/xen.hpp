// SPDX-License-Identifier: MIT
// The platform of a real Xen host: libxengnttab, libxenevtchn and libxenstore, in the domain that
// the process runs in. Linux behind them is taken as it is; what it does not do is done here.
#pragma once

#include <cstddef>

#include "platform.hpp"
#include "xen/events.hpp"
#include "xen/grants.hpp"
#include "xen/store_handle.hpp"

namespace pvring::platform {

/// What a composition names. It holds nothing: each handle has its own descriptor.
///
/// The libraries must be linked dynamically (a static libxenstore fails once it has a watch). The
/// process needs read and write access to /dev/xen/gntdev and /dev/xen/evtchn and a connection to
/// xenstored; where something is missing, the exception says what to do.
class xen {
 public:
  using policy_kind = pvring::policy_kind::platform;
  using grant_handle = xen_grants;
  using event_handle = xen_events;
  using store_handle = xen_store;

  /// A page that its owner has paged out is waited for: by Linux, for half a minute or so.
  static constexpr bool map_wait_is_bounded = false;

  [[nodiscard]] xen_grants open_grants(std::size_t quota) { return xen_grants(quota); }
  [[nodiscard]] xen_events open_events() { return xen_events(); }
  [[nodiscard]] xen_store open_store() { return xen_store(); }
};

static_assert(host<xen>);

}  // namespace pvring::platform
