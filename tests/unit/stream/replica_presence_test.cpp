// SPDX-License-Identifier: Apache-2.0
#include "stream/replica_presence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdld::stream {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::uint32_t kReplicas = 3;

std::vector<AwaitedReplica> awaited(const ReplicaPresence& presence, job::Turn from,
                                    job::Turn until = job::kNoTurn) {
  return presence.awaited({0, 0}, kReplicas, from, until);
}

TEST(ReplicaPresence, ExpectsAllOthersOfAFreshShard) {
  const ReplicaPresence presence;
  EXPECT_THAT(awaited(presence, 5), ElementsAre(AwaitedReplica{1, 5}, AwaitedReplica{2, 5}));
}

TEST(ReplicaPresence, ExpectsNobodyWhoIsHere) {
  ReplicaPresence presence;
  presence.came({0, 1}, kReplicas, 11);
  EXPECT_TRUE(presence.here({0, 1}));
  EXPECT_THAT(awaited(presence, 5), ElementsAre(AwaitedReplica{2, 5}));
}

TEST(ReplicaPresence, ExpectsWhoWasKilledFromWhereItWas) {
  ReplicaPresence presence;
  presence.came({0, 1}, kReplicas, 11);
  presence.came({0, 2}, kReplicas, 12);
  EXPECT_TRUE(presence.went({0, 1}, 11, true, 9));
  EXPECT_TRUE(presence.went({0, 2}, 12, true, 3));
  EXPECT_THAT(awaited(presence, 5), ElementsAre(AwaitedReplica{1, 9}, AwaitedReplica{2, 5}));
  EXPECT_THAT(awaited(presence, 5, 9), ElementsAre(AwaitedReplica{2, 5}))
      << "the first is beyond what is read here";
}

TEST(ReplicaPresence, ExpectsNobodyWhoSaidGoodBye) {
  ReplicaPresence presence;
  presence.came({0, 1}, kReplicas, 11);
  EXPECT_TRUE(presence.went({0, 1}, 11, false, 9));
  EXPECT_THAT(awaited(presence, 5), ElementsAre(AwaitedReplica{2, 5}));
  EXPECT_THAT(presence.done(), ElementsAre(job::Member{0, 1}));
}

TEST(ReplicaPresence, BelievesOnlyWhoHasThePlace) {
  ReplicaPresence presence;
  presence.came({0, 1}, kReplicas, 11);
  presence.came({0, 1}, kReplicas, 21);  // before the first was known to be gone
  EXPECT_FALSE(presence.went({0, 1}, 11, false, 9));
  EXPECT_TRUE(presence.here({0, 1}));
  EXPECT_TRUE(presence.went({0, 1}, 21, true, 9));
  EXPECT_FALSE(presence.went({0, 1}, 21, false, 9)) << "a second word counts for nothing";
  EXPECT_THAT(presence.done(), IsEmpty());
  EXPECT_FALSE(presence.went({7, 7}, 21, true, 0));
}

TEST(ReplicaPresence, BeginsAnewOnceAllOfAShardHaveFinished) {
  ReplicaPresence presence;
  for (std::uint32_t replica = 0; replica < kReplicas; ++replica) {
    presence.came({0, replica}, kReplicas, replica + 1);
    presence.came({1, replica}, kReplicas, replica + 11);
  }
  for (std::uint32_t replica = 0; replica < kReplicas; ++replica)
    EXPECT_TRUE(presence.went({0, replica}, replica + 1, false, 0));
  EXPECT_TRUE(presence.went({1, 0}, 11, false, 0));
  presence.came({0, 0}, kReplicas, 21);
  EXPECT_THAT(awaited(presence, 0), ElementsAre(AwaitedReplica{1, 0}, AwaitedReplica{2, 0}));
  EXPECT_THAT(presence.done(), ElementsAre(job::Member{1, 0})) << "the other shard is as it was";
}

TEST(ReplicaPresence, KnowsAfterARestartWhoHadFinished) {
  ReplicaPresence presence;
  presence.came({0, 2}, kReplicas, 3);
  presence.reset({{0, 1}});
  EXPECT_THAT(awaited(presence, 5), ElementsAre(AwaitedReplica{2, 5}));
  presence.reset();
  EXPECT_EQ(awaited(presence, 5).size(), 2U);
}

}  // namespace
}  // namespace spdld::stream
