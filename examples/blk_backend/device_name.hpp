// SPDX-License-Identifier: MIT
// Names of virtual disks and their numbers in the store, as Xen's vbd interface defines them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tool {

/// `xvda`, `xvda1`, `xvdaa`, or the number itself. \throws configuration_error
[[nodiscard]] std::uint32_t parse_device(std::string_view name);

/// The name of a number, where it has one; else the number.
[[nodiscard]] std::string device_name(std::uint32_t number);

}  // namespace tool
