// SPDX-License-Identifier: MIT
// The nodes in which a frontend names its rings and channels: how many queues, how many pages,
// which references. Two conventions for one page are in use and old nodes stay behind, so which
// node counts is decided once, before any is used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../base/error.hpp"
#include "../platform/event_channel.hpp"
#include "../platform/grant_mapper.hpp"
#include "../platform/store.hpp"
#include "node.hpp"

namespace pvring::xenbus {

/// No backend needs more pages than 2 to this power, and no store could hold their names.
inline constexpr std::uint32_t most_page_order = 10;

/// What the backend advertised.
struct ring_limits {
  std::uint32_t max_queues = 1;
  std::uint32_t max_page_order = 0;
};

/// The names of a protocol's nodes.
struct ring_keys {
  std::string_view ring_reference = "ring-ref";
  std::string_view event_channel = "event-channel";
};

/// One queue's nodes.
struct queue_nodes {
  std::string directory;
  std::vector<platform::grant_reference> ring_references;  ///< 1 << order of them, in ring order
  platform::port event_channel = 0;
};

/// How many queues the frontend wants; 1 where it does not say.
/// \throws node_error when it is none, or more than advertised
template <platform::node_access Access>
[[nodiscard]] std::uint32_t read_queue_count(Access& access, std::string_view frontend,
                                             domain_id domain, std::uint32_t most) {
  return read_unsigned_or<std::uint32_t>(access, join(frontend, "multi-queue-num-queues"), domain,
                                         1, {1, most});
}

/// Where the nodes of a queue are: one queue has no directory of its own.
[[nodiscard]] inline std::string queue_directory(std::string_view frontend, std::uint32_t count,
                                                 std::uint32_t index) {
  return count == 1 ? std::string(frontend) : join(frontend, "queue-" + std::to_string(index));
}

/// The ring's size as a power of two of pages; nothing where the frontend does not say, which is
/// one page by the old convention. `num-ring-pages` belongs to an offer that is never made and
/// decides nothing, but when both are there and contradict each other the frontend cannot mean what
/// it says.
/// \throws node_error when the order is malformed, above what was offered, or contradicted
template <platform::node_access Access>
[[nodiscard]] std::optional<std::uint32_t> read_page_order(Access& access,
                                                           std::string_view frontend,
                                                           domain_id domain,
                                                           std::uint32_t offered) {
  const std::string node = join(frontend, "ring-page-order");
  const auto order =
      find_unsigned<std::uint32_t>(access, node, domain, {0, std::min(offered, most_page_order)});
  const std::optional<std::string> pages = access.read(join(frontend, "num-ring-pages"));
  if (order && pages) {
    const auto count = parse_unsigned<std::uint64_t>(*pages);
    if (count && *count != std::uint64_t{1} << *order) {
      throw node_error(node, std::to_string(*order), domain,
                       "num-ring-pages is " + std::to_string(*count) +
                           ", which is not 2 to that power; remove num-ring-pages");
    }
  }
  return order;
}

namespace detail {

template <platform::node_access Access>
[[nodiscard]] platform::grant_reference ring_reference(Access& access, const std::string& node,
                                                       domain_id domain, std::string_view why) {
  if (const auto reference = find_unsigned<platform::grant_reference>(access, node, domain)) {
    return *reference;
  }
  throw node_error(node, "", domain, "write the grant reference of a ring page" + std::string(why));
}

}  // namespace detail

/// The references of one ring's pages. Without an order: the plain node. Above 0: the numbered
/// ones. With 0: the numbered one where it is there, else the plain one. No form is tried after
/// another one failed.
/// \param order as `read_page_order` returned it; it is shared by all queues
/// \throws node_error when a node that counts is missing or malformed
template <platform::node_access Access>
[[nodiscard]] std::vector<platform::grant_reference> read_ring_references(
    Access& access, std::string_view directory, domain_id domain,
    std::optional<std::uint32_t> order, std::string_view key = "ring-ref") {
  const std::string plain = join(directory, key);
  const std::optional<std::string> first = access.read(plain + '0');
  if (!order || (*order == 0 && !first)) {
    const std::string why = first ? ", or ring-page-order: without it " + plain + "0 (now " +
                                        detail::quoted(*first) + ") does not count"
                                  : std::string();
    return {detail::ring_reference(access, plain, domain, why)};
  }
  const std::optional<std::string> old = access.read(plain);
  const std::string why =
      ", since ring-page-order is " + std::to_string(*order) +
      (old ? "; " + plain + " (now " + detail::quoted(*old) + ") does not count then"
           : std::string());
  std::vector<platform::grant_reference> references;
  const std::uint32_t count = std::uint32_t{1} << *order;
  references.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    references.push_back(detail::ring_reference(access, plain + std::to_string(i), domain, why));
  }
  return references;
}

/// The remote port of a channel.
/// \throws node_error when it is missing or malformed
template <platform::node_access Access>
[[nodiscard]] platform::port read_event_channel(Access& access, std::string_view directory,
                                                domain_id domain,
                                                std::string_view key = "event-channel") {
  return read_unsigned<platform::port>(access, join(directory, key), domain);
}

/// Everything that a frontend with one ring and one channel per queue has to say about them.
/// Nothing is remembered: call it for each connect.
/// \throws node_error for the first node that is wrong
template <platform::node_access Access>
[[nodiscard]] std::vector<queue_nodes> read_queues(Access& access, std::string_view frontend,
                                                   domain_id domain, ring_limits offered,
                                                   ring_keys keys = {}) {
  const std::uint32_t count = read_queue_count(access, frontend, domain, offered.max_queues);
  const std::optional<std::uint32_t> order =
      read_page_order(access, frontend, domain, offered.max_page_order);
  std::vector<queue_nodes> queues;
  queues.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    queue_nodes queue;
    queue.directory = queue_directory(frontend, count, i);
    queue.ring_references =
        read_ring_references(access, queue.directory, domain, order, keys.ring_reference);
    queue.event_channel = read_event_channel(access, queue.directory, domain, keys.event_channel);
    queues.push_back(std::move(queue));
  }
  return queues;
}

}  // namespace pvring::xenbus
