// SPDX-License-Identifier: MIT
// The block device's nodes in the store: what is offered, what the frontend answers, what is
// exported. Functions from and to values; the handshake calls them at the right moment.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../aio/engine.hpp"
#include "../base/error.hpp"
#include "../platform/store.hpp"
#include "../protocol/blkif.hpp"
#include "../xenbus/node.hpp"
#include "../xenbus/ring_nodes.hpp"
#include "device.hpp"

namespace pvring::blk {

/// What a frontend answered to the offer.
struct agreement {
  protocol::blkif::abi abi = protocol::blkif::abi::native;
  bool persistent = false;  ///< it said feature-persistent
  std::vector<xenbus::queue_nodes> queues;
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
  if (wanted.barrier && wanted.max_queues != 1) {
    refuse("max_queues", wanted.max_queues,
           "a write barrier orders its own ring, so with barrier it has to be 1");
  }
  if (wanted.max_ring_page_order > 4) {
    refuse("max_ring_page_order", wanted.max_ring_page_order, "use 0 to 4, for 1 to 16 pages");
  }
  if (wanted.max_indirect_segments > protocol::blkif::max_indirect_segments) {
    refuse("max_indirect_segments", wanted.max_indirect_segments, "the format has room for 4096");
  }
  if (wanted.sector_size != 512 && wanted.sector_size != 4096) {
    refuse("sector_size", wanted.sector_size, "use 512 or 4096");
  }
  if (wanted.pass_budget == 0) {
    refuse("pass_budget", 0, "a pass has to take at least one request");
  }
  const std::uint64_t largest =
      std::max<std::uint64_t>(wanted.max_indirect_segments, protocol::blkif::max_direct_segments);
  if (wanted.buffer_bytes != 0 && wanted.buffer_bytes < largest * 4096) {
    refuse(
        "buffer_bytes", wanted.buffer_bytes,
        "the largest request that is offered needs " + std::to_string(largest * 4096) + " bytes");
  }
  if (wanted.mapped_pages != 0 && wanted.mapped_pages < largest) {
    refuse("mapped_pages", wanted.mapped_pages,
           "the largest request that is offered needs " + std::to_string(largest) + " pages");
  }
}

/// What an image and the options come to. Sets everything but `sectors` anew.
template <aio::image Image>
void export_image(const Image& image, const options& wanted, shared_state& out) {
  out.sector_size = wanted.sector_size;
  out.max_indirect_segments = wanted.max_indirect_segments;
  out.read_only = wanted.read_only || wanted.cdrom || image.read_only();
  out.flush = image.can_flush();
  out.barrier = wanted.barrier;
  out.discard_granularity = wanted.discard && !out.read_only ? image.discard_granularity() : 0;
  if (out.discard_granularity != 0) {
    out.discard_granularity = std::max(out.discard_granularity, wanted.sector_size);
  }
  // Whole exported sectors only: a last part of one could be neither read nor written by a guest.
  const std::uint64_t whole = image.size() / wanted.sector_size * wanted.sector_size;
  out.sectors.store(whole / protocol::blkif::sector_bytes, std::memory_order_relaxed);
}

/// The options as far as the toolstack allows them: its nodes in the backend's directory (`mode`,
/// `discard-enable`, `removable`, `device-type`) take away or describe, and never allow what the
/// options do not. \throws node_error for a value that means nothing
template <platform::node_access Access>
[[nodiscard]] options as_the_toolstack_allows(Access& access, std::string_view backend,
                                              domain_id toolstack, options wanted) {
  const auto read = [&](std::string_view name) {
    return access.read(xenbus::join(backend, name)).value_or("");
  };
  const auto refuse = [&](std::string_view name, const std::string& value,
                          std::string_view remedy) {
    throw node_error(xenbus::join(backend, name), value, toolstack, remedy);
  };
  const std::string mode = read("mode");
  if (!mode.empty() && mode != "w" && mode != "r") {
    refuse("mode", mode, "use w or r");
  }
  wanted.read_only = wanted.read_only || mode == "r";
  const auto flag = [&](std::string_view name, bool otherwise) {
    const std::string value = read(name);
    if (!value.empty() && value != "0" && value != "1") {
      refuse(name, value, "use 0 or 1");
    }
    return value.empty() ? otherwise : value == "1";
  };
  wanted.discard = wanted.discard && flag("discard-enable", true);
  wanted.removable = wanted.removable || flag("removable", false);
  wanted.cdrom = wanted.cdrom || read("device-type") == "cdrom";
  return wanted;
}

/// Before InitWait: what decides how the frontend sets its rings up.
template <platform::node_access Access>
void write_offer(Access& access, std::string_view backend, const options& wanted) {
  const auto write = [&](std::string_view name, std::uint64_t value) {
    xenbus::write_if_changed(access, xenbus::join(backend, name), std::to_string(value));
  };
  write("max-ring-page-order", wanted.max_ring_page_order);
  write("multi-queue-max-queues", wanted.max_queues);
  if (wanted.max_indirect_segments != 0) {
    write("feature-max-indirect-segments", wanted.max_indirect_segments);
  } else {
    access.remove(xenbus::join(backend, "feature-max-indirect-segments"));
  }
}

/// Before Connected: what the device can do and how large it is. All numbers of sectors are in
/// units of 512 bytes.
template <platform::node_access Access>
void write_export(Access& access, std::string_view backend, const options& wanted,
                  const shared_state& device, std::uint32_t physical_block_size, bool persistent) {
  const auto write = [&](std::string_view name, std::uint64_t value) {
    xenbus::write_if_changed(access, xenbus::join(backend, name), std::to_string(value));
  };
  namespace info = protocol::blkif::info;
  write("feature-persistent", persistent ? 1 : 0);
  write("feature-flush-cache", device.flush ? 1 : 0);
  write("feature-barrier", device.barrier ? 1 : 0);
  write("feature-discard", device.discard_granularity != 0 ? 1 : 0);
  if (device.discard_granularity != 0) {
    write("discard-granularity", device.discard_granularity);
    write("discard-alignment", 0);
    write("discard-secure", 0);
  }
  write("sectors", device.sectors.load(std::memory_order_relaxed));
  write("sector-size", device.sector_size);
  write("physical-sector-size", std::max(physical_block_size, device.sector_size));
  write("info", (wanted.cdrom ? info::cdrom : 0U) | (wanted.removable ? info::removable : 0U) |
                    (device.read_only ? info::read_only : 0U));
}

/// Reads what the frontend wrote before Initialised; nothing is remembered from an earlier
/// connection. \throws node_error for the first node that is wrong
template <platform::node_access Access>
[[nodiscard]] agreement read_agreement(Access& access, std::string_view frontend, domain_id domain,
                                       const options& offered) {
  using protocol::blkif::abi;
  agreement out;
  const std::string node = xenbus::join(frontend, "protocol");
  const std::optional<std::string> protocol = access.read(node);
  // Frontends that do not say it are old ones, of 32 bits on x86.
  if (!protocol || *protocol == "x86_32-abi") {
    out.abi = abi::x86_32;
  } else if (*protocol == "x86_64-abi" || *protocol == "arm-abi") {
    out.abi = abi::x86_64;
  } else {
    throw node_error(node, *protocol, domain, "use x86_32-abi, x86_64-abi or arm-abi");
  }
  out.persistent =
      xenbus::read_unsigned_or<std::uint32_t>(access, xenbus::join(frontend, "feature-persistent"),
                                              domain, 0, {0, 1}) == 1;
  out.queues = xenbus::read_queues(access, frontend, domain,
                                   {offered.max_queues, offered.max_ring_page_order});
  return out;
}

}  // namespace pvring::blk
