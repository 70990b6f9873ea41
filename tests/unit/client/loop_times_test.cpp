// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/loop_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdld::client {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

// A loop on a clock of its own.
class LoopTimesTest : public ::testing::Test {
 protected:
  void finds_one(nanoseconds in) {
    times_.asks(now_);
    now_ += in;
    times_.is_answered(now_, true);
  }
  void waits(nanoseconds of, bool with_batch = true) {
    times_.asks(now_);
    times_.waits_now();
    now_ += of;
    times_.is_answered(now_, with_batch);
  }

  SteadyTime now_{seconds(100)};
  LoopTimes times_;
};

TEST_F(LoopTimesTest, CountsAWaitByTheShortestBoundThatItDoesNotExceed) {
  waits(nanoseconds(0));
  waits(milliseconds(1));
  waits(milliseconds(1) + nanoseconds(1));
  waits(milliseconds(10));
  waits(milliseconds(100));
  waits(milliseconds(999));
  waits(seconds(1) + nanoseconds(1));
  waits(seconds(10));
  waits(seconds(10) + nanoseconds(1));
  waits(seconds(1000));
  EXPECT_THAT(times_.by_length(), ElementsAre(2, 2, 1, 1, 2, 2));
  EXPECT_EQ(times_.waits(), 10u);
}

TEST_F(LoopTimesTest, AddsUpWaitsThatAreEachShorterThanAMillisecond) {
  for (int i = 0; i < 3000; ++i) waits(microseconds(400));
  EXPECT_EQ(times_.waited(), milliseconds(1200));
}

TEST_F(LoopTimesTest, CountsNoWaitWhereABatchWasReady) {
  finds_one(microseconds(20));
  EXPECT_EQ(times_.waits(), 0u);
  EXPECT_EQ(times_.waited(), nanoseconds(0));
  EXPECT_THAT(times_.by_length(), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST_F(LoopTimesTest, TellsOfAWaitThatGoesOnAndCountsItsLengthOnceItIsOver) {
  waits(milliseconds(5));
  times_.asks(now_);
  times_.waits_now();
  EXPECT_EQ(times_.waited(now_ + seconds(2)), milliseconds(2005));
  EXPECT_EQ(times_.waited(), milliseconds(5));
  EXPECT_EQ(times_.waits(), 2u);
  EXPECT_THAT(times_.by_length(), ElementsAre(0, 1, 0, 0, 0, 0));
  times_.is_answered(now_ + seconds(3), false);
  EXPECT_EQ(times_.waited(now_ + seconds(4)), milliseconds(3005));
  EXPECT_THAT(times_.by_length(), ElementsAre(0, 1, 0, 0, 1, 0));
}

TEST_F(LoopTimesTest, AddsUpTheTimeFromABatchToTheNextCall) {
  now_ += seconds(50);
  waits(seconds(1));
  now_ += milliseconds(30);
  finds_one(milliseconds(1));
  now_ += milliseconds(40);
  finds_one(milliseconds(1));
  now_ += seconds(7);
  EXPECT_EQ(times_.between(), milliseconds(70)) << "nobody has asked for the next one yet";
}

TEST_F(LoopTimesTest, LeavesOutTheTimeBehindAnEpochsEnd) {
  finds_one(milliseconds(1));
  now_ += milliseconds(30);
  waits(milliseconds(2), false);  // the end, or an error
  now_ += seconds(60);
  finds_one(milliseconds(1));
  EXPECT_EQ(times_.between(), milliseconds(30));
}

}  // namespace
}  // namespace spdld::client
