// SPDX-License-Identifier: MIT
// The network device's nodes in the store: what is offered, and what the frontend answers.
// Functions from and to values; the handshake calls them at the right moment.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../base/error.hpp"
#include "../platform/store.hpp"
#include "../xenbus/node.hpp"
#include "../xenbus/ring_nodes.hpp"
#include "device.hpp"
#include "plan_slots.hpp"
#include "tx_chain.hpp"

namespace pvring::net {

/// One queue's nodes: two rings of a page each, and one channel or two.
struct queue_nodes {
  std::string directory;
  platform::grant_reference tx_reference = 0;
  platform::grant_reference rx_reference = 0;
  platform::port tx_channel = 0;
  platform::port rx_channel = 0;  ///< `tx_channel` where one serves both
  [[nodiscard]] bool split() const noexcept { return tx_channel != rx_channel; }
};

/// The nodes of the control ring: one page, one channel.
struct control_nodes {
  platform::grant_reference reference = 0;
  platform::port channel = 0;
};

/// What a frontend answered to the offer.
struct agreement {
  rx_agreement receives;
  bool notifies = false;         ///< it said feature-rx-notify
  bool reads_multicast = false;  ///< it said request-multicast-control
  std::vector<queue_nodes> queues;
};

/// \throws configuration_error naming the option, its value and what would do
inline void validate(const options& wanted) {
  const auto refuse = [](std::string_view option, std::uint64_t value, std::string_view remedy) {
    throw configuration_error("option " + std::string(option) + " is " + std::to_string(value) +
                              ": " + std::string(remedy));
  };
  if (wanted.max_queues == 0 || wanted.max_queues > most_queues) {
    refuse("max_queues", wanted.max_queues, "use 1 to " + std::to_string(most_queues));
  }
  if (wanted.pass_budget == 0) {
    refuse("pass_budget", 0, "a pass has to take at least one slot");
  }
  if (wanted.delivery.burst == 0) {
    refuse("delivery.burst", 0, "a pass has to receive at least one frame");
  }
  if (wanted.delivery.most_bytes > std::size_t{1} << 30U) {
    refuse("delivery.most_bytes", wanted.delivery.most_bytes, "use 1 GiB at most");
  }
  if (wanted.delivery.expiry_milliseconds == 0) {
    refuse("delivery.expiry_milliseconds", 0, "a frame has to wait for a millisecond at least");
  }
  constexpr std::uint64_t pages = max_data_slots;
  if (wanted.buffer_bytes != 0 && wanted.buffer_bytes < (pages + 1) * platform::page_size) {
    refuse(
        "buffer_bytes", wanted.buffer_bytes,
        "the longest packet needs " + std::to_string((pages + 1) * platform::page_size) + " bytes");
  }
  if (wanted.mapped_pages != 0 && wanted.mapped_pages < pages) {
    refuse("mapped_pages", wanted.mapped_pages,
           "the longest packet needs " + std::to_string(pages) + " pages");
  }
}

/// Before InitWait. \param queues as many as the uplink has, at most
template <platform::node_access Access>
void write_offer(Access& access, std::string_view backend, const options& wanted,
                 std::uint32_t queues) {
  const auto write = [&](std::string_view name, std::uint64_t value) {
    xenbus::write_if_changed(access, xenbus::join(backend, name), std::to_string(value));
  };
  const bool super_frames = wanted.scatter_gather && wanted.gso && wanted.checksum;
  write("feature-rx-copy", 1);  // pages are copied into, never exchanged: nobody does that any more
  write("feature-rx-flip", 0);
  write("feature-sg", wanted.scatter_gather ? 1 : 0);
  write("feature-gso-tcpv4", super_frames ? 1 : 0);
  write("feature-gso-tcpv6", super_frames ? 1 : 0);
  write("feature-ipv6-csum-offload", wanted.checksum ? 1 : 0);
  write("feature-no-csum-offload", wanted.checksum ? 0 : 1);
  write("feature-multicast-control", wanted.multicast_control ? 1 : 0);
  write("feature-split-event-channels", wanted.split_channels ? 1 : 0);
  write("multi-queue-max-queues", std::min(wanted.max_queues, queues));
}

/// Whether the uplink's side is set up. A toolstack that has a script for that says so in
/// `hotplug-status` when the script has ended; one that has none writes no such node.
template <platform::node_access Access>
[[nodiscard]] bool uplink_is_ready(Access& access, std::string_view backend) {
  const std::optional<std::string> status =
      xenbus::read_if_allowed(access, xenbus::join(backend, "hotplug-status"));
  return !status || *status == "connected";
}

/// The toolstack's `rate`; nothing where there is none. \throws node_error for one that is none
template <platform::node_access Access>
[[nodiscard]] credit_rate read_rate(Access& access, std::string_view backend, domain_id toolstack) {
  const std::string node = xenbus::join(backend, "rate");
  const std::optional<std::string> text = access.read(node);
  if (!text || text->empty()) {
    return {};
  }
  try {
    return parse_credit_rate(*text);
  } catch (const configuration_error&) {
    throw node_error(node, *text, toolstack,
                     "write BYTES,MICROSECONDS, both above 0, or remove it");
  }
}

namespace detail {

template <platform::node_access Access>
[[nodiscard]] queue_nodes read_queue(Access& access, std::string directory, domain_id domain,
                                     bool split_offered) {
  queue_nodes out;
  out.tx_reference = xenbus::read_unsigned<platform::grant_reference>(
      access, xenbus::join(directory, "tx-ring-ref"), domain);
  out.rx_reference = xenbus::read_unsigned<platform::grant_reference>(
      access, xenbus::join(directory, "rx-ring-ref"), domain);
  // Two channels where both are there: one alone of them decides nothing.
  const std::string tx = xenbus::join(directory, "event-channel-tx");
  const std::string rx = xenbus::join(directory, "event-channel-rx");
  if (split_offered && (access.read(tx) || access.read(rx))) {
    out.tx_channel = xenbus::read_unsigned<platform::port>(access, tx, domain);
    out.rx_channel = xenbus::read_unsigned<platform::port>(access, rx, domain);
    if (out.tx_channel == out.rx_channel) {
      throw node_error(rx, std::to_string(out.rx_channel), domain,
                       "name another channel than event-channel-tx, or one event-channel for both");
    }
  } else {
    out.tx_channel = out.rx_channel = xenbus::read_event_channel(access, directory, domain);
  }
  out.directory = std::move(directory);
  return out;
}

}  // namespace detail

/// Reads what the frontend wrote before Connected; nothing is remembered from an earlier
/// connection. \throws node_error for the first node that is wrong
template <platform::node_access Access>
[[nodiscard]] agreement read_agreement(Access& access, std::string_view frontend, domain_id domain,
                                       const options& offered, std::uint32_t queues) {
  const auto says = [&](std::string_view name) {
    return xenbus::read_unsigned_or<std::uint32_t>(access, xenbus::join(frontend, name), domain, 0,
                                                   {0, 1}) == 1;
  };
  agreement out;
  if (!says("request-rx-copy")) {
    throw node_error(xenbus::join(frontend, "request-rx-copy"), "0", domain,
                     "write 1: packets are copied into the frontend's pages, and not exchanged for "
                     "them");
  }
  offloads& takes = out.receives.offloads;
  takes.scatter_gather = says("feature-sg");
  takes.gso_tcpv4 = says("feature-gso-tcpv4") && takes.scatter_gather;
  takes.gso_tcpv6 = says("feature-gso-tcpv6") && takes.scatter_gather;
  takes.checksum_v4 = !says("feature-no-csum-offload");
  takes.checksum_v6 = says("feature-ipv6-csum-offload");
  out.notifies = says("feature-rx-notify");
  out.reads_multicast = offered.multicast_control && says("request-multicast-control");
  const std::uint32_t count =
      xenbus::read_queue_count(access, frontend, domain, std::min(offered.max_queues, queues));
  for (std::uint32_t i = 0; i < count; ++i) {
    out.queues.push_back(detail::read_queue(access, xenbus::queue_directory(frontend, count, i),
                                            domain, offered.split_channels));
  }
  return out;
}

/// Before InitWait, beside `write_offer`. \param offered whether somebody will serve the ring: a
/// frontend waits for its answers
template <platform::node_access Access>
void write_control_offer(Access& access, std::string_view backend, bool offered) {
  xenbus::write_if_changed(access, xenbus::join(backend, "feature-ctrl-ring"), offered ? 1U : 0U);
}

/// The control ring that the frontend wrote before Connected; nothing where it wants none.
/// \pre it was offered \throws node_error where one of its nodes is missing or wrong
template <platform::node_access Access>
[[nodiscard]] std::optional<control_nodes> find_control_ring(Access& access,
                                                             std::string_view frontend,
                                                             domain_id domain) {
  const std::string ring = xenbus::join(frontend, "ctrl-ring-ref");
  const std::string channel = xenbus::join(frontend, "event-channel-ctrl");
  if (!access.read(ring) && !access.read(channel)) {
    return std::nullopt;
  }
  return control_nodes{xenbus::read_unsigned<platform::grant_reference>(access, ring, domain),
                       xenbus::read_unsigned<platform::port>(access, channel, domain)};
}

}  // namespace pvring::net
