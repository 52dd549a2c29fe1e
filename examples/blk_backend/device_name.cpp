// SPDX-License-Identifier: MIT
#include "device_name.hpp"

#include <algorithm>
#include <optional>
#include <pvring/base/error.hpp>
#include <pvring/xenbus/node.hpp>

namespace tool {
namespace {

constexpr std::uint32_t major_xvd = 202;
constexpr std::uint32_t extended = 1U << 28U;
// The classic numbering has room for 16 disks of 15 partitions, the extended one for these.
constexpr std::uint32_t most_disks = 1U << 20U;
constexpr std::uint32_t most_partitions = 255;

std::optional<std::uint32_t> letters_to_number(std::string_view letters) {
  std::uint32_t number = 0;
  for (const char c : letters) {
    number = number * 26 + static_cast<std::uint32_t>(c - 'a') + 1;
    if (number > most_disks) {
      return std::nullopt;
    }
  }
  return number == 0 ? std::nullopt : std::optional(number - 1);
}

std::string number_to_letters(std::uint32_t number) {
  std::string letters;
  for (std::uint32_t left = number + 1; left != 0; left = (left - 1) / 26) {
    letters.insert(letters.begin(), static_cast<char>('a' + (left - 1) % 26));
  }
  return letters;
}

}  // namespace

std::uint32_t parse_device(std::string_view name) {
  using pvring::xenbus::parse_unsigned;
  if (const auto number = parse_unsigned<std::uint32_t>(name)) {
    return *number;
  }
  if (name.starts_with("xvd")) {
    const std::string_view rest = name.substr(3);
    const auto end =
        std::find_if(rest.begin(), rest.end(), [](char c) { return c < 'a' || c > 'z'; });
    const auto length = static_cast<std::size_t>(end - rest.begin());
    const auto disk = letters_to_number(rest.substr(0, length));
    const std::string_view digits = rest.substr(length);
    const auto partition = digits.empty()
                               ? std::optional<std::uint32_t>(0)
                               : parse_unsigned<std::uint32_t>(digits, {1, most_partitions});
    if (disk && *disk < most_disks && partition) {
      return *disk < 16 && *partition < 16 ? major_xvd << 8U | *disk << 4U | *partition
                                           : extended | *disk << 8U | *partition;
    }
  }
  throw pvring::configuration_error("device '" + std::string(name) +
                                    "' is no virtual disk: use a name such as xvda, xvdb or "
                                    "xvda1, or its number in the store, such as 51712");
}

std::string device_name(std::uint32_t number) {
  std::uint32_t disk = 0;
  std::uint32_t partition = 0;
  if (number >> 8U == major_xvd) {
    disk = number >> 4U & 15U;
    partition = number & 15U;
  } else if (number >> 28U == 1) {
    disk = number >> 8U & (most_disks - 1);
    partition = number & 255U;
  } else {
    return std::to_string(number);
  }
  return "xvd" + number_to_letters(disk) + (partition == 0 ? "" : std::to_string(partition));
}

}  // namespace tool
