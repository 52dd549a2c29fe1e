// SPDX-License-Identifier: MIT
// A histogram of numbers of any magnitude in constant memory, for percentiles of latencies. One
// thread records; any thread may read while it does.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "../base/counter.hpp"

namespace pvring::observe {

/// Each power of two is divided into 32 buckets of equal width.
///
/// A value below 64 has a bucket of its own. A larger one with its highest bit at position e (2^e
/// <= value < 2^(e+1)) shares its bucket with those that have the same 5 bits after the highest:
/// the bucket is 2^(e-5) wide and begins at 2^e or later, so it is narrower than 1/32 of what it
/// holds. Percentiles give the last value of a bucket, and therefore never less than the exact
/// percentile of what was recorded, and less than 1/32 (3.125 %) more. Values from 2^44 on
/// (nanoseconds: almost 5 hours) share the last bucket; minimum, maximum, sum and count are exact
/// for all.
///
/// Memory: 10 KiB, no allocation. Recording: one bit scan, and additions to plain words.
class log_linear_histogram {
 public:
  log_linear_histogram() = default;
  /// A snapshot.
  log_linear_histogram(const log_linear_histogram& other) noexcept { merge(other); }
  log_linear_histogram& operator=(const log_linear_histogram& other) noexcept {
    if (this != &other) {
      clear();
      merge(other);
    }
    return *this;
  }
  ~log_linear_histogram() = default;

  /// Counts one value. Owner's thread.
  void record(std::uint64_t value) noexcept {
    counts_[bucket_of(value)].add();
    sum_.add(value);
    widen(value, value);
  }

  /// Adds all of another histogram, which may be in use. Owner's thread of this one.
  void merge(const log_linear_histogram& other) noexcept {
    for (std::size_t i = 0; i < bucket_count; ++i) {
      if (const std::uint64_t n = other.counts_[i].get(); n != 0) {
        counts_[i].add(n);
      }
    }
    sum_.add(other.sum_.get());
    widen(~other.inverse_least_.get(), other.most_.get());
  }

  /// Forgets everything. Owner's thread.
  void clear() noexcept {
    for (counter& count : counts_) {
      count.set(0);
    }
    sum_.set(0);
    inverse_least_.set(0);
    most_.set(0);
  }

  /// How many values were recorded. Sums up the buckets, so that it fits what percentile() sees.
  [[nodiscard]] std::uint64_t count() const noexcept {
    std::uint64_t n = 0;
    for (const counter& count : counts_) {
      n += count.get();
    }
    return n;
  }

  [[nodiscard]] std::uint64_t sum() const noexcept { return sum_.get(); }
  [[nodiscard]] std::uint64_t max() const noexcept { return most_.get(); }
  [[nodiscard]] std::uint64_t min() const noexcept {
    const std::uint64_t inverse = inverse_least_.get();
    return inverse == 0 ? 0 : ~inverse;
  }
  [[nodiscard]] double mean() const noexcept {
    const std::uint64_t n = count();
    return n == 0 ? 0.0 : static_cast<double>(sum()) / static_cast<double>(n);
  }

  /// The smallest value that at least `percent` of a hundred recorded ones do not exceed, up to the
  /// error stated above. 0 gives the minimum, 100 the maximum; with nothing recorded it is 0.
  [[nodiscard]] std::uint64_t percentile(double percent) const noexcept {
    const std::uint64_t n = count();
    if (n == 0) {
      return 0;
    }
    if (percent >= 100.0) {
      return max();
    }
    const std::uint64_t rank = rank_of(percent, n);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < bucket_count; ++i) {
      seen += counts_[i].get();
      if (seen >= rank) {
        return std::min(last_of(i), max());
      }
    }
    return max();
  }

  static constexpr unsigned precision_bits = 5;
  static constexpr unsigned magnitude_bits = 44;
  static constexpr std::size_t bucket_count = std::size_t{magnitude_bits - precision_bits + 1}
                                              << precision_bits;

  /// The bucket that a value is counted in.
  [[nodiscard]] static constexpr std::size_t bucket_of(std::uint64_t value) noexcept {
    constexpr std::uint64_t exact = std::uint64_t{2} << precision_bits;
    if (value < exact) {
      return static_cast<std::size_t>(value);
    }
    const auto top = static_cast<unsigned>(std::bit_width(value)) - 1;
    if (top >= magnitude_bits) {
      return bucket_count - 1;
    }
    const unsigned shift = top - precision_bits;
    // value >> shift lies in [32, 64): the highest bit adds one to the group that the shift counts.
    return (std::size_t{shift} << precision_bits) + static_cast<std::size_t>(value >> shift);
  }

  /// The smallest value of a bucket.
  [[nodiscard]] static constexpr std::uint64_t first_of(std::size_t bucket) noexcept {
    constexpr std::size_t exact = std::size_t{2} << precision_bits;
    if (bucket < exact) {
      return bucket;
    }
    const auto shift = static_cast<unsigned>(bucket >> precision_bits) - 1;
    return (bucket - (std::size_t{shift} << precision_bits)) << shift;
  }

  /// The largest value of a bucket.
  [[nodiscard]] static constexpr std::uint64_t last_of(std::size_t bucket) noexcept {
    return bucket + 1 >= bucket_count ? UINT64_MAX : first_of(bucket + 1) - 1;
  }

  /// How many values a bucket holds; for charts and exporters.
  [[nodiscard]] std::uint64_t count_in(std::size_t bucket) const noexcept {
    return counts_[bucket].get();
  }

 private:
  void widen(std::uint64_t least, std::uint64_t most) noexcept {
    if (~least > inverse_least_.get()) {
      inverse_least_.set(~least);
    }
    if (most > most_.get()) {
      most_.set(most);
    }
  }

  // The rank of the value asked for, from 1 to n. Rounded up by hand: a header that only needs this
  // shall not pull in <cmath>.
  static std::uint64_t rank_of(double percent, std::uint64_t n) noexcept {
    const double exact = (percent > 0.0 ? percent : 0.0) * static_cast<double>(n) / 100.0;
    auto rank = static_cast<std::uint64_t>(exact);
    // The margin is for what 99.9 lacks as a binary fraction: of 1000 values it shall ask for the
    // 999th.
    if (exact - static_cast<double>(rank) > exact * 1e-12) {
      ++rank;
    }
    return std::clamp<std::uint64_t>(rank, 1, n);
  }

  std::array<counter, bucket_count> counts_{};
  counter sum_;
  counter inverse_least_;  // the complement, so that zero means nothing recorded
  counter most_;
};

}  // namespace pvring::observe
