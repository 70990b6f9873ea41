// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;

TEST_F(SessionsTest, LeavesNoJobBehindWhoseFirstRankWasRefused) {
  EXPECT_THAT(attach({.job = "j", .shard = 3}).refusal(), HasSubstr("there is no shard 3"));
  EXPECT_TRUE(sessions_->jobs(self_).empty());
  EXPECT_EQ(attach({.job = "j", .shard = 3, .num_shards = 4}).attached().num_shards, 4);
}

TEST_F(SessionsTest, RefusesMoreShardsThanItCouldList) {
  apply(yaml("padded", "pad"));
  EXPECT_THAT(attach({.pipeline = "padded", .job = "j", .shard = 0, .num_shards = 65537}).refusal(),
              HasSubstr("num_shards 65537 is not between"));
}

TEST_F(SessionsTest, TellsTheStatisticsOfAJobWhoseNameIsNotUtf8) {
  const Rank consumer = attach({.job = "\xff\xfe"});
  consumer.attached();
  sessions_->query(*consumer.connection, {.kind = wire::QueryKind::kStats, .serial = 1});
  std::string text;
  consumer.next<wire::BlobFrame>(wire::FrameType::kBlob, &text);
  EXPECT_THAT(text, HasSubstr("\"stages\""));
}

TEST_F(SessionsTest, EvictsTheRanksOfAnOlderIncarnationForANewerOne) {
  const Rank older = attach({.job = "j", .shard = 0, .num_shards = 2});
  older.attached();
  EXPECT_EQ(
      attach({.job = "j", .shard = 0, .num_shards = 1, .incarnation = 1}).attached().num_shards, 1);
  EXPECT_EQ(older.next<wire::ByeFrame>(wire::FrameType::kBye).reason, wire::ByeReason::kEvicted);
  EXPECT_THAT(attach({.job = "j", .shard = 1, .num_shards = 2}).refusal(),
              HasSubstr("has been evicted"));
}

TEST_F(SessionsTest, LetsRanksOfARunningJobComeThoughTheTextHasOtherVariablesNow) {
  std::string text = yaml("p", "drop");
  text.replace(text.find("4KiB"), 4, "\"${limit}\"");
  apply(text + "vars: {limit: 4KiB}\n");
  Wish wish{.job = "j", .shard = 0, .num_shards = 2, .vars = {{"limit", "8KiB"}}};
  const Rank first = attach(wish);
  first.batch();
  text.replace(text.find("${limit}"), 8, "${most}");
  apply(text + "vars: {most: 4KiB}\n");
  wish.shard = 1;
  EXPECT_EQ(attach(wish).attached().shard, 1);
  stop();
  start();
  apply(text + "vars: {most: 4KiB}\n");
  wish.reconnect = true;
  EXPECT_EQ(attach(wish).attached().shard, 1);
  wish.job = "another";
  EXPECT_THAT(attach(wish).refusal(),
              HasSubstr("'limit' (--var, vars=) names no variable of pipeline"));
}

TEST_F(SessionsTest, RefusesMoreConsumersOfAJobThanItCouldList) {
  JobRequest request = declared(0);
  request.num_shards = 1100;
  request.replicas = 64;
  request.pipeline = "padded";
  apply(yaml("padded", "pad"));
  const auto made = sessions_->create_job(self_, request);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(), HasSubstr("70400 consumers"));
  request.num_shards = 1000;
  ASSERT_TRUE(sessions_->create_job(self_, request));
  EXPECT_FALSE(sessions_->resize_job(self_, {.job = "j", .pipelines = {"padded"}}, 1100));
  EXPECT_THAT(
      attach({.pipeline = "padded", .job = "k", .shard = 0, .num_shards = 65536, .replicas = 2})
          .refusal(),
      HasSubstr("131072 consumers"));
}

}  // namespace
}  // namespace spdld::session
