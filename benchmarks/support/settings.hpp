// SPDX-License-Identifier: MIT
// What a benchmark program was asked to do, read from its command line. All programs understand the
// same options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

struct settings {
  bool smoke = false;             ///< seconds; results are checked, speed is not judged
  bool strict = false;            ///< a missed target fails the program
  std::vector<std::string> only;  ///< parts to run; empty: all
  std::string out = ".";          ///< folder for JSON and charts
  std::size_t repetitions = 11;   ///< interleaved, of each measurement
  std::string self;               ///< this program, to run it under an instruction counter
  std::string variant;            ///< run nothing but this variant of a loop ...
  std::uint64_t rounds = 0;       ///< ... so many times

  [[nodiscard]] bool wants(std::string_view part) const;
};

/// Reads the command line. Exits with a message where it cannot be understood, and with the list of
/// options for --help.
[[nodiscard]] settings read_settings(int argc, char** argv, std::string_view about,
                                     const std::vector<std::string>& parts);

}  // namespace bench
