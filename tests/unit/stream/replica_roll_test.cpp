// SPDX-License-Identifier: Apache-2.0
#include "stream/replica_roll.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdld::stream {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint32_t kReplicas = 3;

std::vector<AwaitedReplica> awaited(const ReplicaRoll& roll, job::StepAt from,
                                    job::StepAt until = job::kNever) {
  return roll.awaited({0, 0}, kReplicas, 0, from, until);
}

TEST(ReplicaRoll, ExpectsAllOthersOfAFreshShard) {
  const ReplicaRoll roll;
  EXPECT_THAT(awaited(roll, {0, 5}),
              ElementsAre(AwaitedReplica{1, {0, 5}}, AwaitedReplica{2, {0, 5}}));
}

TEST(ReplicaRoll, ExpectsNobodyWhoIsHere) {
  ReplicaRoll roll;
  roll.came({0, 1}, kReplicas, 11, 0);
  EXPECT_TRUE(roll.here({0, 1}));
  EXPECT_THAT(awaited(roll, {0, 5}), ElementsAre(AwaitedReplica{2, {0, 5}}));
}

TEST(ReplicaRoll, ExpectsWhoWasKilledFromWhereItWas) {
  ReplicaRoll roll;
  roll.came({0, 1}, kReplicas, 11, 0);
  roll.came({0, 2}, kReplicas, 12, 0);
  EXPECT_TRUE(roll.went({0, 1}, 11, true, {0, 9}));
  EXPECT_TRUE(roll.went({0, 2}, 12, true, {0, 3}));
  EXPECT_THAT(awaited(roll, {0, 5}),
              ElementsAre(AwaitedReplica{1, {0, 9}}, AwaitedReplica{2, {0, 5}}));
  EXPECT_THAT(awaited(roll, {0, 5}, {0, 9}), ElementsAre(AwaitedReplica{2, {0, 5}}))
      << "the first is beyond what is read here";
}

TEST(ReplicaRoll, ExpectsNobodyWhoSaidGoodBye) {
  ReplicaRoll roll;
  roll.came({0, 1}, kReplicas, 11, 0);
  EXPECT_TRUE(roll.went({0, 1}, 11, false, {0, 9}));
  EXPECT_THAT(awaited(roll, {0, 5}), ElementsAre(AwaitedReplica{2, {0, 5}}));
  EXPECT_THAT(roll.done(), ElementsAre(job::Member{0, 1}));
}

TEST(ReplicaRoll, BelievesOnlyWhoHasThePlace) {
  ReplicaRoll roll;
  roll.came({0, 1}, kReplicas, 11, 0);
  roll.came({0, 1}, kReplicas, 21, 0);  // before the first was known to be gone
  EXPECT_FALSE(roll.went({0, 1}, 11, false, {0, 9}));
  EXPECT_TRUE(roll.here({0, 1}));
  EXPECT_TRUE(roll.went({0, 1}, 21, true, {0, 9}));
  EXPECT_FALSE(roll.went({0, 1}, 21, false, {0, 9})) << "a second word counts for nothing";
  EXPECT_THAT(roll.done(), IsEmpty());
  EXPECT_FALSE(roll.went({7, 7}, 21, true, {}));
}

TEST(ReplicaRoll, BeginsAnewOnceAllOfAShardHaveFinished) {
  ReplicaRoll roll;
  for (std::uint32_t replica = 0; replica < kReplicas; ++replica) {
    roll.came({0, replica}, kReplicas, replica + 1, 0);
    roll.came({1, replica}, kReplicas, replica + 11, 0);
  }
  for (std::uint32_t replica = 0; replica < kReplicas; ++replica)
    EXPECT_TRUE(roll.went({0, replica}, replica + 1, false, {}));
  EXPECT_TRUE(roll.went({1, 0}, 11, false, {}));
  roll.came({0, 0}, kReplicas, 21, 0);
  EXPECT_THAT(awaited(roll, {}), ElementsAre(AwaitedReplica{1, {}}, AwaitedReplica{2, {}}));
  EXPECT_THAT(roll.done(), ElementsAre(job::Member{1, 0})) << "the other shard is as it was";
}

TEST(ReplicaRoll, KnowsAfterARestartWhoHadFinished) {
  ReplicaRoll roll;
  roll.came({0, 2}, kReplicas, 3, 0);
  roll.reset({{0, 1}});
  EXPECT_THAT(awaited(roll, {0, 5}), ElementsAre(AwaitedReplica{2, {0, 5}}));
  roll.reset();
  EXPECT_EQ(awaited(roll, {0, 5}).size(), 2U);
}

TEST(ReplicaRoll, ExpectsWhoIsInAnEarlierPassageAndNobodyOfALaterOne) {
  ReplicaRoll roll;
  roll.came({0, 1}, kReplicas, 11, 0);
  roll.came({0, 2}, kReplicas, 12, 2);
  EXPECT_THAT(roll.awaited({0, 0}, kReplicas, 1, {0, 5}, job::kNever),
              ElementsAre(AwaitedReplica{1, {0, 5}}));
  roll.goes_on({0, 1}, 99, 1);  // another one's word
  EXPECT_EQ(roll.awaited({0, 0}, kReplicas, 1, {0, 5}, job::kNever).size(), 1U);
  roll.goes_on({0, 1}, 11, 1);
  EXPECT_THAT(roll.awaited({0, 0}, kReplicas, 1, {0, 5}, job::kNever), IsEmpty());
  EXPECT_TRUE(roll.went({0, 2}, 12, true, {0, 9}));
  EXPECT_THAT(roll.awaited({0, 0}, kReplicas, 1, {0, 5}, job::kNever), IsEmpty());
  EXPECT_THAT(roll.awaited({0, 0}, kReplicas, 3, {0, 5}, job::kNever),
              ElementsAre(AwaitedReplica{1, {0, 5}}, AwaitedReplica{2, {0, 5}}));
}

}  // namespace
}  // namespace spdld::stream
