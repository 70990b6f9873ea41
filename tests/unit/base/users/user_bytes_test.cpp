// SPDX-License-Identifier: Apache-2.0
#include "base/users/user_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "tests/unit/base/users/users.h"

namespace spdld {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(UserBytesTest, BoundsTheSumOfAUsersSharesAndNobodyElses) {
  const auto all = std::make_shared<UserBytes>(100);
  UserBytes::Share first(all, kAnn);
  UserBytes::Share second(all, kAnn);
  UserBytes::Share other(all, kBob);
  EXPECT_TRUE(first.add(60));
  EXPECT_FALSE(second.add(41));
  EXPECT_EQ(second.bytes(), 0U) << "nothing of it was added";
  EXPECT_TRUE(second.add(40));
  EXPECT_TRUE(other.add(100));
  EXPECT_THAT(all->used(), ElementsAre(Pair(kAnn, 100), Pair(kBob, 100)));
  first.remove(10);
  EXPECT_TRUE(second.add(10));
}

TEST(UserBytesTest, TakesBackWhatAShareHadWhenItEnds) {
  auto all = std::make_shared<UserBytes>(100);
  {
    UserBytes::Share share(all, kAnn);
    ASSERT_TRUE(share.add(30));
    ASSERT_TRUE(share.add(30));
    share.remove(5);
  }
  EXPECT_TRUE(all->used().empty());
  UserBytes::Share outlives(all, kAnn);
  ASSERT_TRUE(outlives.add(1));
  all.reset();
  outlives.remove(1);
}

TEST(UserBytesTest, RefusesASumThatNoNumberHolds) {
  const auto all = std::make_shared<UserBytes>(100);
  UserBytes::Share share(all, kAnn);
  ASSERT_TRUE(share.add(1));
  EXPECT_FALSE(share.add(std::numeric_limits<std::uint64_t>::max()));
  EXPECT_EQ(share.bytes(), 1U);
}

}  // namespace
}  // namespace spdld
