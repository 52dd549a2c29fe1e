// SPDX-License-Identifier: MIT
// What is told of each phase, stated once for table, JSON and chart; and which of it means
// something on Xen.
#pragma once

#include <functional>
#include <vector>

#include "measure.hpp"

namespace demo {

inline constexpr const char* note =
    "Emulated platform: counts (calls, notifications, batches) carry over to Xen; times (MB/s, "
    "requests/s, latency, "
    "CPU) do not.";

struct column {
  const char* key;    ///< in the JSON
  const char* group;  ///< first line of the table's head; may be empty
  const char* title;  ///< second line
  const char* chart;  ///< in the chart; empty: not there
  int decimals;
  std::function<double(const phase&)> value;
};

[[nodiscard]] const std::vector<column>& columns();

}  // namespace demo
