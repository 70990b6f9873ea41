// SPDX-License-Identifier: Apache-2.0
// Where jobs and their ranks go on: cursors, seeks, resizes, skips.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

TEST_F(SessionsTest, RefusesACursorThatNoJobCanHave) {
  const auto from = [&](delivery::StreamPosition cursor) {
    return attach({.job = "j", .cursor = cursor}).refusal();
  };
  EXPECT_THAT(from({.epoch = 0, .position = 11, .step = 3}), HasSubstr("behind the last of 10"));
  EXPECT_THAT(from({.epoch = 0, .position = 0, .step = kHuge}), HasSubstr("no place in a job"));
  EXPECT_THAT(from({.epoch = kHuge, .position = 0, .step = 0}), HasSubstr("no place in a job"));
}

TEST_F(SessionsTest, EndsAConsumerThatSeeksWhereNoJobCanBe) {
  for (const delivery::SeekRequest& request :
       {delivery::SeekRequest{.turn = 0, .epoch = kHuge, .serial = 1},
        delivery::SeekRequest{.turn = kHuge, .epoch = 0, .serial = 1},
        delivery::SeekRequest{.turn = 100, .skip = 1, .serial = 1}}) {
    const Rank consumer = attach({});
    consumer.batch();
    sessions_->seek(*consumer.connection, request);
    EXPECT_THAT(consumer.refusal(), HasSubstr("seek"));
    EXPECT_TRUE(consumer.connection->ending());
  }
}

TEST_F(SessionsTest, AnswersASeekThatComesRightAfterTheAttach) {
  for (int i = 0; i < 50; ++i) {
    const Rank consumer = attach({});
    consumer.attached();
    sessions_->seek(*consumer.connection, {.turn = 0, .epoch = 3, .serial = 1});
    EXPECT_EQ(consumer.next<wire::ResetFrame>(wire::FrameType::kReset).seek, 1U);
    hang_up(consumer);
  }
}

TEST_F(SessionsTest, DealsAnEpochOutToAllRanksWhenAResizedJobIsSoughtBack) {
  ASSERT_TRUE(sessions_->operate().create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->operate().seek_job(self_, {.job = "j"}, {0, 4}));
  ASSERT_TRUE(sessions_->operate().resize_job(self_, {.job = "j"}, 2));
  Loop second = open({.job = "j", .shard = 1});
  step(second);
  ASSERT_TRUE(sessions_->operate().seek_job(self_, {.job = "j"}, {0, 1}));
  while (at(step(second)) != job::StepAt{0, 1}) {
  }
  EXPECT_EQ(second.wish.cursor->position, 8U) << "of two shards from the epoch's start on";
}

TEST_F(SessionsTest, DealsTheRestOutToAllRanksThatComeWithAPlaceAlone) {
  ASSERT_TRUE(sessions_->operate().create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->operate().resize_job(self_, {.job = "j"}, 2));
  Wish wish{.job = "j",
            .shard = 1,
            .cursor = delivery::StreamPosition{.epoch = 0, .position = 2, .step = 1}};
  Loop second = open(wish);
  EXPECT_EQ(second.wish.in_run.turn, 0U) << "the run begins";
  const wire::BatchFrame batch = step(second);
  EXPECT_EQ(batch.step, 1U);
  EXPECT_EQ(batch.next_position, 6U);
  wish.shard = 0;
  Loop first = open(wish);
  EXPECT_EQ(step(first).next_position, 6U);
}

TEST_F(SessionsTest, TakesBackARankThatWasAwayWhenTheJobWasResized) {
  ASSERT_TRUE(sessions_->operate().create_job(self_, declared(0)));
  Loop loop = open({.job = "j", .shard = 0, .num_shards = 1});
  read(loop, 1);
  const Wish saved = loop.wish;
  read(loop, 1);
  kill(loop);
  ASSERT_TRUE(sessions_->operate().resize_job(self_, {.job = "j"}, 2));
  Wish elsewhere = loop.wish;
  elsewhere.in_run.run = 17;
  elsewhere.shard = 1;
  Loop back = open(saved);
  EXPECT_THAT(attach(elsewhere).refusal(), HasSubstr("has num_shards 2"));
  EXPECT_EQ(step(back).next_position, 4U) << "the step before the resize is still its own alone";
}

TEST_F(SessionsTest, RefusesToSeekAJobToWhereItCannotBe) {
  ASSERT_TRUE(sessions_->operate().create_job(self_, declared(2)));
  for (const job::StepAt to :
       {job::StepAt{0, 6}, job::StepAt{2, 0}, job::StepAt{kHuge, 0}, job::StepAt{0, kHuge}})
    EXPECT_FALSE(sessions_->operate().seek_job(self_, {.job = "j"}, to))
        << to.epoch << ", " << to.step;
}

TEST_F(SessionsTest, RefusesToResizeAJobWhoseRanksAreInDifferentPlaces) {
  Loop far = open({.job = "j",
                   .shard = 0,
                   .num_shards = 2,
                   .cursor = delivery::StreamPosition{.epoch = 0, .position = 6, .step = 1000}});
  EXPECT_EQ(step(far).step, 1000U);
  Loop fresh = open({.job = "j", .shard = 1});
  EXPECT_EQ(step(fresh).step, 0U);
  const auto refused = sessions_->operate().resize_job(self_, {.job = "j"}, 1);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              ::testing::AllOf(HasSubstr("cannot be resized: where this would begin, shard 0 "
                                         "will be at epoch "),
                               HasSubstr(" and shard 1 at epoch ")));
}

TEST_F(SessionsTest, ResizesAJobFromWhereItsRanksCursorsHaveIt) {
  declare_on_more();
  Loop first = open({.pipeline = "q",
                     .job = "j",
                     .shard = 0,
                     .cursor = delivery::StreamPosition{.epoch = 0, .position = 1, .step = 2}});
  EXPECT_EQ(step(first).next_position, 3U);
  ASSERT_TRUE(sessions_->operate().resize_job(self_, {.job = "j"}, 2));
  Loop second{.rank = attach({.pipeline = "q", .job = "j", .shard = 1}), .wish = {}};
  second.rank.next<wire::ProgressFrame>(wire::FrameType::kProgress);
  while (sessions_->reports().jobs(self_).front().shards.at(1).session == 0) step(first);
  take_up(second);
  // Rows in odd places, as the first cursor had it.
  EXPECT_EQ(second.wish.cursor->position, 1 + (second.wish.cursor->step - 2) * 2);
}

TEST_F(SessionsTest, ChangesAJobWhereItsRanksAreThoughItHadBeenStartedFurtherOn) {
  ASSERT_TRUE(sessions_->operate().create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->operate().seek_job(self_, {.job = "j"}, {50, 0}));
  const Rank rank = attach(
      {.job = "j", .cursor = delivery::StreamPosition{.epoch = 3, .position = 2, .step = 1}});
  rank.batch();
  const auto skipped = sessions_->operate().skip_steps(self_, {.job = "j"}, 1);
  ASSERT_TRUE(skipped);
  EXPECT_LT(skipped->dealt_from.epoch, 10U);
}

TEST_F(SessionsTest, LeavesOutForALoopThatGoesBackWhatTheJobLeavesOutAtThatTurn) {
  declare_on_more();
  Loop loop = open({.pipeline = "q", .job = "j"});
  read(loop, 4);
  const auto skipped = sessions_->operate().skip_steps(self_, {.job = "j"}, 2);
  ASSERT_TRUE(skipped);
  const std::uint64_t turn = skipped->dealt_from.step;
  go_to_epoch(loop, 0);
  for (std::uint64_t number = 0; loop.wish.in_run.turn < turn; ++number)
    EXPECT_EQ(step(loop).step, number);
  EXPECT_EQ(step(loop).step, turn - 4 + 2);
}

TEST_F(SessionsTest, GoesOnInTheRunWhereARankComesAsTheLastOtherOneDies) {
  Loop here = open({.job = "run", .shard = 0, .num_shards = 2});
  Loop away = open({.job = "run", .shard = 1, .num_shards = 2});
  const std::uint64_t run = here.wish.in_run.run;
  EXPECT_EQ(away.wish.in_run.run, run);
  read(away, 1);
  kill(away);
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    read(here, 1);
    away.rank = attach(away.wish);
    kill(here);
    take_up(away);
    EXPECT_EQ(away.wish.in_run.run, run) << "in turn " << i;
    std::swap(here, away);
  }
}

}  // namespace
}  // namespace spdld::session
