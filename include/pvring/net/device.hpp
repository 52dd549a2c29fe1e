// SPDX-License-Identifier: MIT
// A network device as its users name and configure it, and what its queues share: one atomic each
// for credit and groups, none on the way of a packet that needs neither.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../base/error.hpp"
#include "../wait/policy.hpp"
#include "credit.hpp"
#include "delivery.hpp"
#include "flow_steering.hpp"
#include "multicast_filter.hpp"

namespace pvring::net {

/// Which device to serve.
struct identity {
  domain_id domain = 0;      ///< the frontend's
  std::uint32_t device = 0;  ///< 0 for eth0
  domain_id backend_domain = 0;
  std::string type = "vif";  ///< the directory below backend/; frontends do not care
};

/// Of a device.
inline constexpr std::uint32_t most_queues = 256;

/// Who runs the queues.
enum class threads : std::uint8_t {
  own,     ///< one pinned thread per queue
  caller,  ///< the user's event loop calls service()
};

struct options {
  std::uint32_t max_queues = 4;   ///< offered; never more than the uplink has
  bool split_channels = true;     ///< offered: an event channel for each ring
  bool scatter_gather = true;     ///< offered: packets of more than a page
  bool gso = true;                ///< offered: super-frames, over IPv4 and IPv6
  bool checksum = true;           ///< offered: blank checksums, over IPv6 too
  bool multicast_control = true;  ///< offered: the guest names the groups that it wants
  /// The only grant strategy to use, by its name; empty for the first of the composition that can
  /// run.
  std::string strategy{};
  std::size_t buffer_bytes = 0;   ///< for what the guest transmits, per queue; 0: enough for a pass
  std::size_t mapped_pages = 0;   ///< mapped by a queue at a time; 0: enough for a pass
  delivery_options delivery{};    ///< of what the guest receives
  std::size_t pass_budget = 256;  ///< transmit slots per pass
  net::threads threads = net::threads::own;
  wait::policy wait{};      ///< of the queues' own threads
  std::vector<int> cpus{};  ///< to pin queue i to cpus[i % size]; empty: not pinned
};

/// What the queues of a device share.
struct shared_state {
  credit_bucket credit;
  multicast_filter multicast;
  shared_steering steering;  ///< as set on the control ring
  /// Queues whose guest takes nothing; while there is one, the device has no carrier.
  std::atomic<std::uint32_t> stalled_queues{0};
};

}  // namespace pvring::net
