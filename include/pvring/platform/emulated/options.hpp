// SPDX-License-Identifier: MIT
// How large an emulated host is and what it can do; fixed when it is created. Sizes cost address
// space, not memory: the host's files are sparse.
#pragma once

#include <cstdint>

namespace pvring::platform {

/// Options of `emulated_host::create`.
struct emulated_options {
  std::uint32_t domains = 16;              ///< guests with memory at a time, at most 200
  std::uint32_t pages_per_domain = 32768;  ///< 4 KiB pages of each guest
  std::uint32_t grants_per_domain = 32768;
  std::uint32_t grant_handles = 32;      ///< open at a time, of all processes
  std::uint32_t event_handles = 40;      ///< likewise; each is one descriptor in every process
  std::uint32_t store_connections = 40;  ///< likewise
  std::uint32_t store_nodes = 8192;
  std::uint32_t store_quota = 1000;  ///< nodes that a domain other than 0 may own
  bool grant_copy = true;            ///< false: as a host without grant copy, `has_copy()` is false
};

}  // namespace pvring::platform
