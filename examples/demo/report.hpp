// SPDX-License-Identifier: MIT
// What the demo found out, as a table, as JSON and as a chart.
#pragma once

#include <string>
#include <vector>

#include "image.hpp"
#include "measure.hpp"
#include "settings.hpp"

namespace demo {

/// The table, with the note that belongs to it.
[[nodiscard]] std::string table(const std::vector<outcome>& outcomes);

/// Writes the same numbers as JSON.
void write_json(const std::string& path, const settings& wanted, const disk_image& image,
                const std::vector<outcome>& outcomes);

/// Draws the mixed load's numbers with gnuplot. \throws missing_tool, std::runtime_error with
/// gnuplot's words
void write_chart(const std::string& path, const std::vector<outcome>& outcomes);

}  // namespace demo
