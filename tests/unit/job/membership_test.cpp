// SPDX-License-Identifier: Apache-2.0
#include "job/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdld::job {
namespace {

using ::testing::ElementsAre;
using Presence = Membership::Presence;

constexpr Member kShard0{.shard = 0, .replica = 0};
constexpr Member kShard1{.shard = 1, .replica = 0};

// Through epochs of a hundred steps.
StepAt further(StepAt at, std::uint64_t steps) {
  const std::uint64_t step = at.step + steps;
  return {at.epoch + step / 100, step % 100};
}

// The member is sent so many steps, one batch each, from where it began on.
void reach(Membership& members, Member member, StepAt next, std::uint64_t turn = 0,
           std::uint64_t batches = 0) {
  members.reach(member, {.next = next, .released = next}, {.turn = turn, .batches = batches}, 0);
}

void read(Membership& members, Member member, StepAt from, std::uint64_t steps) {
  members.begin(member, from, false);
  reach(members, member, {from.epoch, from.step + steps}, 0, steps);
}

TEST(Membership, KnowsOfNoStepBeforeAMemberBegins) {
  EXPECT_EQ(Membership().furthest(), std::nullopt);
  EXPECT_FALSE(Membership().anyone_left());
}

TEST(Membership, IsAsFarAsTheFurthestMember) {
  Membership members;
  read(members, kShard0, {0, 0}, 2);
  read(members, kShard1, {0, 0}, 18);
  EXPECT_EQ(members.furthest(), (StepAt{0, 18}));
}

TEST(Membership, DoesNotGoBackWithARankThatComesInTheFurthestOnesPlace) {
  Membership members;
  read(members, kShard1, {0, 0}, 18);
  members.leave(kShard1, false);
  members.begin(kShard1, {0, 0}, true);
  reach(members, kShard1, {0, 3}, 0, 3);
  EXPECT_EQ(members.furthest(), (StepAt{0, 18}));
}

TEST(Membership, GoesBackWithALoopThatSeeksBack) {
  Membership members;
  read(members, kShard0, {3, 0}, 18);
  reach(members, kShard0, {0, 1}, 1, 19);
  EXPECT_EQ(members.furthest(), (StepAt{0, 1}));
}

TEST(Membership, IsNotBeforeAChangeThatWasPlaced) {
  Membership members;
  read(members, kShard0, {0, 0}, 2);
  members.raise({0, 24});
  reach(members, kShard0, {0, 3}, 0, 3);
  EXPECT_EQ(members.furthest(), (StepAt{0, 24}));
  EXPECT_EQ(members.find(kShard0)->progress.next, (StepAt{0, 3})) << "which is where it is";
}

TEST(Membership, IsWhereAJobIsSent) {
  Membership members;
  read(members, kShard0, {5, 0}, 7);
  read(members, kShard1, {5, 0}, 70);
  members.leave(kShard1, false);
  members.go_to({1, 4}, 40);
  EXPECT_EQ(members.furthest(), (StepAt{1, 4}));
  EXPECT_EQ(members.find(kShard1)->progress,
            (Progress{.next = {1, 4}, .released = {1, 4}, .released_position = 40}))
      << "who is away goes on there, too";
}

TEST(Membership, CountsWhoIsNotBackWhenAllRanksStartAgain) {
  Membership members;
  for (const auto& [member, steps] : {std::pair{kShard0, 20}, std::pair{kShard1, 30}}) {
    read(members, member, {0, 0}, static_cast<std::uint64_t>(steps));
    members.leave(member, false);
  }
  members.start_again(2, {0, 5}, 10);
  EXPECT_FALSE(members.anyone_left()) << "what they had given back before is of no matter";
  EXPECT_EQ(members.released(1), (StepAt{0, 5})) << "it begins there, too";
  EXPECT_TRUE(members.stopped_at(1, {0, 5}));
  members.begin(kShard0, {0, 5}, true);
  EXPECT_EQ(members.furthest(), (StepAt{0, 30}));
  EXPECT_EQ(members.returning(2), kShard1);
  EXPECT_EQ(members.returning(1), std::nullopt) << "of that one shard";
  members.begin(kShard1, {0, 5}, true);
  EXPECT_EQ(members.furthest(), (StepAt{0, 5}));
}

TEST(Membership, ForgetsShardsThatAreNoMoreWhenAllRanksStartAgain) {
  Membership members;
  read(members, kShard0, {0, 0}, 20);
  read(members, kShard1, {0, 0}, 30);
  members.start_again(1, {0, 5}, 10);
  members.begin(kShard0, {0, 5}, true);
  EXPECT_EQ(members.furthest(), (StepAt{0, 5}));
}

TEST(Membership, KnowsWhoIsYetToReadAShardThatGoesWhenTheOthersBeginAgain) {
  Membership members;
  for (const Member member : {kShard0, kShard1}) {
    read(members, member, {0, 0}, 20);
    members.leave(member, false);
  }
  members.begin_again(1);
  EXPECT_EQ(members.released(0), std::nullopt);
  EXPECT_NE(members.released(1), std::nullopt);
}

TEST(Membership, KnowsWhetherAllHaveSaidGoodBye) {
  Membership members;
  read(members, kShard0, {0, 0}, 20);
  read(members, kShard1, {0, 0}, 30);
  members.leave(kShard0, true);
  EXPECT_TRUE(members.anyone_left());
  EXPECT_TRUE(members.all_done());
  members.leave(kShard1, false);
  EXPECT_FALSE(members.all_done());
}

TEST(Membership, KnowsUpToWhereAShardWasRead) {
  Membership members;
  EXPECT_EQ(members.released(1), std::nullopt) << "by nobody";
  members.begin(kShard1, {0, 0}, false);
  members.reach(kShard1, {.next = {0, 24}, .released = {0, 22}}, {.batches = 24}, 0);
  members.leave(kShard1, false);
  EXPECT_EQ(members.released(1), (StepAt{0, 22})) << "it was killed, with batches in hand";
  EXPECT_FALSE(members.stopped_at(1, {0, 21}));
  EXPECT_TRUE(members.stopped_at(1, {0, 22}));
  EXPECT_FALSE(members.stopped_at(1, {0, 25})) << "it was sent no step 24";
  members.leave(kShard1, true);
  EXPECT_FALSE(members.stopped_at(1, {0, 23})) << "it has said that it is done with them";
  EXPECT_TRUE(members.stopped_at(1, {0, 24}));
  read(members, {.shard = 1, .replica = 1}, {0, 0}, 3);
  EXPECT_EQ(members.released(1), (StepAt{0, 3})) << "its other replica has not come so far";
  EXPECT_EQ(members.released(0), std::nullopt);
  read(members, kShard0, {0, 0}, 2);
  EXPECT_EQ(members.released(), (StepAt{0, 2})) << "of all";
}

TEST(Membership, ExpectsWhoWasHereWhenADaemonDied) {
  Membership before;
  read(before, kShard0, {0, 0}, 2);
  read(before, kShard1, {0, 0}, 18);
  before.leave(kShard1, false);
  Membership members;
  members.restore(before.record(further));
  EXPECT_EQ(members.expected(), kShard0);
  EXPECT_EQ(members.find(kShard1)->presence, Presence::kAway);
  EXPECT_FALSE(members.anyone_left()) << "the record may be older than what they have given back";
  members.begin(kShard0, {0, 2}, true);
  EXPECT_EQ(members.expected(), std::nullopt);
  EXPECT_EQ(members.furthest(), (StepAt{0, 18})) << "it has said where it is itself";
}

TEST(Membership, StopsExpectingWhoDoesNotComeBack) {
  Membership before;
  read(before, kShard0, {0, 0}, 2);
  Membership members;
  members.restore(before.record(further));
  EXPECT_TRUE(members.stop_expecting());
  EXPECT_EQ(members.expected(), std::nullopt);
  EXPECT_FALSE(members.stop_expecting());
  EXPECT_GT(members.furthest(), (StepAt{0, 2})) << "it may have read on to there";
  members.begin(kShard0, {0, 2}, true);
  EXPECT_EQ(members.furthest(), (StepAt{0, 2})) << "it has said where it is itself";
}

TEST(Membership, IsRecordedAheadOfMembersThatAreHere) {
  Membership members;
  read(members, kShard0, {0, 0}, 2);
  read(members, kShard1, {0, 0}, 18);
  members.leave(kShard1, true);
  const auto record = members.record(further);
  EXPECT_THAT(record, ElementsAre(MemberRecord{.member = kShard0,
                                               .presence = Presence::kHere,
                                               .next = {0, 2},
                                               .released = {0, 2},
                                               .reserved = {2, 58}},
                                  MemberRecord{.member = kShard1,
                                               .presence = Presence::kDone,
                                               .next = {0, 18},
                                               .released = {0, 18},
                                               .reserved = {0, 18}}));
  Membership restored;
  restored.restore(record);
  EXPECT_EQ(restored.furthest(), (StepAt{2, 58}));
  restored.stop_expecting();
  EXPECT_EQ(restored.record(further).front().reserved, (StepAt{2, 58})) << "nobody has read since";
}

TEST(Membership, IsRecordedAgainBeforeAMemberIsFurtherThanTheRecordSays) {
  Membership members;
  members.begin(kShard0, {0, 0}, false);
  StepAt on_disk;
  for (std::uint64_t second = 0, read = 0; second < 100; ++second) {
    if (members.outruns_record(further, true)) {
      const auto record = members.record(further);
      members.kept(record);
      on_disk = record.front().reserved;
    }
    read += second < 50 ? 30 : 3;
    const StepAt next = further({0, 0}, read);
    EXPECT_LE(next, on_disk) << "in second " << second;
    reach(members, kShard0, next, 0, read);
  }
  // A job that reads slowly is said to be only that far ahead.
  EXPECT_LE(members.record(further).front().reserved, further(*members.furthest(), 24));
}

TEST(Membership, IsRecordedBehindAllThatAMemberMayBeSent) {
  Membership members;
  members.begin(kShard0, {0, 0}, false);
  for (int second = 0; second < 10; ++second) {  // it reads slowly: the lead shrinks
    (void)members.outruns_record(further, true);
    members.reach(kShard0, {.next = {0, 30}, .released = {0, 30}}, {.batches = 30}, 226);
  }
  EXPECT_EQ(members.lead(), Membership::kLeastLead);
  EXPECT_EQ(members.record(further).front().reserved, (StepAt{2, 56}));
}

TEST(Membership, IsRecordedAgainOnceALoopHasSoughtBack) {
  Membership members;
  read(members, kShard0, {3, 0}, 18);
  members.kept(members.record(further));
  EXPECT_FALSE(members.outruns_record(further, false));
  reach(members, kShard0, {0, 1}, 1, 19);
  EXPECT_TRUE(members.outruns_record(further, false));
}

TEST(Membership, IsRecordedFurtherAheadOfAMemberThatUsesUpInAMomentWhatWasMeantForSeconds) {
  Membership members;
  members.begin(kShard0, {0, 0}, false);
  members.kept(members.record(further));
  EXPECT_FALSE(members.outruns_record(further, false));
  EXPECT_EQ(members.lead(), Membership::kFirstLead);
  reach(members, kShard0, {1, 80}, 0, 180);
  EXPECT_TRUE(members.outruns_record(further, false));
  EXPECT_EQ(members.lead(), 2 * Membership::kFirstLead);
}

}  // namespace
}  // namespace spdld::job
