// SPDX-License-Identifier: MIT
// Per-request records: the latest are kept, in the order of their answers, with the times of the
// stages that each passed.
#include "pvring/observe/full.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "manual_clock.hpp"

namespace {

using pvring::observe::request_record;
using pvring::observe::stage;
using recorder = pvring::observe::basic_full<manual_clock, 4>::recorder;

std::vector<request_record> kept(const recorder& r) {
  std::vector<request_record> all;
  r.for_each([&](const request_record& one) { all.push_back(one); });
  return all;
}

void serve(recorder& r, std::uint32_t slot) {
  for (const stage reached :
       {stage::seen, stage::acquired, stage::submitted, stage::completed, stage::responded}) {
    manual_clock::advance(10);
    r.stage(slot, reached);
  }
}

TEST(FullRecorder, KeepsEveryStageOfARequest) {
  recorder r(32);
  serve(r, 3);
  manual_clock::advance(10);
  r.published(true);
  const auto all = kept(r);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].slot, 3U);
  for (std::size_t i = 1; i < pvring::observe::stage_count; ++i) {
    EXPECT_EQ(all[0].at[i] - all[0].at[i - 1], 10U);
  }
}

TEST(FullRecorder, StageThatWasLeftOutIsNotRememberedFromTheSlotsFormerUse) {
  recorder r(1);
  serve(r, 0);
  r.stage(0, stage::seen);
  r.stage(0, stage::responded);
  EXPECT_EQ(kept(r)[1].time(stage::submitted), 0U);
  EXPECT_NE(kept(r)[1].time(stage::responded), 0U);
}

TEST(FullRecorder, RequestThatIsNotAnsweredIsNotShown) {
  recorder r(4);
  r.stage(0, stage::seen);
  r.stage(0, stage::submitted);
  EXPECT_TRUE(kept(r).empty());
  EXPECT_EQ(r.answered(), 0U);
}

TEST(FullRecorder, OldestAreDroppedWhenTheBufferIsFull) {
  recorder r(32);
  for (std::uint32_t slot = 0; slot < 6; ++slot) {
    serve(r, slot);
  }
  const auto all = kept(r);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all.front().slot, 2U);
  EXPECT_EQ(all.back().slot, 5U);
  EXPECT_EQ(r.answered(), 6U);
}

TEST(FullRecorder, NotificationBelongsToTheAnswersSinceTheLastPublishing) {
  recorder r(32);
  serve(r, 0);
  r.published(false);
  serve(r, 1);
  serve(r, 2);
  r.published(true);
  const auto all = kept(r);
  EXPECT_EQ(all[0].time(stage::notified), 0U);
  EXPECT_NE(all[1].time(stage::notified), 0U);
  EXPECT_NE(all[2].time(stage::notified), 0U);
}

TEST(FullRecorder, MoreAnswersThanTheBufferHoldsBeforePublishing) {
  recorder r(32);
  for (std::uint32_t slot = 0; slot < 9; ++slot) {
    serve(r, slot);
  }
  r.published(true);
  for (const request_record& one : kept(r)) {
    EXPECT_NE(one.time(stage::notified), 0U);
  }
}

TEST(FullRecorder, SlotBeyondTheRingIsIgnored) {
  recorder r(2);
  r.stage(2, stage::seen);
  r.stage(2, stage::responded);
  r.pass(1, 1);
  EXPECT_TRUE(kept(r).empty());
}

}  // namespace
