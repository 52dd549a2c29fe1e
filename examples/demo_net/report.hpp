// SPDX-License-Identifier: MIT
// The results as a table, as JSON, and as a chart.
#pragma once

#include <string>
#include <vector>

#include "settings.hpp"

namespace demo_net {

[[nodiscard]] std::string table(const std::vector<outcome>& outcomes);
/// \throws std::runtime_error when the file cannot be written
void write_json(const std::string& path, const settings& wanted,
                const std::vector<outcome>& outcomes);
/// Needs gnuplot. \throws std::runtime_error when it fails
void write_chart(const std::string& path, const std::vector<outcome>& outcomes);

}  // namespace demo_net
