// SPDX-License-Identifier: MIT
// The histogram's promises: buckets without gap or overlap, an error below 1/32, exact extremes,
// and readers that may look at any time.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "pvring/observe/batch_sizes.hpp"
#include "pvring/observe/log_linear_histogram.hpp"

namespace {

using pvring::observe::batch_sizes;
using histogram = pvring::observe::log_linear_histogram;

std::uint64_t exact_percentile(std::vector<std::uint64_t> values, double percent) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(percent * static_cast<double>(values.size()) / 100.0 - 1e-9);
  const auto index = static_cast<std::size_t>(std::max(1.0, rank)) - 1;
  return values[std::min(index, values.size() - 1)];
}

TEST(LogLinearHistogram, BucketsFollowEachOtherWithoutGapOrOverlap) {
  EXPECT_EQ(histogram::first_of(0), 0U);
  for (std::size_t i = 0; i < histogram::bucket_count; ++i) {
    ASSERT_EQ(histogram::bucket_of(histogram::first_of(i)), i);
    ASSERT_EQ(histogram::bucket_of(histogram::last_of(i)), i);
    if (i + 1 < histogram::bucket_count) {
      ASSERT_EQ(histogram::last_of(i) + 1, histogram::first_of(i + 1));
    }
  }
  EXPECT_EQ(histogram::last_of(histogram::bucket_count - 1), UINT64_MAX);
}

TEST(LogLinearHistogram, BucketIsNarrowerThanOneThirtySecondOfWhatItHolds) {
  for (std::size_t i = 0; i + 1 < histogram::bucket_count; ++i) {
    const std::uint64_t width = histogram::last_of(i) - histogram::first_of(i);
    ASSERT_TRUE(width == 0 || width * 32 < histogram::first_of(i)) << "bucket " << i;
  }
}

TEST(LogLinearHistogram, MemoryIsTenKibibytes) { EXPECT_LE(sizeof(histogram), 10U * 1024 + 64); }

TEST(LogLinearHistogram, SmallNumbersAreExact) {
  histogram h;
  for (std::uint64_t v = 0; v < 64; ++v) {
    h.record(v);
  }
  EXPECT_EQ(h.percentile(50), 31U);
  EXPECT_EQ(h.percentile(25), 15U);
  EXPECT_EQ(h.percentile(100), 63U);
  EXPECT_EQ(h.percentile(0), 0U);
}

TEST(LogLinearHistogram, EmptyOneGivesZeros) {
  const histogram h;
  EXPECT_EQ(h.count(), 0U);
  EXPECT_EQ(h.min(), 0U);
  EXPECT_EQ(h.max(), 0U);
  EXPECT_EQ(h.percentile(50), 0U);
  EXPECT_EQ(h.percentile(100), 0U);
  EXPECT_EQ(h.mean(), 0.0);
}

TEST(LogLinearHistogram, PercentileIsNeverBelowTheExactOneAndLessThanOneThirtySecondAbove) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> latency(11.0, 1.5);
  for (const std::size_t n : {1U, 2U, 10U, 999U, 1000U, 20000U}) {
    histogram h;
    std::vector<std::uint64_t> values;
    for (std::size_t i = 0; i < n; ++i) {
      values.push_back(static_cast<std::uint64_t>(latency(random)));
      h.record(values.back());
    }
    for (const double percent : {0.0, 1.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0}) {
      const std::uint64_t exact = exact_percentile(values, percent);
      const std::uint64_t got = h.percentile(percent);
      EXPECT_GE(got, exact) << percent << " of " << n;
      EXPECT_LE(got - exact, exact / 32) << percent << " of " << n;
    }
  }
}

TEST(LogLinearHistogram, RankIsNotLostToBinaryFractions) {
  histogram h;
  for (int i = 0; i < 999; ++i) {
    h.record(10);
  }
  h.record(50);
  EXPECT_EQ(h.percentile(99.9), 10U) << "the 999th of 1000";
  EXPECT_EQ(h.percentile(99.91), 50U);
}

TEST(LogLinearHistogram, PercentileOutsideTheScaleIsTheNearestEnd) {
  histogram h;
  h.record(3);
  h.record(7);
  EXPECT_EQ(h.percentile(-5), 3U);
  EXPECT_EQ(h.percentile(250), 7U);
}

TEST(LogLinearHistogram, ExtremesAreExactEvenInTheLastBucket) {
  histogram h;
  h.record(UINT64_MAX - 1);
  h.record(std::uint64_t{1} << 44U);
  EXPECT_EQ(h.max(), UINT64_MAX - 1);
  EXPECT_EQ(h.min(), std::uint64_t{1} << 44U);
  EXPECT_EQ(h.percentile(50), UINT64_MAX - 1)
      << "they share a bucket, which is bounded by the maximum only";
  EXPECT_EQ(h.count_in(histogram::bucket_count - 1), 2U);
}

TEST(LogLinearHistogram, MergedOneIsWhatRecordingBothWouldHaveGiven) {
  std::mt19937_64 random(11);
  histogram a;
  histogram b;
  histogram both;
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t v = random() >> (random() % 60);
    (i % 3 == 0 ? a : b).record(v);
    both.record(v);
  }
  a.merge(b);
  EXPECT_EQ(a.count(), both.count());
  EXPECT_EQ(a.sum(), both.sum());
  EXPECT_EQ(a.min(), both.min());
  EXPECT_EQ(a.max(), both.max());
  for (std::size_t i = 0; i < histogram::bucket_count; ++i) {
    ASSERT_EQ(a.count_in(i), both.count_in(i));
  }
}

TEST(LogLinearHistogram, MergingAnEmptyOneChangesNothing) {
  histogram a;
  a.record(5);
  a.merge(histogram());
  EXPECT_EQ(a.min(), 5U);
  EXPECT_EQ(a.max(), 5U);
  EXPECT_EQ(a.count(), 1U);
}

TEST(LogLinearHistogram, CopyIsASnapshot) {
  histogram a;
  a.record(5);
  histogram b = a;
  a.record(9);
  EXPECT_EQ(b.count(), 1U);
  b = a;
  EXPECT_EQ(b.count(), 2U);
  const histogram& same = b;
  b = same;
  EXPECT_EQ(b.count(), 2U);
  b.clear();
  EXPECT_EQ(b.count(), 0U);
  EXPECT_EQ(b.max(), 0U);
  EXPECT_EQ(b.min(), 0U);
  EXPECT_EQ(a.count(), 2U);
}

TEST(LogLinearHistogram, AnotherThreadMayReadWhileItIsWritten) {
  const auto h = std::make_unique<histogram>();
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    std::uint64_t before = 0;
    while (!stop.load()) {
      const histogram copy = *h;
      EXPECT_GE(copy.count(), before);
      before = copy.count();
      EXPECT_LE(h->percentile(99), 1023U);
    }
  });
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    h->record(i % 1000);
  }
  stop.store(true);
  reader.join();
  EXPECT_EQ(h->count(), 200'000U);
}

TEST(BatchSizes, EmptyBatchesAreNotCounted) {
  batch_sizes sizes;
  sizes.record(0);
  EXPECT_EQ(sizes.batches(), 0U);
  sizes.record(1);
  sizes.record(32);
  sizes.record(32);
  EXPECT_EQ(sizes.batches(), 3U);
  EXPECT_EQ(sizes.items(), 65U);
  EXPECT_EQ(sizes.largest(), 32U);
  EXPECT_EQ(sizes.percentile(50), 32U);
  EXPECT_NEAR(sizes.mean(), 65.0 / 3, 1e-9);
}

TEST(BatchSizes, MergeAndClear) {
  batch_sizes a;
  batch_sizes b;
  a.record(3);
  b.record(5);
  a.merge(b);
  EXPECT_EQ(a.items(), 8U);
  EXPECT_EQ(a.distribution().count(), 2U);
  a.clear();
  EXPECT_EQ(a.batches(), 0U);
}

}  // namespace
