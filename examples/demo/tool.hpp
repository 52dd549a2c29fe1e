// SPDX-License-Identifier: MIT
// Runs other programs and keeps what they say. Nothing passes through a shell.
#pragma once

#include <string>
#include <vector>

namespace demo {

struct tool_result {
  int status = 0;      ///< exit status, or 128 and the signal
  std::string output;  ///< both of its streams
};

/// Whether the program is in PATH or where Debian keeps administrators' programs; throws
/// `missing_tool` naming the package when it is not.
std::string find_tool(const std::string& name, const std::string& package);

/// Runs a program with no input. \throws std::system_error when it cannot be started
tool_result run_tool(const std::string& path, const std::vector<std::string>& arguments);

}  // namespace demo
