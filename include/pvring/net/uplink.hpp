// SPDX-License-Identifier: MIT
// Where the packets of a device go and come from: an uplink gives each queue a port. A custom one
// is a small class; nothing of rings or grants reaches it.
#pragma once

#include <sys/uio.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "../base/source.hpp"
#include "packet.hpp"

namespace pvring::net {

/// One queue's end of an uplink; one thread uses it. It is the source of what there is to receive.
///
/// - `transmit(bytes, info)`: sends one frame, and is done with its bytes when it returns. 0:
/// taken;
///   -EAGAIN: no room now; another negative errno: refused or failed, and to try it again is no
///   use.
/// - `receive(into, info)`: one frame into `into`, which has room for `max_frame_bytes`; its
/// length.
///   0: there is none now; a negative errno: failed (-EMSGSIZE: a frame that was too long is gone).
///
/// Neither blocks.
template <class P>
concept uplink_port =
    source<P> && requires(P& p, std::span<const iovec> bytes, const packet_info& info,
                          packet_info& out, std::span<std::byte> into) {
      { p.transmit(bytes, info) } noexcept -> std::same_as<int>;
      { p.receive(into, out) } noexcept -> std::same_as<std::ptrdiff_t>;
    };

/// What the frontend can receive, as it was agreed.
struct offloads {
  bool checksum_v4 = true;
  bool checksum_v6 = false;
  bool gso_tcpv4 = false;
  bool gso_tcpv6 = false;
  bool scatter_gather = false;  ///< frames of more than one page
};

/// An uplink: one per device.
///
/// - `queues()`: the most that it serves.
/// - `open(queue)`: that queue's port. Throws std::system_error naming the device.
/// - `set_offloads(with)`: before queues run, at each connect: no port hands over what is not in
/// it.
/// - `set_carrier(up)`: whether the guest takes packets at all.
/// - `mtu()`: bytes of the longest frame that is no super-frame, without its Ethernet header.
/// - `keeps_flows`: whether a flow's packets come back on the queue that it was sent on, or the
///   queue is ours to choose; the guest's own mapping of hashes to queues is offered only then.
template <class U>
concept uplink =
    uplink_port<typename U::port> && requires(U& u, std::uint32_t queue, offloads with) {
      { u.queues() } -> std::same_as<std::uint32_t>;
      { u.open(queue) } -> std::same_as<typename U::port>;
      { u.set_offloads(with) };
      { u.set_carrier(true) } noexcept;
      { u.mtu() } -> std::same_as<std::uint32_t>;
      { U::keeps_flows } -> std::convertible_to<bool>;
    };

}  // namespace pvring::net
