// SPDX-License-Identifier: Apache-2.0
#include "base/time_histogram.h"

#include <gtest/gtest.h>

namespace spdld {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

TEST(TimeHistogram, TellsPercentilesOfWhatWasAddedAtOnceWithinAFifth) {
  TimeHistogram times;
  times.add(microseconds(10), 98);
  times.add(microseconds(900), 2);
  EXPECT_NEAR(static_cast<double>(times.percentile(0.5).count()), 10e3, 2e3);
  EXPECT_NEAR(static_cast<double>(times.percentile(0.99).count()), 900e3, 180e3);
  const auto [tasks, seconds] = times.total();
  EXPECT_EQ(tasks, 100U);
  EXPECT_NEAR(seconds, 98 * 10e-6 + 2 * 900e-6, 0.2 * seconds);
}

TEST(TimeHistogram, TakesTimesThatNoClockGives) {
  TimeHistogram times;
  EXPECT_EQ(times.percentile(0.5), nanoseconds(0));
  times.add(nanoseconds(-5));
  times.add(nanoseconds::max());
  EXPECT_EQ(times.percentile(0.25), nanoseconds(0));
  EXPECT_GT(times.percentile(0.75), std::chrono::hours(1));
}

}  // namespace
}  // namespace spdld
