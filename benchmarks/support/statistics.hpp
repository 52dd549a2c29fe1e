// SPDX-License-Identifier: MIT
// Medians with their spread, and the ratio of two things that were measured in turns. Medians,
// because a measurement that was interrupted is far off, and the others should not pay for it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <random>
#include <vector>

namespace bench {

[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) {
    return std::nan("");
  }
  const std::size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle),
                   values.end());
  if (values.size() % 2 != 0) {
    return values[middle];
  }
  const double above = values[middle];
  return (above +
          *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle))) /
         2;
}

/// A median and the median absolute deviation from it.
struct summary {
  double middle = 0;
  double spread = 0;
  std::size_t count = 0;
};

[[nodiscard]] inline summary summarize(const std::vector<double>& values) {
  summary out{.middle = median(values), .spread = 0, .count = values.size()};
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double value : values) {
    distances.push_back(std::abs(value - out.middle));
  }
  out.spread = median(std::move(distances));
  return out;
}

/// `over[i] / under[i]`, for values that were measured next to each other.
[[nodiscard]] inline std::vector<double> ratios(const std::vector<double>& over,
                                                const std::vector<double>& under) {
  std::vector<double> out;
  out.reserve(over.size());
  for (std::size_t i = 0; i < over.size() && i < under.size(); ++i) {
    out.push_back(over[i] / under[i]);
  }
  return out;
}

/// The value that `percent` of a hundred do not exceed. \pre `sorted` is
template <class T>
[[nodiscard]] T percentile(const std::vector<T>& sorted, double percent) {
  if (sorted.empty()) {
    return T{};
  }
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  const auto at = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(at, sorted.size() - 1)];
}

/// Measures `variants` things in turns, `repetitions` rounds of it: `measure(i)` gives one value of
/// the i-th. Each round has an order of its own, so that none always comes after the same other,
/// whose caches it would find. Returns the values of each.
template <class Measure>
[[nodiscard]] std::vector<std::vector<double>> interleave(std::size_t variants,
                                                          std::size_t repetitions,
                                                          Measure&& measure) {
  std::vector<std::vector<double>> values(variants);
  std::vector<std::size_t> order(variants);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::minstd_rand shuffler(1);
  for (std::size_t round = 0; round < repetitions; ++round) {
    std::shuffle(order.begin(), order.end(), shuffler);
    for (const std::size_t which : order) {
      values[which].push_back(measure(which));
    }
  }
  return values;
}

}  // namespace bench
