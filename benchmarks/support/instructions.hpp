// SPDX-License-Identifier: MIT
// Counts the instructions of a loop: the program runs itself under callgrind twice, with few and
// with many rounds, and the difference is the loop's alone. Unlike times, the counts are the same
// in every run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "settings.hpp"

namespace bench {

/// Instructions per round of `variant`, or nothing where they cannot be counted; `why` then says
/// why.
[[nodiscard]] std::optional<double> count_instructions(const settings& how,
                                                       const std::string& variant,
                                                       std::uint64_t rounds, std::string& why);

}  // namespace bench
