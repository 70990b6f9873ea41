// SPDX-License-Identifier: Apache-2.0
#include "base/rate_window.h"

#include <gtest/gtest.h>

namespace spdld {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using Window = RateWindow<1>;

double rate(const Window& window) { return window.per_second().value()[0]; }

TEST(RateWindow, KnowsNoRateBeforeTheSecondLook) {
  Window window;
  EXPECT_FALSE(window.per_second());
  window.add(seconds(100), {40});
  EXPECT_FALSE(window.per_second());
  window.add(seconds(101), {50});
  EXPECT_DOUBLE_EQ(rate(window), 10);
}

TEST(RateWindow, CountsTheLastTenSecondsAlone) {
  Window window;
  for (int second = 0; second <= 20; ++second)
    window.add(seconds(second), {second < 10 ? 0U : 1000U * static_cast<unsigned>(second - 10)});
  EXPECT_DOUBLE_EQ(rate(window), 1000);
  for (int second = 21; second <= 25; ++second) window.add(seconds(second), {10'000});
  EXPECT_DOUBLE_EQ(rate(window), 500);
  for (int second = 26; second <= 30; ++second) window.add(seconds(second), {10'000});
  EXPECT_DOUBLE_EQ(rate(window), 0);
}

TEST(RateWindow, DividesByTheTimeThatHasPassed) {
  Window window;
  window.add(milliseconds(0), {0});
  window.add(milliseconds(2500), {10});
  EXPECT_DOUBLE_EQ(rate(window), 4);
  // Nobody looked for a minute: that is what is known.
  window.add(milliseconds(62'500), {610});
  EXPECT_DOUBLE_EQ(rate(window), 10);
  window.add(milliseconds(63'500), {611});
  EXPECT_DOUBLE_EQ(rate(window), 601.0 / 61);
  for (int second = 1; second <= 10; ++second)
    window.add(milliseconds(63'500) + seconds(second), {611});
  EXPECT_DOUBLE_EQ(rate(window), 0);
}

TEST(RateWindow, IsNotShortenedByWhoLooksOften) {
  Window window;
  std::uint64_t count = 0;
  for (milliseconds now(0); now <= seconds(8); now += milliseconds(10))
    window.add(now, {now < seconds(4) ? 0 : ++count});
  // 401 looks in the last four of eight seconds, the first seconds being there still.
  EXPECT_NEAR(rate(window), 50, 10);
}

TEST(RateWindow, BeginsAnewWithCountersThatDo) {
  RateWindow<2> window;
  window.add(seconds(0), {5, 100});
  window.add(seconds(1), {6, 200});
  window.add(seconds(2), {7, 50});
  EXPECT_FALSE(window.per_second());
  window.add(seconds(3), {9, 53});
  EXPECT_EQ(window.per_second(), (RateWindow<2>::Rates{2, 3}));
  window.clear();
  EXPECT_FALSE(window.per_second());
}

}  // namespace
}  // namespace spdld
