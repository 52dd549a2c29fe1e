// SPDX-License-Identifier: MIT
// The stage histograms: every interval is measured from the stage that the same request passed
// before, whatever other requests do meanwhile.
#include "pvring/observe/histogram.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "manual_clock.hpp"

namespace {

using pvring::observe::stage;
using recorder = pvring::observe::basic_histogram<manual_clock>::recorder;

void reach(recorder& r, std::uint32_t slot, stage reached, long long after) {
  manual_clock::advance(after);
  r.stage(slot, reached);
}

TEST(StageHistogram, MeasuresEachStageFromTheOneBefore) {
  recorder r(32);
  reach(r, 4, stage::seen, 0);
  reach(r, 4, stage::acquired, 10);
  reach(r, 4, stage::submitted, 3);
  reach(r, 4, stage::completed, 40);
  reach(r, 4, stage::responded, 5);
  manual_clock::advance(2);
  r.published(true);
  EXPECT_EQ(r.until(stage::seen).count(), 0U);
  EXPECT_EQ(r.until(stage::acquired).max(), 10U);
  EXPECT_EQ(r.until(stage::submitted).max(), 3U);
  EXPECT_EQ(r.until(stage::completed).max(), 40U);
  EXPECT_EQ(r.until(stage::responded).max(), 5U);
  EXPECT_EQ(r.until(stage::notified).max(), 2U);
  EXPECT_EQ(r.total().max(), 58U);
  EXPECT_EQ(r.total().count(), 1U);
}

TEST(StageHistogram, RefusedRequestGoesFromSeenToResponded) {
  recorder r(32);
  reach(r, 0, stage::seen, 0);
  reach(r, 0, stage::responded, 7);
  EXPECT_EQ(r.until(stage::responded).max(), 7U);
  EXPECT_EQ(r.until(stage::acquired).count(), 0U);
  EXPECT_EQ(r.total().max(), 7U);
}

TEST(StageHistogram, RequestsInFlightTogetherAreKeptApart) {
  recorder r(2);
  reach(r, 0, stage::seen, 0);
  reach(r, 1, stage::seen, 100);
  reach(r, 1, stage::completed, 1);
  reach(r, 0, stage::completed, 1);
  EXPECT_EQ(r.until(stage::completed).min(), 1U);
  EXPECT_EQ(r.until(stage::completed).max(), 102U);
}

TEST(StageHistogram, SlotThatIsUsedAgainBeforePublishingKeepsItsNotification) {
  recorder r(1);
  reach(r, 0, stage::seen, 0);
  reach(r, 0, stage::responded, 1);
  reach(r, 0, stage::seen, 50);
  manual_clock::advance(50);
  r.published(true);
  EXPECT_EQ(r.until(stage::notified).count(), 1U);
  EXPECT_EQ(r.until(stage::notified).max(), 100U);
}

TEST(StageHistogram, SilentPublishingNotifiesNobody) {
  recorder r(4);
  reach(r, 0, stage::seen, 0);
  reach(r, 0, stage::responded, 1);
  r.published(false);
  r.published(true);
  EXPECT_EQ(r.until(stage::notified).count(), 0U);
}

TEST(StageHistogram, MoreAnswersThanSlotsBeforePublishingAreCountedUpToTheSlots) {
  recorder r(2);
  for (int i = 0; i < 5; ++i) {
    reach(r, 0, stage::seen, 1);
    reach(r, 0, stage::responded, 1);
  }
  r.published(true);
  EXPECT_EQ(r.until(stage::notified).count(), 2U);
  EXPECT_EQ(r.total().count(), 5U);
}

TEST(StageHistogram, SlotBeyondTheRingIsIgnored) {
  recorder r(2);
  r.stage(2, stage::seen);
  r.stage(2, stage::responded);
  EXPECT_EQ(r.total().count(), 0U);
}

TEST(StageHistogram, PassesThatDidNothingAreNotBatches) {
  recorder r(32);
  r.pass(0, 0);
  r.pass(8, 0);
  r.pass(0, 8);
  EXPECT_EQ(r.taken().batches(), 1U);
  EXPECT_EQ(r.answered().batches(), 1U);
  EXPECT_EQ(r.taken().largest(), 8U);
}

TEST(StageHistogram, AnotherThreadMayReadWhileTheQueueWorks) {
  pvring::observe::histogram::recorder r(32);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop.load()) {
      const std::uint64_t median = r.total().percentile(50);
      EXPECT_LE(median, r.total().max()) << "the maximum only grows";
      EXPECT_LE(r.taken().percentile(50), 3U);
    }
  });
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    r.stage(i % 32, stage::seen);
    r.stage(i % 32, stage::responded);
    r.published(i % 2 == 0);
    r.pass(i % 4, 1);
  }
  stop.store(true);
  reader.join();
  EXPECT_EQ(r.total().count(), 20'000U);
}

}  // namespace
