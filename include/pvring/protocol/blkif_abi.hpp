// SPDX-License-Identifier: MIT
// One ABI of the block protocol as a ring sees it: how a request is fetched from a slot, field by
// field and each field once, and how a response is stored. The ring hands in the only objects that
// may touch a slot.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "../base/untrusted.hpp"
#include "blkif.hpp"

namespace pvring::protocol::blkif {

/// A request as fetched: a private copy that nobody has checked yet. Which members hold something
/// depends on `operation`; what the operation does not use was not loaded.
struct request {
  std::uint64_t id;                        ///< the peer's own mark, given back as it is
  untrusted<std::uint64_t> sector_number;  ///< sectors of 512 bytes
  untrusted<std::uint64_t> nr_sectors;     ///< discard
  untrusted<std::uint16_t> nr_segments;    ///< direct and indirect
  std::uint8_t operation;                  ///< as sent; 6 for indirect
  std::uint8_t indirect_operation;         ///< what an indirect request does
  std::uint8_t flag;                       ///< discard
  segment direct[max_direct_segments];     ///< the first nr_segments are set, none where there are
                                           ///< more than 11
  std::uint32_t indirect_grefs[max_indirect_pages];
};

/// What a response gives back of its request.
struct echo {
  std::uint64_t id;
  std::uint8_t operation;
};

/// A protocol for back_ring and front_ring.
template <abi Abi>
struct wire {
  using layout = std::conditional_t<Abi == abi::x86_32, x86_32_layouts, x86_64_layouts>;
  using request = blkif::request;
  using echo = blkif::echo;
  using status = blkif::status;
  struct response {
    std::uint64_t id;
    std::uint8_t operation;
    std::int16_t status;
  };

  static constexpr std::size_t slot_bytes = sizeof(typename layout::request);

  /// Loads from `slot` what the request's operation needs, each byte once, into `into`.
  template <class Source>
  static void fetch(Source slot, request& into) noexcept {
    using direct_request = typename layout::request;
    const auto head = slot.template load<std::uint32_t>(0);
    into.operation = static_cast<std::uint8_t>(head);
    const auto second = static_cast<std::uint8_t>(head >> 8U);
    into.id = load_u64(slot, offsetof(direct_request, id));
    switch (into.operation) {
      case operation::read:
      case operation::write:
      case operation::write_barrier:
      case operation::flush: {
        into.sector_number = untrusted(load_u64(slot, offsetof(direct_request, sector_number)));
        into.nr_segments = untrusted<std::uint16_t>(second);
        // More segments than a slot has is an error that the queue answers: nothing of them is
        // needed for that.
        const std::size_t count = second <= max_direct_segments ? second : 0;
        for (std::size_t i = 0; i < count; ++i) {
          into.direct[i] = load_segment(slot, offsetof(direct_request, seg) + i * sizeof(segment));
        }
        break;
      }
      case operation::discard: {
        using discard = typename layout::discard_request;
        into.flag = second;
        into.sector_number = untrusted(load_u64(slot, offsetof(discard, sector_number)));
        into.nr_sectors = untrusted(load_u64(slot, offsetof(discard, nr_sectors)));
        break;
      }
      case operation::indirect: {
        using indirect = typename layout::indirect_request;
        const auto count = static_cast<std::uint16_t>(head >> 16U);
        into.indirect_operation = second;
        into.nr_segments = untrusted(count);
        into.sector_number = untrusted(load_u64(slot, offsetof(indirect, sector_number)));
        const std::size_t pages = count <= max_indirect_segments ? pages_for(count) : 0;
        for (std::size_t i = 0; i < pages; ++i) {
          into.indirect_grefs[i] = slot.template load<std::uint32_t>(
              offsetof(indirect, indirect_grefs) + i * sizeof(std::uint32_t));
        }
        break;
      }
      default:
        break;
    }
  }

  /// Stores `from` into `slot`, as a frontend does. For an indirect request `nr_segments` counts
  /// all segments.
  template <class Sink>
  static void store_request(Sink slot, const request& from) noexcept {
    using direct_request = typename layout::request;
    store_u64(slot, offsetof(direct_request, id), from.id);
    if (from.operation == operation::discard) {
      using discard = typename layout::discard_request;
      store_u64(slot, offsetof(discard, sector_number), from.sector_number.echo());
      store_u64(slot, offsetof(discard, nr_sectors), from.nr_sectors.echo());
      slot.template store<std::uint32_t>(0, from.operation | std::uint32_t{from.flag} << 8U);
    } else if (from.operation == operation::indirect) {
      using indirect = typename layout::indirect_request;
      store_u64(slot, offsetof(indirect, sector_number), from.sector_number.echo());
      const std::uint16_t count = from.nr_segments.echo();
      for (std::size_t i = 0; i < std::min<std::size_t>(pages_for(count), max_indirect_pages);
           ++i) {
        slot.template store<std::uint32_t>(
            offsetof(indirect, indirect_grefs) + i * sizeof(std::uint32_t), from.indirect_grefs[i]);
      }
      slot.template store<std::uint32_t>(0, from.operation |
                                                std::uint32_t{from.indirect_operation} << 8U |
                                                std::uint32_t{count} << 16U);
    } else {
      store_u64(slot, offsetof(direct_request, sector_number), from.sector_number.echo());
      const std::uint16_t count = from.nr_segments.echo();
      for (std::size_t i = 0; i < std::min(count, max_direct_segments); ++i) {
        store_segment(slot, offsetof(direct_request, seg) + i * sizeof(segment), from.direct[i]);
      }
      slot.template store<std::uint32_t>(0, from.operation | std::uint32_t{count & 0xffU} << 8U);
    }
  }

  /// What the response to `from` gives back. A frontend compares the operation with that of its
  /// request, and for an indirect one that is the inner operation; 6 only where indirect is not
  /// offered, as an operation that is unknown.
  [[nodiscard]] static echo echo_of(const request& from, bool indirect_offered) noexcept {
    const bool inner = from.operation == operation::indirect && indirect_offered;
    return {from.id, inner ? from.indirect_operation : from.operation};
  }

  /// Stores the three fields and nothing else: no byte of ours may reach the padding.
  template <class Sink>
  static void store(Sink slot, const echo& to, status result) noexcept {
    using wire_response = typename layout::response;
    store_u64(slot, offsetof(wire_response, id), to.id);
    slot.template store<std::uint8_t>(offsetof(wire_response, operation), to.operation);
    slot.template store<std::int16_t>(offsetof(wire_response, status),
                                      static_cast<std::int16_t>(result));
  }

  /// Loads a response, as a frontend does.
  template <class Source>
  [[nodiscard]] static response fetch_response(Source slot) noexcept {
    using wire_response = typename layout::response;
    return {load_u64(slot, offsetof(wire_response, id)),
            slot.template load<std::uint8_t>(offsetof(wire_response, operation)),
            slot.template load<std::int16_t>(offsetof(wire_response, status))};
  }

  /// Pages of segments that an indirect request with `segments` segments names.
  [[nodiscard]] static constexpr std::size_t pages_for(std::uint16_t segments) noexcept {
    return (std::size_t{segments} + segments_per_indirect_page - 1) / segments_per_indirect_page;
  }

 private:
  // Slots of the 32-bit ABI are aligned to 4 bytes, so there a 64-bit number is two loads.
  template <class Source>
  static std::uint64_t load_u64(Source slot, std::size_t offset) noexcept {
    if constexpr (Abi == abi::x86_32) {
      return slot.template load<std::uint32_t>(offset) |
             std::uint64_t{slot.template load<std::uint32_t>(offset + 4)} << 32U;
    } else {
      return slot.template load<std::uint64_t>(offset);
    }
  }
  template <class Sink>
  static void store_u64(Sink slot, std::size_t offset, std::uint64_t value) noexcept {
    if constexpr (Abi == abi::x86_32) {
      slot.template store<std::uint32_t>(offset, static_cast<std::uint32_t>(value));
      slot.template store<std::uint32_t>(offset + 4, static_cast<std::uint32_t>(value >> 32U));
    } else {
      slot.template store<std::uint64_t>(offset, value);
    }
  }
  template <class Source>
  static segment load_segment(Source slot, std::size_t offset) noexcept {
    const std::uint64_t word = load_u64(slot, offset);
    return {static_cast<std::uint32_t>(word),
            static_cast<std::uint8_t>(word >> 32U),
            static_cast<std::uint8_t>(word >> 40U),
            {}};
  }
  template <class Sink>
  static void store_segment(Sink slot, std::size_t offset, const segment& from) noexcept {
    store_u64(slot, offset,
              std::uint64_t{from.gref} | std::uint64_t{from.first_sect} << 32U |
                  std::uint64_t{from.last_sect} << 40U);
  }
};

}  // namespace pvring::protocol::blkif
