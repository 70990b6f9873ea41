// SPDX-License-Identifier: Apache-2.0
#include "engine/stage_stats.h"

#include <gtest/gtest.h>

namespace spdld::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST(StageStats, CountsTasksAndTime) {
  StageStats stats;
  for (int i = 0; i < 3; ++i) {
    stats.begin();
    stats.end(microseconds(10), microseconds(2));
  }
  stats.begin();
  const StageSnapshot now = stats.snapshot();
  EXPECT_EQ(now.tasks, 3U);
  EXPECT_EQ(now.failures, 0U);
  EXPECT_EQ(now.busy, microseconds(30));
  EXPECT_EQ(now.wait, microseconds(6));
  EXPECT_EQ(now.in_flight, 1U);
}

TEST(StageStats, CountsBytesAndFailuresByCode) {
  StageStats stats;
  for (const Code why : {Code::kDataLoss, Code::kOk, Code::kNotFound, Code::kDataLoss}) {
    stats.begin();
    stats.end(microseconds(1), nanoseconds(0), why);
    stats.add_bytes(350);
  }
  const StageSnapshot now = stats.snapshot();
  EXPECT_EQ(now.tasks, 4U);
  EXPECT_EQ(now.failures, 3U);
  EXPECT_EQ(stats.failures(), 3U);
  EXPECT_EQ(now.failures_by_code,
            (std::map<Code, std::uint64_t>{{Code::kNotFound, 1}, {Code::kDataLoss, 2}}));
  EXPECT_EQ(stats.bytes(), 1400U);
}

TEST(StageStats, TellsPercentilesWithinAFifth) {
  StageStats stats;
  for (int i = 1; i <= 1000; ++i) {
    stats.begin();
    stats.end(microseconds(i), nanoseconds(0));
  }
  const StageSnapshot now = stats.snapshot();
  EXPECT_NEAR(static_cast<double>(now.p50.count()), 500e3, 100e3);
  EXPECT_NEAR(static_cast<double>(now.p99.count()), 990e3, 198e3);
}

TEST(StageStats, AddsUpWhatTasksOfAHistogramTook) {
  StageStats stats;
  for (int i = 0; i < 99; ++i) stats.end(microseconds(10), nanoseconds(0));
  stats.end(std::chrono::milliseconds(9), nanoseconds(0));
  const auto [tasks, seconds] = stats.histogram().total();
  EXPECT_EQ(tasks, 100U);
  EXPECT_NEAR(seconds, 99 * 10e-6 + 9e-3, 0.2 * seconds);
}

TEST(StageStats, SurvivesTimesThatNoClockGives) {
  StageStats stats;
  for (const nanoseconds time : {nanoseconds(-5), nanoseconds(0), nanoseconds::max()}) {
    stats.begin();
    stats.end(time, nanoseconds(-1));
  }
  EXPECT_EQ(stats.snapshot().tasks, 3U);
}

TEST(StageStats, HasNoPercentilesBeforeTheFirstTask) {
  EXPECT_EQ(StageStats().snapshot().p99, nanoseconds(0));
}

}  // namespace
}  // namespace spdld::engine
