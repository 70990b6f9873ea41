// SPDX-License-Identifier: Apache-2.0
// Where jobs and their ranks go on: cursors, seeks, resizes, skips.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
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
  for (const delivery::StreamPosition to :
       {delivery::StreamPosition{.epoch = 0, .position = 11, .step = 1},
        delivery::StreamPosition{.epoch = 0, .position = 0, .step = kHuge},
        delivery::StreamPosition{.epoch = kHuge, .position = 0, .step = 0}}) {
    const Rank consumer = attach({});
    consumer.batch();
    sessions_->seek(*consumer.connection, {.to = to, .serial = 1});
    EXPECT_THAT(consumer.refusal(), HasSubstr("seek"));
    EXPECT_TRUE(consumer.connection->ending());
  }
}

TEST_F(SessionsTest, AnswersASeekThatComesRightAfterTheAttach) {
  for (int i = 0; i < 50; ++i) {
    const Rank consumer = attach({});
    consumer.attached();
    sessions_->seek(*consumer.connection,
                    {.to = {.epoch = 3, .position = 0, .step = 0}, .serial = 1});
    EXPECT_EQ(consumer.next<wire::ResetFrame>(wire::FrameType::kReset).seek, 1U);
    hang_up(consumer);
  }
}

TEST_F(SessionsTest, DealsAnEpochOutToAllRanksWhenAResizedJobIsSoughtBack) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, {.job = "j"}, 2));
  Rank second = attach({.job = "j", .shard = 1});
  second.attached();
  second.batch();
  second.passed = [&](const wire::BatchFrame& batch) {
    sessions_->release(*second.connection, batch.lease);
  };
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {0, 1}));
  const auto reset = second.next<wire::ResetFrame>(wire::FrameType::kReset);
  EXPECT_EQ(reset.position, 2U);
  EXPECT_EQ(reset.num_shards, 2);
  EXPECT_FALSE(second.connection->ending());
  const Rank first = attach({.job = "j", .shard = 0});
  const wire::BatchFrame batch = first.batch();
  EXPECT_EQ(batch.step, 1U);
  EXPECT_EQ(batch.next_position, 6U);
}

TEST_F(SessionsTest, DealsAnEpochOutToAllRanksThatComeWithACursorFromBeforeAResize) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, {.job = "j"}, 2));
  const Rank second =
      attach({.job = "j",
              .shard = 1,
              .cursor = delivery::StreamPosition{.epoch = 0, .position = 2, .step = 1}});
  const wire::BatchFrame batch = second.batch();
  EXPECT_EQ(batch.step, 1U);
  EXPECT_EQ(batch.next_position, 6U);
  EXPECT_FALSE(second.connection->ending());
}

TEST_F(SessionsTest, TakesBackARankThatWasAwayWhenTheJobWasResized) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {0, 4}));
  ASSERT_TRUE(sessions_->resize_job(self_, {.job = "j"}, 2));
  Wish wish{.job = "j",
            .shard = 0,
            .num_shards = 1,
            .cursor = delivery::StreamPosition{.epoch = 0, .position = 6, .step = 3}};
  EXPECT_THAT(attach(wish).refusal(), HasSubstr("has num_shards 2"));
  wish.reconnect = true;
  const Rank back = attach(wish);
  EXPECT_EQ(back.attached().num_shards, 2);
  // The step before the resize is still its own alone.
  EXPECT_EQ(back.batch().next_position, 8U);
}

TEST_F(SessionsTest, HandsOutItsLastStepsToAShardThatWasAwayWhenItWasLeftOut) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->resize_job(self_, {.job = "j"}, 2));
  const Rank stays = attach({.job = "j", .shard = 0});
  stays.attached();
  const Rank away = attach({.job = "j", .shard = 1});
  sessions_->release(*away.connection, away.batch().lease);
  away.batch();
  hang_up(away);
  const auto resized = sessions_->resize_job(self_, {.job = "j"}, 1);
  ASSERT_TRUE(resized);
  Wish wish{.job = "j",
            .shard = 1,
            .cursor = delivery::StreamPosition{.epoch = 0, .position = 4, .step = 1}};
  EXPECT_THAT(attach(wish).refusal(), HasSubstr("there is no shard 1"));
  wish.reconnect = true;
  Rank back = attach(wish);
  job::StepAt last;
  back.passed = [&](const wire::BatchFrame& batch) {
    sessions_->release(*back.connection, batch.lease);
    last = {batch.epoch, batch.step};
  };
  EXPECT_EQ(back.next<wire::ByeFrame>(wire::FrameType::kBye).reason, wire::ByeReason::kResized);
  const job::StepAt behind{last.epoch, last.step + 1};
  const job::StepAt from = resized->dealt_from;
  EXPECT_TRUE(from == behind || from == (job::StepAt{last.epoch + 1, 0}));
}

TEST_F(SessionsTest, RefusesToSeekAJobToWhereItCannotBe) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(2)));
  for (const job::StepAt to :
       {job::StepAt{0, 6}, job::StepAt{2, 0}, job::StepAt{kHuge, 0}, job::StepAt{0, kHuge}})
    EXPECT_FALSE(sessions_->seek_job(self_, {.job = "j"}, to)) << to.epoch << ", " << to.step;
}

TEST_F(SessionsTest, SurvivesAFreshRankBesideOneWhoseCursorIsFarBehindTheEpochsEnd) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  const Rank far =
      attach({.job = "j",
              .shard = 0,
              .cursor = delivery::StreamPosition{.epoch = 0, .position = 6, .step = 1000}});
  EXPECT_EQ(far.batch().step, 1000U);
  ASSERT_TRUE(sessions_->resize_job(self_, {.job = "j"}, 2));
  const Rank fresh = attach({.job = "j", .shard = 1});
  EXPECT_EQ(fresh.attached().num_shards, 2);
  // Its own batches never come to step 1000: the new deal begins with an epoch to come.
  EXPECT_GE(fresh.batch().epoch, 1U);
}

TEST_F(SessionsTest, ResizesAJobFromWhereItsRanksCursorsHaveIt) {
  declare_on_more();
  const Rank first =
      attach({.pipeline = "q",
              .job = "j",
              .shard = 0,
              .cursor = delivery::StreamPosition{.epoch = 0, .position = 1, .step = 2}});
  EXPECT_EQ(first.batch().next_position, 3U);
  ASSERT_TRUE(sessions_->resize_job(self_, {.job = "j"}, 2));
  const auto reset = first.next<wire::ResetFrame>(wire::FrameType::kReset);
  EXPECT_EQ(reset.epoch, 0U);
  // Another rank begins where no rank has been yet: rows in odd places, as the first cursor had it.
  const Rank second = attach({.pipeline = "q", .job = "j", .shard = 1});
  const wire::AttachedFrame told = second.attached();
  EXPECT_EQ(told.position, 1 + (told.step - 2) * 2);
}

TEST_F(SessionsTest, ChangesAJobWhereItsRanksAreThoughItHadBeenStartedFurtherOn) {
  ASSERT_TRUE(sessions_->create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->seek_job(self_, {.job = "j"}, {50, 0}));
  const Rank rank = attach(
      {.job = "j", .cursor = delivery::StreamPosition{.epoch = 3, .position = 2, .step = 1}});
  rank.batch();
  const auto skipped = sessions_->skip_steps(self_, {.job = "j"}, 1);
  ASSERT_TRUE(skipped);
  EXPECT_LT(skipped->dealt_from.epoch, 10U);
}

TEST_F(SessionsTest, LeavesTheSameOutForRanksThatGoBackHoweverFarTheyWere) {
  declare_on_more();
  Wish wish{.pipeline = "q", .job = "j"};
  Rank rank = attach(wish);
  for (int step = 0; step < 4; ++step) sessions_->release(*rank.connection, rank.batch().lease);
  const auto skipped = sessions_->skip_steps(self_, {.job = "j"}, 2);
  ASSERT_TRUE(skipped);
  const std::uint64_t from = skipped->dealt_from.step;
  ASSERT_GT(from, 2U);
  sessions_->seek(*rank.connection,
                  {.to = {.epoch = 0, .position = (from - 1) * 2, .step = from - 1}, .serial = 1});
  rank.passed = [&](const wire::BatchFrame& batch) {
    sessions_->release(*rank.connection, batch.lease);
  };
  rank.next<wire::ResetFrame>(wire::FrameType::kReset);
  while (rank.next<wire::ResetFrame>(wire::FrameType::kReset).seek != 1) {
  }
  EXPECT_EQ(rank.batch().next_position, from * 2);
  EXPECT_EQ(rank.batch().next_position, (from + 3) * 2);
}

}  // namespace
}  // namespace spdld::session
