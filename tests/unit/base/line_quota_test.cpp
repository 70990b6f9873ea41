// SPDX-License-Identifier: Apache-2.0
#include "base/line_quota.h"

#include <gtest/gtest.h>

namespace spdld {
namespace {

using std::chrono::seconds;

TEST(LineQuota, GivesEachUserItsOwnBurstAndThenAShareOfTime) {
  LineQuota quota(3, 1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(quota.admit(1001, seconds(0)));
  EXPECT_FALSE(quota.admit(1001, seconds(0)));
  EXPECT_TRUE(quota.admit(1002, seconds(0)));
  EXPECT_TRUE(quota.admit(1001, seconds(1)));
  EXPECT_FALSE(quota.admit(1001, seconds(1)));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(quota.admit(1001, seconds(1000)));
  EXPECT_FALSE(quota.admit(1001, seconds(1000)));  // the burst is all that is saved up
}

TEST(LineQuota, TellsWhatWasLeftOutOnceAWhileAndThenStartsCountingAnew) {
  LineQuota quota(1, 1);
  EXPECT_TRUE(quota.admit(1001, seconds(0)));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(quota.admit(1001, seconds(0)));
  EXPECT_TRUE(quota.take_left_out(seconds(1)).empty());
  auto told = quota.take_left_out(LineQuota::kNoticePause);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].uid, 1001U);
  EXPECT_EQ(told[0].lines, 5U);
  EXPECT_TRUE(quota.take_left_out(2 * LineQuota::kNoticePause).empty());
}

TEST(LineQuota, TellsAtOnceWhenAsked) {
  LineQuota quota(1, 1);
  EXPECT_TRUE(quota.admit(1001, seconds(0)));
  EXPECT_FALSE(quota.admit(1001, seconds(0)));
  EXPECT_EQ(quota.take_left_out(seconds(0), true).size(), 1U);
}

}  // namespace
}  // namespace spdld
