// SPDX-License-Identifier: MIT
// Validation of block requests: from a private, unchecked copy to something that can be done, or to
// a refusal. Pure functions; everything that a peer can get wrong in a request is decided here.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "../grant/strategy.hpp"
#include "../protocol/blkif_abi.hpp"
#include "device.hpp"

namespace pvring::blk {

namespace wire = protocol::blkif;

/// What a request asks for, checked as far as its own slot goes.
struct plan {
  enum class kind : std::uint8_t {
    refuse,    ///< answer with `status`
    done,      ///< nothing to do: okay
    transfer,  ///< read or write
    flush,     ///< nothing but a flush
    discard,
  };
  kind what = kind::refuse;
  wire::status status = wire::status::error;
  bool write = false;
  bool flush_before = false;
  bool flush_after = false;
  bool barrier = false;   ///< starts when everything before it is done, and nothing after it starts
                          ///< before it is done
  bool indirect = false;  ///< segments are in pages of their own
  std::uint16_t segments = 0;
  std::uint64_t sector = 0;   ///< of 512 bytes
  std::uint64_t sectors = 0;  ///< discard
};

[[nodiscard]] constexpr plan refusal(wire::status status) noexcept { return {.status = status}; }

/// Whether [start, start + count) lies on the device; neither sum nor difference can wrap.
[[nodiscard]] constexpr bool on_device(std::uint64_t start, std::uint64_t count,
                                       std::uint64_t sectors) noexcept {
  return count <= sectors && start <= sectors - count;
}

/// Decides what to do with `from`, before any page of it is touched.
[[nodiscard]] inline plan examine(const wire::request& from, const shared_state& device) noexcept {
  namespace operation = wire::operation;
  plan out;
  out.sector = from.sector_number.echo();  // checked against the device once the length is known
  switch (from.operation) {
    case operation::read:
    case operation::write: {
      const auto count = from.nr_segments.within(1, wire::max_direct_segments);
      out.write = from.operation == operation::write;
      if (!count || (out.write && !device.takes_writes())) {
        return refusal(wire::status::error);
      }
      out.segments = *count;
      out.what = plan::kind::transfer;
      return out;
    }
    case operation::flush:
    case operation::write_barrier: {
      const bool barrier = from.operation == operation::write_barrier;
      if (barrier ? !device.barrier : !device.flush) {
        return refusal(wire::status::not_supported);
      }
      const auto count = from.nr_segments.at_most(wire::max_direct_segments);
      // A failed flush stays failed: the storage may have forgotten what was lost, and would say
      // that all is well.
      if (!count || (*count != 0 && device.read_only) ||
          device.flush_failed.load(std::memory_order_relaxed)) {
        return refusal(wire::status::error);
      }
      out.barrier = barrier;
      out.segments = *count;
      if (*count == 0) {
        out.what = plan::kind::flush;
        return out;
      }
      // Earlier writes first, then the data. A barrier's own data is durable as well when it is
      // answered.
      out.what = plan::kind::transfer;
      out.write = true;
      out.flush_before = device.flush;
      out.flush_after = barrier && device.flush;
      return out;
    }
    case operation::discard: {
      if (device.discard_granularity == 0) {
        return refusal(wire::status::not_supported);
      }
      const std::uint64_t count = from.nr_sectors.echo();
      if (device.read_only ||
          !on_device(out.sector, count, device.sectors.load(std::memory_order_relaxed))) {
        return refusal(wire::status::error);
      }
      // A discard is a hint: what does not fill a granule is left alone, never an error.
      const std::uint64_t granule = device.discard_granularity / wire::sector_bytes;
      const std::uint64_t end = (out.sector + count) / granule * granule;
      const std::uint64_t start = (out.sector + granule - 1) / granule * granule;
      out.what = start < end ? plan::kind::discard : plan::kind::done;
      out.sector = start;
      out.sectors = start < end ? end - start : 0;
      return out;
    }
    case operation::indirect: {
      if (device.max_indirect_segments == 0) {
        return refusal(wire::status::not_supported);
      }
      const auto most = static_cast<std::uint16_t>(device.max_indirect_segments);
      const auto count = from.nr_segments.within(1, most);
      out.write = from.indirect_operation == operation::write;
      if (!count || (!out.write && from.indirect_operation != operation::read) ||
          (out.write && !device.takes_writes())) {
        return refusal(wire::status::error);
      }
      out.indirect = true;
      out.segments = *count;
      out.what = plan::kind::transfer;
      return out;
    }
    default:
      return refusal(wire::status::not_supported);
  }
}

/// Turns segments into pieces of pages and checks the whole transfer's place on the device. Sets
/// `bytes`; false where anything is wrong. \param segments a private copy
[[nodiscard]] inline bool lay_out(std::span<const wire::segment> segments, std::uint64_t sector,
                                  const shared_state& device, std::span<grant::piece> pieces,
                                  std::uint64_t& bytes) noexcept {
  std::uint64_t sectors = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const wire::segment& from = segments[i];
    // Compared, not subtracted: a difference of the wrong sign would look like a length.
    if (from.last_sect > wire::last_sector_of_page || from.first_sect > from.last_sect) {
      return false;
    }
    const auto count = static_cast<std::uint32_t>(from.last_sect - from.first_sect + 1);
    pieces[i] = {.reference = from.gref,
                 .offset = static_cast<std::uint16_t>(from.first_sect * wire::sector_bytes),
                 .length = static_cast<std::uint16_t>(count * wire::sector_bytes)};
    sectors += count;
  }
  bytes = sectors * wire::sector_bytes;
  const std::uint32_t unit = device.sector_size / wire::sector_bytes;
  return on_device(sector, sectors, device.sectors.load(std::memory_order_relaxed)) &&
         (unit == 1 || (sector % unit == 0 && sectors % unit == 0));
}

}  // namespace pvring::blk
