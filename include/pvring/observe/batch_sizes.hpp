// SPDX-License-Identifier: MIT
// How many of something were done at once: requests per pass, operations per grant call,
// completions per reap. Percentiles of that show whether batching happens, which an average hides.
#pragma once

#include <cstdint>

#include "log_linear_histogram.hpp"

namespace pvring::observe {

/// One thread records, any may read. Sizes below 64 are told apart exactly, larger ones to 1/32.
class batch_sizes {
 public:
  /// Counts one batch; an empty one is not a batch.
  void record(std::uint64_t size) noexcept {
    if (size != 0) {
      sizes_.record(size);
    }
  }
  void merge(const batch_sizes& other) noexcept { sizes_.merge(other.sizes_); }
  void clear() noexcept { sizes_.clear(); }

  /// Batches, and the things in them.
  [[nodiscard]] std::uint64_t batches() const noexcept { return sizes_.count(); }
  [[nodiscard]] std::uint64_t items() const noexcept { return sizes_.sum(); }
  [[nodiscard]] double mean() const noexcept { return sizes_.mean(); }
  [[nodiscard]] std::uint64_t largest() const noexcept { return sizes_.max(); }
  /// The size that `percent` of a hundred batches do not exceed.
  [[nodiscard]] std::uint64_t percentile(double percent) const noexcept {
    return sizes_.percentile(percent);
  }
  [[nodiscard]] const log_linear_histogram& distribution() const noexcept { return sizes_; }

 private:
  log_linear_histogram sizes_;
};

}  // namespace pvring::observe
