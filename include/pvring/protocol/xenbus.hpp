// SPDX-License-Identifier: MIT
// The states through which the two ends of a device find each other (xen/io/xenbus.h). They are
// single digits in the nodes named `state`.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pvring::protocol {

enum class xenbus_state : std::uint8_t {
  unknown = 0,  ///< also: the node is not there
  initialising = 1,
  init_wait = 2,
  initialised = 3,
  connected = 4,
  closing = 5,
  closed = 6,
  reconfiguring = 7,
  reconfigured = 8,
};

/// The state that a node's value stands for, or nothing when it is none.
[[nodiscard]] constexpr std::optional<xenbus_state> parse_xenbus_state(
    std::string_view value) noexcept {
  if (value.size() != 1 || value[0] < '0' || value[0] > '8') {
    return std::nullopt;
  }
  return static_cast<xenbus_state>(value[0] - '0');
}

[[nodiscard]] constexpr char to_digit(xenbus_state state) noexcept {
  return static_cast<char>('0' + static_cast<unsigned>(state));
}

[[nodiscard]] constexpr std::string_view to_string(xenbus_state state) noexcept {
  constexpr std::string_view names[] = {"Unknown",     "Initialising",  "InitWait",
                                        "Initialised", "Connected",     "Closing",
                                        "Closed",      "Reconfiguring", "Reconfigured"};
  const auto index = static_cast<std::size_t>(state);
  return index < std::size(names) ? names[index] : names[0];
}

}  // namespace pvring::protocol
