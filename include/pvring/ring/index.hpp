// SPDX-License-Identifier: MIT
// The arithmetic that both ends of a ring share: when an index crosses an event, how far ahead an
// event may be set, and whether memory can be a ring at all.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "../base/error.hpp"
#include "../protocol/ring_page.hpp"

namespace pvring::ring {

/// Whether `event` lies in (old, now], in modular arithmetic: then whoever moved the index from old
/// to now notifies.
template <std::unsigned_integral Index>
[[nodiscard]] constexpr bool crossed(Index old, Index now, Index event) noexcept {
  return static_cast<Index>(now - event) < static_cast<Index>(now - old);
}

/// `distance`, as far as `most` allows, but at least 1: an event index that is not ahead would
/// never be crossed.
template <std::unsigned_integral Index>
[[nodiscard]] constexpr Index reachable(Index distance, std::size_t most) noexcept {
  return static_cast<Index>(std::max<std::size_t>(1, std::min<std::size_t>(distance, most)));
}

/// The slots of a ring in `memory`.
/// \throws configuration_error when it cannot be one
template <std::unsigned_integral Index>
[[nodiscard]] std::size_t checked_ring_slots(std::span<std::byte> memory, std::size_t slot_bytes) {
  const std::size_t slots = pvring::protocol::ring_slots(memory.size(), slot_bytes);
  if (slots == 0) {
    throw configuration_error("a ring needs at least one page of 4096 bytes");
  }
  // Beyond half the range, an index that is behind could not be told from one that is ahead.
  if (slots > std::numeric_limits<Index>::max() / 2U + 1U) {
    throw configuration_error("a ring of " + std::to_string(slots) +
                              " slots is too large for its index type");
  }
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % alignof(std::uint64_t) !=
      0) {  // NOLINT(*-reinterpret-cast)
    throw configuration_error("a ring's memory must begin at a page");
  }
  return slots;
}

}  // namespace pvring::ring
