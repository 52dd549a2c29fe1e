// SPDX-License-Identifier: MIT
// The control ring of the network protocol (xen/io/netif.h), on which a guest sets what is too long
// for the store: how flows are hashed and steered, and which of its pages are kept mapped. Wire
// structs, numbers, and how requests and responses lie in a slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../base/untrusted.hpp"
#include "netif.hpp"

namespace pvring::protocol::netif {

/// Of a control request. Any other number is one that a backend does not know.
namespace control_type {
inline constexpr std::uint16_t get_hash_flags = 1;
inline constexpr std::uint16_t set_hash_flags = 2;
inline constexpr std::uint16_t set_hash_key = 3;
inline constexpr std::uint16_t get_hash_mapping_size = 4;
inline constexpr std::uint16_t set_hash_mapping_size = 5;
inline constexpr std::uint16_t set_hash_mapping = 6;
inline constexpr std::uint16_t set_hash_algorithm = 7;
inline constexpr std::uint16_t get_grant_mapping_size = 8;
inline constexpr std::uint16_t add_grant_mapping = 9;
inline constexpr std::uint16_t delete_grant_mapping = 10;
}  // namespace control_type

/// Of a control response, and of an entry of a list of grants.
enum class control_status : std::uint32_t {
  success = 0,
  not_supported = 1,
  invalid_parameter = 2,
  buffer_overflow = 3,
};

/// The bit that a control request uses for a `hash_type`.
[[nodiscard]] constexpr std::uint32_t hash_flag(std::uint8_t type) noexcept {
  return std::uint32_t{1} << type;
}
inline constexpr std::uint32_t all_hash_flags = hash_flag(hash_type::end) - 1;

struct control_request_layout {
  std::uint16_t id;
  std::uint16_t type;
  std::uint32_t data[3];
};
struct control_response_layout {
  std::uint16_t id;
  std::uint16_t type;
  std::uint32_t status;
  std::uint32_t data;
};
/// An entry of the list that a grant mapping request names a page of.
struct grant_entry_layout {
  std::uint32_t ref;
  std::uint16_t flags;   ///< see grant_read_only
  std::uint16_t status;  ///< out, of a request to delete: a control_status
};
/// Bit of a grant entry's `flags`: the page was granted for reading only.
inline constexpr std::uint16_t grant_read_only = 1;

/// The control ring: a protocol for back_ring and front_ring.
struct control_wire {
  struct request {
    std::uint16_t id = 0;    ///< the peer's own mark, given back as it is
    std::uint16_t type = 0;  ///< see control_type
    std::array<untrusted<std::uint32_t>, 3> data{};
  };
  struct status {
    control_status status = control_status::success;
    std::uint32_t data = 0;
  };
  struct echo {
    std::uint16_t id;
    std::uint16_t type;
  };
  struct response {
    std::uint16_t id;
    std::uint16_t type;
    std::uint32_t status;
    std::uint32_t data;
  };

  static constexpr std::size_t slot_bytes = sizeof(control_request_layout);

  template <class Source>
  static void fetch(Source slot, request& into) noexcept {
    const auto head = slot.template load<std::uint32_t>(0);
    into.id = static_cast<std::uint16_t>(head);
    into.type = static_cast<std::uint16_t>(head >> 16U);
    for (std::size_t i = 0; i < into.data.size(); ++i) {
      into.data[i] = untrusted(slot.template load<std::uint32_t>(
          offsetof(control_request_layout, data) + i * sizeof(std::uint32_t)));
    }
  }

  template <class Sink>
  static void store_request(Sink slot, const request& from) noexcept {
    slot.template store<std::uint32_t>(0, from.id | std::uint32_t{from.type} << 16U);
    for (std::size_t i = 0; i < from.data.size(); ++i) {
      slot.template store<std::uint32_t>(
          offsetof(control_request_layout, data) + i * sizeof(std::uint32_t), from.data[i].echo());
    }
  }

  [[nodiscard]] static echo echo_of(const request& from) noexcept { return {from.id, from.type}; }

  // A response is shorter than a slot: the rest of it stays the peer's own request.
  template <class Sink>
  static void store(Sink slot, const echo& to, const status& result) noexcept {
    slot.template store<std::uint32_t>(0, to.id | std::uint32_t{to.type} << 16U);
    slot.template store<std::uint32_t>(offsetof(control_response_layout, status),
                                       static_cast<std::uint32_t>(result.status));
    slot.template store<std::uint32_t>(offsetof(control_response_layout, data), result.data);
  }

  template <class Source>
  [[nodiscard]] static response fetch_response(Source slot) noexcept {
    const auto head = slot.template load<std::uint32_t>(0);
    return {static_cast<std::uint16_t>(head), static_cast<std::uint16_t>(head >> 16U),
            slot.template load<std::uint32_t>(offsetof(control_response_layout, status)),
            slot.template load<std::uint32_t>(offsetof(control_response_layout, data))};
  }
};

}  // namespace pvring::protocol::netif
