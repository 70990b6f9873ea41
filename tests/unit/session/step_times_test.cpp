// SPDX-License-Identifier: Apache-2.0
#include "session/step_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>

namespace spdld::session {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class StepTimesTest : public ::testing::Test {
 protected:
  // The next batch is given back after so long.
  void give_after(std::chrono::nanoseconds step) {
    now_ += step;
    times_.add({.at = now_, .epoch = epoch_});
  }
  void give(std::initializer_list<int> steps_ms) {
    for (const int step_ms : steps_ms) give_after(milliseconds(step_ms));
  }
  void give_batches(int batches, int step_ms) {
    for (int i = 0; i < batches; ++i) give_after(milliseconds(step_ms));
  }
  double typical_ms() const { return times_.typical_s().value_or(-1) * 1000; }

  StepTimes times_{100};
  std::chrono::nanoseconds now_{seconds(1000)};
  std::uint64_t epoch_ = 0;
};

TEST_F(StepTimesTest, FewStepsHaveTheirMean) {
  EXPECT_FALSE(times_.typical_s());
  times_.begin(1);
  give({5});
  EXPECT_EQ(times_.count(), 0U) << "a step ends with the next batch";
  EXPECT_FALSE(times_.typical_s());
  give({10, 40});
  EXPECT_EQ(times_.count(), 2U);
  EXPECT_DOUBLE_EQ(typical_ms(), 25);
}

TEST_F(StepTimesTest, BurstsCountByTheirMeans) {
  times_.begin(1);
  give({0, 1, 1, 1, 37, 1, 1, 1, 37});  // batches come four at a time
  EXPECT_DOUBLE_EQ(typical_ms(), 10);
}

TEST_F(StepTimesTest, MedianOfAnOddNumberOfMeansIsTheMiddleOne) {
  times_.begin(1);
  give_batches(9, 10);
  give_batches(8, 500);
  give_batches(8, 20);
  EXPECT_EQ(times_.count(), 24U);
  EXPECT_DOUBLE_EQ(typical_ms(), 20);
}

TEST_F(StepTimesTest, MedianOfAnEvenNumberOfMeansLiesBetweenTheMiddleTwo) {
  times_.begin(1);
  give_batches(9, 10);
  give_batches(8, 500);
  give_batches(8, 20);
  give_batches(8, 30);
  EXPECT_DOUBLE_EQ(typical_ms(), 25);
}

TEST_F(StepTimesTest, StepsBehindTheLastWholeBurstDoNotCountInTheMedian) {
  times_.begin(1);
  give_batches(9, 10);
  give_batches(7, 500);
  EXPECT_EQ(times_.count(), 15U);
  EXPECT_DOUBLE_EQ(typical_ms(), 10);
}

TEST_F(StepTimesTest, FirstStepsOfARunAreLeftOut) {
  times_.begin(2);
  give({900, 800, 10, 10});
  times_.end();
  give({700, 700});
  EXPECT_EQ(times_.count(), 2U);
  times_.begin(2);
  give({600, 500, 30, 30});
  EXPECT_EQ(times_.count(), 4U) << "steps of the run before are kept";
  EXPECT_DOUBLE_EQ(typical_ms(), 20);
  times_.forget();
  EXPECT_EQ(times_.count(), 0U);
}

TEST_F(StepTimesTest, GapBetweenTwoEpochsIsNoStep) {
  times_.begin(1);
  give({0, 10});
  epoch_ = 1;
  give({5000, 10});
  EXPECT_EQ(times_.count(), 2U);
  EXPECT_DOUBLE_EQ(typical_ms(), 10);
}

TEST_F(StepTimesTest, NoMoreStepsAreKeptThanAskedFor) {
  times_ = StepTimes(3);
  times_.begin(1);
  give({0, 10, 10, 10, 900});
  EXPECT_EQ(times_.count(), 3U);
  EXPECT_DOUBLE_EQ(typical_ms(), 10);
}

TEST_F(StepTimesTest, LoopStandsStillAfterFourOfItsStepsAndASecond) {
  times_.begin(2);
  give({0, 400});
  EXPECT_FALSE(times_.stands_still(now_ + seconds(100))) << "its pace is not known";
  give({400});
  EXPECT_FALSE(times_.stands_still(now_ + milliseconds(1599)));
  EXPECT_TRUE(times_.stands_still(now_ + milliseconds(1600)));
  times_.end();
  EXPECT_TRUE(times_.stands_still(now_ + milliseconds(1600)));
  times_.begin(2);
  EXPECT_FALSE(times_.stands_still(now_ + seconds(100)));
  give({0, 1, 1});
  EXPECT_FALSE(times_.stands_still(now_ + milliseconds(999)));
  EXPECT_TRUE(times_.stands_still(now_ + seconds(1)));
}

}  // namespace
}  // namespace spdld::session
