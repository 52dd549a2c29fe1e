// SPDX-License-Identifier: MIT
// Where messages go: stderr, as text or as one JSON object per line.
#pragma once

#include <string>

namespace tool {

/// \param level debug, info, warning or error
void start_logging(const std::string& level, bool json);

}  // namespace tool
