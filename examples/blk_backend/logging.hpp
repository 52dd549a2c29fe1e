// SPDX-License-Identifier: MIT
// Where messages go: stderr, as text or as one JSON object per line.
#pragma once

#include <string>

namespace tool {

[[nodiscard]] bool is_log_level(const std::string& name);

/// \param level for which is_log_level is true
void start_logging(const std::string& level, bool json);

}  // namespace tool
