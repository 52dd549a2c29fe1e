// SPDX-License-Identifier: MIT
// Runs other programs and keeps what they print and what CPU time they used: a compiler, an
// instruction counter, gnuplot. No shell is involved.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bench {

struct command_result {
  int status = -1;     ///< of the program; 127 where there is none
  std::string output;  ///< stdout and stderr
  double user_seconds = 0;
};

/// \param input is written to the program's stdin
[[nodiscard]] command_result run_command(const std::vector<std::string>& arguments,
                                         std::string_view input = {});

/// Whether there is such a program.
[[nodiscard]] bool has_command(const std::string& name);

}  // namespace bench
