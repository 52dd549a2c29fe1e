// SPDX-License-Identifier: MIT
// What the command line asks for.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "devices.hpp"
#include "server.hpp"

namespace tool {

/// Where the devices are.
struct platform_settings {
  std::string platform;  ///< xen or emulated; empty: what the program was built for
  std::string socket;    ///< of the daemon that has the emulated machine
};

struct serve_command {
  platform_settings where;
  serve_settings what;
  std::vector<std::pair<std::string, std::string>> options;  ///< of devices, as they were given
  std::string config;
  std::set<std::string> given;  ///< options on the command line, as `--stats`: the file leaves them
  std::string trace;
  std::string metrics;
  std::string journals;  ///< a directory, or `none`; empty: what the platform has usually
  std::string log_level = "info";
  bool log_json = false;
};

struct attach_command {
  attach_settings what;
  bool serve = false;
};

struct try_settings {
  std::string socket;
  pvring::domain_id domain = 0;
  std::uint32_t device = 0;
  unsigned queues = 1;
  unsigned ring_order = 0;
  double seconds = 0;   ///< reads the disk again and again for that long; 0: once
  std::string copy_to;  ///< a file that becomes what the disk holds; empty: none
};

/// The whole daemon. \throws what its parts throw
exit_code run_serve(serve_command wanted, const signals& stop);
exit_code run_attach(const attach_command& wanted, serve_command how, const signals& stop);

/// Plays the guest of a disk on an emulated machine. \throws command_error
exit_code try_disk(const try_settings& wanted, const signals& stop);

/// The platform that the settings name; for `emulated`, the machine of the daemon at the socket.
[[nodiscard]] std::unique_ptr<platform_access> join_platform(const platform_settings& wanted);

/// Reads a configuration file into what the command line left open. \throws configuration_error
/// that names file, entry, value and remedy
void read_config(const std::string& path, serve_command& into);

}  // namespace tool
