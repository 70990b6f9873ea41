// SPDX-License-Identifier: Apache-2.0
#include "base/users/user_permits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>

#include "tests/unit/base/users/users.h"

namespace spdld {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(UserPermitsTest, MakesAUserWaitForAnOwnPermitAndNobodyElses) {
  UserPermits permits(2);
  const auto wanted = [] { return true; };
  auto first = permits.take(kAnn, wanted);
  const auto second = permits.take(kAnn, wanted);
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(permits.take(kBob, wanted)) << "and given back at once";
  EXPECT_THAT(permits.users(), ElementsAre(Pair(kAnn, 2)));

  std::atomic<bool> waits = false;
  auto third = std::async(std::launch::async, [&] {
    return permits.take(kAnn, [&] { return waits = true; }).has_value();
  });
  while (!waits) std::this_thread::yield();
  EXPECT_THAT(permits.users(), ElementsAre(Pair(kAnn, 2)));
  first.reset();
  EXPECT_TRUE(third.get());
}

TEST(UserPermitsTest, APermitThatIsSetAsideMakesRoomUpToABound) {
  UserPermits permits(1, 2);
  const auto unwanted = [] { return false; };
  auto hangs = permits.take(kAnn, unwanted);
  ASSERT_TRUE(hangs);
  EXPECT_FALSE(permits.take(kAnn, unwanted));
  hangs->set_aside(true);
  auto second = permits.take(kAnn, unwanted);
  ASSERT_TRUE(second);
  EXPECT_THAT(permits.users(), ElementsAre(Pair(kAnn, 2)));
  second->set_aside(true);
  EXPECT_FALSE(permits.take(kAnn, unwanted)) << "there are two in all";
  second.reset();
  hangs->set_aside(false);
  EXPECT_FALSE(permits.take(kAnn, unwanted)) << "it comes on again";
  hangs.reset();
  EXPECT_THAT(permits.users(), ElementsAre());
}

TEST(UserPermitsTest, GivesUpWhenNobodyWantsThePermitAnyMore) {
  UserPermits permits(1);
  const auto held = permits.take(kAnn, [] { return true; });
  EXPECT_FALSE(permits.take(kAnn, [] { return false; }));
  EXPECT_THAT(permits.users(), ElementsAre(Pair(kAnn, 1)));
}

}  // namespace
}  // namespace spdld
