// SPDX-License-Identifier: MIT
// The start of a shared ring: four free-running indices, then the slots. Requests and responses
// share the slots; a ring has the largest power of two of them that fits behind the header.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace pvring::protocol {

/// Bytes of a ring page, whatever page size guest and host use (xen/io/ring.h, xen/grant_table.h).
inline constexpr std::size_t ring_page_bytes = 4096;

/// Bytes before the first slot (xen/io/ring.h: indices, private bytes and padding).
inline constexpr std::size_t ring_header_bytes = 64;

/// The most pages that a ring may have here: `max-ring-page-order` 4.
inline constexpr std::size_t max_ring_pages = 16;

/// The indices as they lie in memory. The wire has 32 bits; tests check all states of an 8-bit
/// ring.
template <std::unsigned_integral Index = std::uint32_t>
struct ring_indices {
  Index req_prod;
  Index req_event;
  Index rsp_prod;
  Index rsp_event;
};
static_assert(sizeof(ring_indices<>) == 16);

/// Slots of a ring of `bytes` bytes whose slots are `slot_bytes` long; 0 when none fits.
[[nodiscard]] constexpr std::size_t ring_slots(std::size_t bytes, std::size_t slot_bytes) noexcept {
  return bytes < ring_header_bytes + slot_bytes
             ? 0
             : std::bit_floor((bytes - ring_header_bytes) / slot_bytes);
}

}  // namespace pvring::protocol
