// SPDX-License-Identifier: MIT
// One strategy from the toolstack's first node to the last check: connect, read everything, load,
// disconnect, reopen, read everything again.
#pragma once

#include <string>

#include "image.hpp"
#include "measure.hpp"
#include "progress.hpp"
#include "settings.hpp"

namespace demo {

/// \throws mismatch naming strategy, queue and sector when anything is not as it has to be
[[nodiscard]] outcome serve(const settings& wanted, const disk_image& image,
                            const std::string& strategy, progress& line);

}  // namespace demo
