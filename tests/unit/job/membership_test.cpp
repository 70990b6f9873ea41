// SPDX-License-Identifier: Apache-2.0
#include "job/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace spdld::job {
namespace {

using ::testing::ElementsAre;
using Presence = Membership::Presence;

constexpr Member kShard0{.shard = 0, .replica = 0};
constexpr Member kShard1{.shard = 1, .replica = 0};

// Sent the turns before `sent`, and has given back those before `released`.
Progress progress(Turn sent, Turn released) {
  return {.sent = sent,
          .next = {0, sent},
          .released = released,
          .at = {0, released},
          .position = 10 * released,
          .order = "order"};
}
Progress at(Turn turn) { return progress(turn, turn); }

// It attaches at the first turn, and reads so many.
void read(Membership& members, Member member, Turn turns) {
  members.begin(member, at(0));
  members.reach(member, at(turns));
}

// As a daemon has it that was killed and started again.
Membership restarted(const Membership& before, Turn reserved) {
  Membership members;
  members.restore(before.record(), reserved, before.reached());
  return members;
}

TEST(Membership, KnowsOfNoTurnBeforeAMemberBegins) {
  const Membership members;
  EXPECT_EQ(members.frontier(), 0U);
  EXPECT_EQ(members.reached(), 0U);
  EXPECT_EQ(members.released(), kNoTurn) << "nobody is yet to give anything back";
  EXPECT_EQ(members.to_reserve(0, kNoTurn), 0U);
  EXPECT_FALSE(members.anyone_left());
}

TEST(Membership, IsAsFarAsTheFurthestMember) {
  Membership members;
  read(members, kShard0, 2);
  read(members, kShard1, 18);
  EXPECT_EQ(members.frontier(), 18U);
  EXPECT_EQ(members.reached(), 18U);
  EXPECT_EQ(members.find(kShard0)->progress, at(2));
  EXPECT_EQ(members.find({.shard = 2, .replica = 0}), nullptr);
}

TEST(Membership, CountsAMemberThatHasLeft) {
  for (const bool done : {false, true}) {
    Membership members;
    read(members, kShard0, 2);
    read(members, kShard1, 18);
    members.leave(kShard1, done);
    EXPECT_EQ(members.frontier(), 18U);
    EXPECT_EQ(members.find(kShard1)->presence, done ? Presence::kDone : Presence::kAway);
  }
}

TEST(Membership, BelievesAMemberThatAttachesAgainWhereItIs) {
  Membership members;
  read(members, kShard0, 2);
  read(members, kShard1, 18);
  members.leave(kShard1, false);
  members.begin(kShard1, at(5));
  EXPECT_EQ(members.frontier(), 5U);
  EXPECT_EQ(members.reached(), 18U) << "it was sent more once";
  members.begin(kShard0, at(25));
  EXPECT_EQ(members.frontier(), 25U);
  EXPECT_EQ(members.reached(), 25U);
}

TEST(Membership, HasGivenBackWhatItsSlowestMemberHas) {
  Membership members;
  read(members, kShard0, 0);
  read(members, kShard1, 0);
  members.reach(kShard0, progress(20, 17));
  members.reach(kShard1, progress(18, 14));
  EXPECT_EQ(members.released(), 14U);
  members.leave(kShard1, false);
  EXPECT_EQ(members.released(), 17U) << "of those that are here";
  Membership again = restarted(members, 100);
  EXPECT_EQ(again.released(), 17U) << "and that are expected";
  again.stop_expecting();
  EXPECT_EQ(again.released(), kNoTurn);
}

TEST(Membership, KnowsWhetherAllThatHaveLeftSaidGoodBye) {
  Membership members;
  read(members, kShard0, 20);
  read(members, kShard1, 30);
  EXPECT_FALSE(members.anyone_left());
  members.leave(kShard0, true);
  EXPECT_TRUE(members.anyone_left());
  EXPECT_TRUE(members.all_done());
  members.leave(kShard1, false);
  EXPECT_FALSE(members.all_done());
  members.begin(kShard1, at(30));
  EXPECT_TRUE(members.all_done());
}

TEST(Membership, ReachesNoFurtherThanWhereABranchParts) {
  Membership members;
  read(members, kShard0, 40);
  members.begin(kShard0, at(12));  // from a saved state
  EXPECT_EQ(members.reached(), 40U);
  members.part(12);
  EXPECT_EQ(members.reached(), 12U);
  members.part(50);
  EXPECT_EQ(members.reached(), 12U) << "nobody was sent so many";
  members.reach(kShard0, at(13));
  EXPECT_EQ(members.reached(), 13U);
}

TEST(Membership, SendsMembersThatAreAwayWhereAnOperatorSendsTheJob) {
  Membership members;
  for (std::uint32_t shard = 0; shard < 4; ++shard)
    read(members, {.shard = shard, .replica = 0}, 20 + shard);
  members.leave({.shard = 1, .replica = 0}, false);
  members.leave({.shard = 2, .replica = 0}, true);
  const Progress there{
      .sent = 23, .next = {5, 1}, .released = 23, .at = {5, 1}, .position = 70, .order = "other"};
  members.go_to(there);
  EXPECT_EQ(members.find({.shard = 0, .replica = 0})->progress, at(20)) << "it is sent there";
  EXPECT_EQ(members.find({.shard = 1, .replica = 0})->progress, there);
  EXPECT_EQ(members.find({.shard = 2, .replica = 0})->progress, there);
  EXPECT_EQ(members.frontier(), 23U);

  Membership again = restarted(members, 300);
  again.go_to({.sent = 300, .next = {7, 0}, .released = 300, .at = {7, 0}});
  EXPECT_EQ(again.expected(), std::nullopt) << "nobody is waited for any more";
  EXPECT_EQ(again.find({.shard = 3, .replica = 0})->progress.next, (StepAt{7, 0}));
}

TEST(Membership, ForgetsItsMembersWhenAllStartAgain) {
  Membership members;
  read(members, kShard0, 20);
  read(members, kShard1, 30);
  members.kept(286);
  members.start_again();
  EXPECT_TRUE(members.entries().empty());
  EXPECT_EQ(members.frontier(), 0U);
  EXPECT_EQ(members.reached(), 30U) << "of the same run";
  EXPECT_EQ(restarted(members, 0).reached(), 30U) << "a daemon to come must know of these";
  members.begin(kShard0, at(5));
  EXPECT_EQ(members.frontier(), 5U);
}

TEST(Membership, KnowsNothingOfARunBefore) {
  Membership members;
  read(members, kShard0, 20);
  members.kept(276);
  members.clear();
  EXPECT_TRUE(members.entries().empty());
  EXPECT_EQ(members.reached(), 0U);
  members.begin(kShard0, at(0));
  EXPECT_TRUE(members.outruns_record(false, kNoTurn)) << "nothing of this one is on disk";
}

TEST(Membership, ExpectsAfterARestartTheMembersThatWereHere) {
  Membership before;
  read(before, kShard0, 2);
  read(before, kShard1, 18);
  before.leave(kShard1, false);
  read(before, {.shard = 2, .replica = 0}, 18);
  before.leave({.shard = 2, .replica = 0}, true);
  Membership members = restarted(before, 274);
  EXPECT_EQ(members.expected(), kShard0);
  EXPECT_EQ(members.find(kShard1)->presence, Presence::kAway);
  EXPECT_EQ(members.find(kShard1)->progress, at(18));
  EXPECT_EQ(members.find({.shard = 2, .replica = 0})->presence, Presence::kDone);
  // One that was expected still is after the next restart.
  EXPECT_EQ(restarted(members, 274).expected(), kShard0);
  members.begin(kShard0, at(2));
  EXPECT_EQ(members.expected(), std::nullopt);
}

TEST(Membership, CountsAnExpectedMemberWithTheReservedTurnUntilItIsBack) {
  Membership before;
  read(before, kShard0, 2);
  read(before, kShard1, 18);
  Membership members = restarted(before, 274);
  EXPECT_EQ(members.find(kShard0)->progress.released, 2U);
  members.begin(kShard0, at(60));
  EXPECT_EQ(members.frontier(), 274U);
  members.begin(kShard1, at(61));
  EXPECT_EQ(members.frontier(), 61U) << "all have said where they are";
  EXPECT_EQ(members.reached(), 274U) << "one of them may have been sent more";
}

TEST(Membership, CountsAMemberThatDidNotComeBackWithTheReservedTurn) {
  Membership before;
  read(before, kShard0, 2);
  Membership members = restarted(before, 258);
  EXPECT_TRUE(members.stop_expecting());
  EXPECT_EQ(members.expected(), std::nullopt);
  EXPECT_FALSE(members.stop_expecting());
  EXPECT_EQ(members.frontier(), 258U);
  EXPECT_EQ(members.to_reserve(0, kNoTurn), 258U) << "nobody has read since";
  members.begin(kShard0, at(2));
  EXPECT_EQ(members.frontier(), 2U);
}

TEST(Membership, RecordsEachMemberAsItIs) {
  Membership members;
  read(members, kShard0, 0);
  members.reach(kShard0, progress(20, 17));
  read(members, kShard1, 18);
  members.leave(kShard1, true);
  EXPECT_THAT(
      members.record(),
      ElementsAre(
          MemberRecord{
              .member = kShard0, .presence = Presence::kHere, .progress = progress(20, 17)},
          MemberRecord{.member = kShard1, .presence = Presence::kDone, .progress = at(18)}));
}

TEST(Membership, ReservesATurnAheadOfAllWhileAMemberIsHere) {
  Membership members;
  read(members, kShard0, 2);
  read(members, kShard1, 18);
  EXPECT_EQ(members.to_reserve(0, kNoTurn), 18 + Membership::kFirstLead);
  members.leave(kShard0, false);
  members.leave(kShard1, false);
  EXPECT_EQ(members.to_reserve(0, kNoTurn), 18U) << "nobody is sent anything";
}

TEST(Membership, ReservesNoTurnBeyondTheOneAtWhichASwapIsDue) {
  Membership members;
  read(members, kShard0, 2);
  read(members, kShard1, 18);
  EXPECT_EQ(members.to_reserve(0, 40), 40U);
  EXPECT_EQ(members.to_reserve(60, 40), 60U) << "a loop that seeks back may be sent these";
  EXPECT_EQ(members.to_reserve(0, 3), 18U) << "a member was sent these";
  members.kept(40);
  members.reach(kShard1, at(39));
  EXPECT_FALSE(members.outruns_record(false, 40));
  EXPECT_TRUE(members.outruns_record(false, 41));
}

TEST(Membership, NeedsNoNewRecordWithoutAMember) {
  Membership members;
  EXPECT_FALSE(members.outruns_record(true, kNoTurn));
  read(members, kShard0, 300);
  EXPECT_TRUE(members.outruns_record(false, kNoTurn));
  members.leave(kShard0, false);
  EXPECT_FALSE(members.outruns_record(false, kNoTurn));
}

TEST(Membership, IsRecordedAgainBeforeAMemberComesToTheReservedTurn) {
  Membership members;
  members.begin(kShard0, at(0));
  Turn on_disk = 0;
  int writes = 0;
  Turn sent = 0;
  for (int second = 0; second < 100; ++second) {
    if (members.outruns_record(true, kNoTurn)) {
      on_disk = members.to_reserve(0, kNoTurn);
      members.kept(on_disk);
      ++writes;
    }
    sent += second < 50 ? 30 : 3;
    EXPECT_LT(sent, on_disk) << "in second " << second;
    members.reach(kShard0, at(sent));
  }
  EXPECT_LT(writes, 50) << "not with each second";
  EXPECT_EQ(members.to_reserve(0, kNoTurn), sent + Membership::kLeadSeconds * 3)
      << "a job that reads slowly reserves as little";
}

TEST(Membership, ReservesAFewTurnsForAMemberThatReadsNothing) {
  Membership members;
  members.begin(kShard0, at(7));
  for (int second = 0; second < 10; ++second) (void)members.outruns_record(true, kNoTurn);
  EXPECT_EQ(members.to_reserve(0, kNoTurn), 7 + Membership::kLeastLead);
}

TEST(Membership, ReservesFurtherAheadOfAMemberThatUsesUpInAMomentTheTurnsOfSeconds) {
  Membership members;
  members.begin(kShard0, at(0));
  members.kept(members.to_reserve(0, kNoTurn));
  EXPECT_FALSE(members.outruns_record(false, kNoTurn));
  members.reach(kShard0, at(180));
  EXPECT_TRUE(members.outruns_record(false, kNoTurn));
  EXPECT_EQ(members.to_reserve(0, kNoTurn), 180 + 2 * Membership::kFirstLead);
}

TEST(Membership, ReservesNoMoreThanAMillionTurnsAhead) {
  Membership members;
  members.begin(kShard0, at(0));
  members.kept(1);
  for (Turn turn = 1; turn < 64; ++turn) {
    (void)members.outruns_record(false, kNoTurn);
    members.reach(kShard0, at(turn << 24));
    (void)members.outruns_record(true, kNoTurn);
  }
  EXPECT_EQ(members.to_reserve(0, kNoTurn), members.frontier() + Membership::kMostLead);
}

}  // namespace
}  // namespace spdld::job
