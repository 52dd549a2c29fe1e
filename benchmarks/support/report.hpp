// SPDX-License-Identifier: MIT
// Prints the results of a program as one table, keeps them as JSON, and draws their charts. Every
// one of them says that counts carry over to Xen and times do not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "result.hpp"
#include "settings.hpp"

namespace bench {

/// What everything that is printed, kept or drawn says.
inline constexpr std::string_view caveat =
    "Emulated platform: counts carry over to Xen, times do not.";

/// Prints, keeps and draws. \param program the name of the files
/// Returns the program's exit status: 0, or 1 where a result is wrong (or, with --strict, a target
/// is missed).
[[nodiscard]] int report(const std::string& program, const std::vector<result>& results,
                         const settings& how);

/// One result's figures and notes as soon as they are there.
void print_progress(const result& of);

}  // namespace bench
