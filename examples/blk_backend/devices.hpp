// SPDX-License-Identifier: MIT
// The commands of a toolstack: make a device, take it away, show what there is.
#pragma once

#include <optional>
#include <pvring/xenbus/device_path.hpp>
#include <string>
#include <string_view>

#include "platform_access.hpp"
#include "server.hpp"
#include "signals.hpp"

namespace tool {

/// Where the rings' journals are where nothing is said.
inline constexpr std::string_view usual_journals = "/run/pvring-blk";

struct attach_settings {
  pvring::xenbus::device_identity identity;
  std::string image;
  bool read_only = false;
  bool cdrom = false;
  bool removable = false;
  bool discard = true;
};

/// Makes the device and returns the backend's directory. \throws command_error for a device that
/// exists or a domain that does not, configuration_error for an image that cannot be used
std::string attach(platform_access& platform, const attach_settings& wanted);

struct detach_settings {
  pvring::xenbus::device_identity identity;
  unsigned timeout_seconds = 60;
  std::optional<unsigned> force_after_seconds;
};

/// Unplugs the device, waits for both ends, and removes both directories.
exit_code detach(platform_access& platform, const detach_settings& wanted, const signals& stop);

struct list_settings {
  std::string type;  ///< empty: every type in which there are block devices
  pvring::domain_id backend_domain = 0;
  bool json = false;
};

exit_code list(platform_access& platform, const list_settings& wanted);

}  // namespace tool
