// SPDX-License-Identifier: Apache-2.0
#include "session/frontiers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace spdld::session {
namespace {

using ::testing::ElementsAre;

constexpr job::Member kFirst{.shard = 0, .replica = 0};
constexpr job::Member kSecond{.shard = 1, .replica = 0};

// Epochs of a hundred steps.
stream::Timeline timeline() {
  auto phase = std::make_shared<pipeline::Phase>();
  phase->items = 400;
  phase->tail = Tail::kDrop;
  phase->batch = 2;
  return stream::Timeline(phase, 2);
}

// A consumer that reads so many steps, one batch each, from `from` on.
void read(Frontiers& frontiers, job::Member member, job::StepAt from, std::uint64_t steps) {
  frontiers.begin(member, from, false);
  frontiers.reach(member, {from.epoch, from.step + steps}, 0, steps);
}

TEST(Frontiers, KnowOfNoStepBeforeAConsumerBegins) {
  EXPECT_EQ(Frontiers().furthest(), std::nullopt);
}

TEST(Frontiers, AreAsFarAsTheFurthestConsumer) {
  Frontiers frontiers;
  read(frontiers, kFirst, {0, 0}, 2);
  read(frontiers, kSecond, {0, 0}, 18);
  EXPECT_EQ(frontiers.furthest(), (job::StepAt{0, 18}));
}

TEST(Frontiers, DoNotGoBackWithARankThatComesInTheFurthestOnesPlace) {
  Frontiers frontiers;
  read(frontiers, kSecond, {0, 0}, 18);
  frontiers.begin(kSecond, {0, 0}, false);
  frontiers.reach(kSecond, {0, 3}, 0, 3);
  EXPECT_EQ(frontiers.furthest(), (job::StepAt{0, 18}));
}

TEST(Frontiers, GoBackWithALoopThatSeeksBack) {
  Frontiers frontiers;
  read(frontiers, kFirst, {3, 0}, 18);
  frontiers.reach(kFirst, {0, 1}, 1, 19);
  EXPECT_EQ(frontiers.furthest(), (job::StepAt{0, 1}));
}

TEST(Frontiers, AreNotBeforeAChangeThatWasPlaced) {
  Frontiers frontiers;
  read(frontiers, kFirst, {0, 0}, 2);
  frontiers.raise({0, 24});
  frontiers.reach(kFirst, {0, 3}, 0, 3);
  EXPECT_EQ(frontiers.furthest(), (job::StepAt{0, 24}));
}

TEST(Frontiers, AreWhereAJobIsSent) {
  Frontiers frontiers;
  read(frontiers, kFirst, {5, 0}, 7);
  read(frontiers, kSecond, {5, 0}, 70);
  frontiers.go_to({1, 4});
  EXPECT_EQ(frontiers.furthest(), (job::StepAt{1, 4}));
}

TEST(Frontiers, CountWhoeverIsNotBackWhenAllRanksStartAgain) {
  Frontiers frontiers;
  read(frontiers, kFirst, {0, 0}, 20);
  read(frontiers, kSecond, {0, 0}, 30);
  frontiers.start_again(2);
  frontiers.begin(kFirst, {0, 5}, frontiers.returns(kFirst));
  EXPECT_EQ(frontiers.furthest(), (job::StepAt{0, 30}));
  frontiers.begin(kSecond, {0, 5}, frontiers.returns(kSecond));
  EXPECT_EQ(frontiers.furthest(), (job::StepAt{0, 5}));
  EXPECT_FALSE(frontiers.returns(kFirst)) << "it is back";
}

TEST(Frontiers, ForgetShardsThatAreNoMoreWhenAllRanksStartAgain) {
  Frontiers frontiers;
  read(frontiers, kFirst, {0, 0}, 20);
  read(frontiers, kSecond, {0, 0}, 30);
  frontiers.start_again(1);
  frontiers.begin(kFirst, {0, 5}, frontiers.returns(kFirst));
  EXPECT_EQ(frontiers.furthest(), (job::StepAt{0, 5}));
}

TEST(Frontiers, AreKeptAheadForConsumersThatRead) {
  Frontiers frontiers;
  read(frontiers, kFirst, {0, 0}, 2);
  read(frontiers, kSecond, {0, 0}, 18);
  const auto record = frontiers.stored(timeline(), {kFirst});
  EXPECT_THAT(record, ElementsAre(store::StoredFrontier{.member = kFirst, .at = {2, 58}},
                                  store::StoredFrontier{.member = kSecond, .at = {0, 18}}));
  Frontiers restored;
  restored.restore(record);
  EXPECT_EQ(restored.furthest(), (job::StepAt{2, 58}));
  EXPECT_EQ(restored.stored(timeline(), {}), record) << "nobody has read since";
}

TEST(Frontiers, AreWrittenAgainBeforeAConsumerIsFurtherThanTheRecordSays) {
  const stream::Timeline steps = timeline();
  Frontiers frontiers;
  frontiers.begin(kFirst, {0, 0}, false);
  job::StepAt on_disk;
  for (std::uint64_t second = 0, read = 0; second < 100; ++second) {
    if (frontiers.outrun(steps, {kFirst}, true)) {
      const auto record = frontiers.stored(steps, {kFirst});
      frontiers.kept(record);
      on_disk = record.front().at;
    }
    read += second < 50 ? 30 : 3;
    const job::StepAt next = steps.further({0, 0}, read);
    EXPECT_LE(next, on_disk) << "in second " << second;
    frontiers.reach(kFirst, next, 0, read);
  }
  // A job that reads slowly is said to be only that far ahead.
  const job::StepAt at = *frontiers.furthest();
  EXPECT_LE(frontiers.stored(steps, {kFirst}).front().at, steps.further(at, 24));
}

TEST(Frontiers, AreFurtherAheadOfAConsumerThatUsesUpInAMomentWhatWasMeantForSeconds) {
  Frontiers frontiers;
  frontiers.begin(kFirst, {0, 0}, false);
  frontiers.kept(frontiers.stored(timeline(), {kFirst}));
  EXPECT_FALSE(frontiers.outrun(timeline(), {kFirst}, false));
  EXPECT_EQ(frontiers.lead(), Frontiers::kFirstLead);
  frontiers.reach(kFirst, {1, 80}, 0, 180);
  EXPECT_TRUE(frontiers.outrun(timeline(), {kFirst}, false));
  EXPECT_EQ(frontiers.lead(), 2 * Frontiers::kFirstLead);
}

}  // namespace
}  // namespace spdld::session
