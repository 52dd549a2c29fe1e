// SPDX-License-Identifier: MIT
// How a device is served: one table of options, read from the command line and from the
// configuration file alike.
#pragma once

#include <optional>
#include <pvring/aio/file_image.hpp>
#include <pvring/base/error.hpp>
#include <pvring/blk/device.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/engines.hpp"

namespace tool {

struct device_options {
  pvring::blk::options blk;
  support::file_engine engine = support::file_engine::libaio;
  pvring::aio::direct_io direct = pvring::aio::direct_io::automatic;
};

/// An option by its name, without dashes, and how its value is read.
struct device_option {
  std::string_view name;
  std::string_view values;  ///< for the help
  std::string_view help;
  void (*apply)(device_options& to, std::string_view value);
};

[[nodiscard]] std::span<const device_option> all_device_options();

/// Sets one. \throws configuration_error that names option, value and remedy
void apply(device_options& to, std::string_view name, std::string_view value);

/// What is different for some devices: those that match whatever is given of it.
struct device_rule {
  std::optional<pvring::domain_id> domain;
  std::optional<std::uint32_t> device;
  std::optional<std::string> image;
  std::vector<std::pair<std::string, std::string>> options;
  bool attach = false;  ///< the device is made at start, with what follows
  bool read_only = false;
  bool cdrom = false;
  bool removable = false;
  bool discard = true;
};

/// Checks that they go together. \throws configuration_error
void validate(const device_options& wanted);

}  // namespace tool
