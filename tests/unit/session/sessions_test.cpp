// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(SessionsTest, LeavesNoJobBehindWhoseFirstRankWasRefused) {
  EXPECT_THAT(attach({.job = "j", .shard = 3}).refusal(), HasSubstr("there is no shard 3"));
  EXPECT_TRUE(sessions_->reports().jobs(self_).empty());
  EXPECT_EQ(attach({.job = "j", .shard = 3, .num_shards = 4}).attached().num_shards, 4);
}

TEST_F(SessionsTest, RefusesMoreShardsThanItCouldList) {
  apply(yaml("padded", "pad"));
  EXPECT_THAT(attach({.pipeline = "padded", .job = "j", .shard = 0, .num_shards = 65537}).refusal(),
              HasSubstr("num_shards 65537 is not between"));
}

TEST_F(SessionsTest, TellsHowFastRowsAreHandedOut) {
  const Rank consumer = attach({.job = "j", .credits = 2});
  const std::array<wire::BatchFrame, 2> held = {consumer.batch(), consumer.batch()};
  sessions_->tick();
  EXPECT_EQ(sessions_->reports().jobs(self_).at(0).rows, 4U);
  EXPECT_FALSE(sessions_->reports().jobs(self_).at(0).rows_per_s) << "one look tells no rate";
  EXPECT_FALSE(sessions_->reports().totals().rows_per_s);

  for (const wire::BatchFrame& batch : held) sessions_->release(*consumer.connection, batch.lease);
  consumer.batch();
  consumer.batch();
  // So long that what the test itself takes is lost in it.
  constexpr std::chrono::hours kLong{100};
  clock_.advance(kLong);
  sessions_->tick();
  const auto in_all = [&](const std::optional<double>& per_s) {
    return std::round(per_s.value_or(-1) * std::chrono::seconds(kLong).count());
  };
  EXPECT_EQ(in_all(sessions_->reports().jobs(self_).at(0).rows_per_s), 4);
  EXPECT_EQ(in_all(sessions_->reports().sessions(self_).at(0).lately.value().rows_per_s), 4);
  EXPECT_EQ(in_all(sessions_->reports().totals().rows_per_s), 4);
  EXPECT_EQ(in_all(sessions_->reports().totals().batches_per_s), 2);
  for (const job::StageView& stage : sessions_->reports().stages(self_)) {
    EXPECT_TRUE(stage.rows_per_s) << stage.stage;
    EXPECT_GE(stage.busy_share.value_or(-1), 0) << stage.stage;
    EXPECT_LE(stage.busy_share.value_or(2), 1) << stage.stage;
  }

  sessions_->detach(*consumer.connection);
  const std::vector<store::StoredEnd> ended = sessions_->reports().ended(self_);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].view.rows, 8U);
  EXPECT_FALSE(ended[0].view.rows_per_s);
  for (const job::StageView& stage : ended[0].stages) EXPECT_FALSE(stage.rows_per_s) << stage.stage;
}

TEST_F(SessionsTest, TellsWhatTheTasksOfTheLastSecondsTook) {
  const Rank consumer = attach({.job = "j", .credits = 1});
  const auto stage = [&] { return sessions_->reports().stages(self_).back(); };
  sessions_->release(*consumer.connection, consumer.batch().lease);
  sessions_->tick();
  EXPECT_FALSE(stage().p50_lately_us) << "one look tells of no time";
  const std::uint64_t before = stage().tasks;
  while (stage().tasks == before) sessions_->release(*consumer.connection, consumer.batch().lease);
  clock_.advance(std::chrono::seconds(2));
  sessions_->tick();
  const job::StageView now = stage();
  ASSERT_TRUE(now.p50_lately_us);
  EXPECT_LE(now.p50_lately_us, now.p90_lately_us);
  EXPECT_LE(now.p90_lately_us, now.p99_lately_us);

  // Nothing is made any more: tasks that were made before leave.
  const wire::BatchFrame last = consumer.batch();
  for (std::optional<std::uint64_t> tasks; tasks != stage().tasks; sessions_->tick()) {
    tasks = stage().tasks;
    clock_.advance(std::chrono::seconds(6));
    sessions_->tick();
    clock_.advance(std::chrono::seconds(6));
  }
  EXPECT_FALSE(stage().p50_lately_us);
  EXPECT_GT(stage().tasks, before);
  sessions_->release(*consumer.connection, last.lease);
}

TEST_F(SessionsTest, TellsTheStatisticsOfAJobWhoseNameIsNotUtf8) {
  const Rank consumer = attach({.job = "\xff\xfe"});
  consumer.attached();
  sessions_->query(*consumer.connection, {.kind = wire::QueryKind::kStats, .serial = 1});
  std::string text;
  consumer.next<wire::BlobFrame>(wire::FrameType::kBlob, &text);
  EXPECT_THAT(text, HasSubstr("\"stages\""));
}

TEST_F(SessionsTest, TellsWhatItemsAreCalledByTheOrderTheyAreOf) {
  const Rank consumer = attach({.job = "j"});
  std::string texts;
  consumer.next<wire::AttachedFrame>(wire::FrameType::kAttached, &texts);
  const std::string digest(texts.data() + sizeof(wire::TextHeader),
                           reinterpret_cast<const wire::TextHeader*>(texts.data())->bytes);
  const auto ask = [&](std::vector<std::int64_t> items, const std::string& of) {
    sessions_->query(*consumer.connection, {.kind = wire::QueryKind::kUris,
                                            .serial = 1,
                                            .items = std::move(items),
                                            .order_digest = of});
  };
  const auto refusal = [&] {
    std::string text;
    EXPECT_EQ(consumer.next<wire::RefusedFrame>(wire::FrameType::kRefused, &text).serial, 1U);
    return text;
  };
  std::string uris;
  ask({3, 9, 3}, digest);
  EXPECT_EQ(consumer.next<wire::BlobFrame>(wire::FrameType::kBlob, &uris).kind,
            wire::BlobKind::kUris);
  EXPECT_EQ(uris, std::string("3.bin\0009.bin\0003.bin\0", 18));
  for (const std::int64_t none : {std::int64_t{-1}, std::int64_t{10}}) {
    ask({0, none}, digest);
    EXPECT_THAT(refusal(), HasSubstr("the dataset of pipeline 'p' has 10 items, and none"));
  }
  ask({0}, "another");
  EXPECT_THAT(refusal(),
              HasSubstr("are not those of job 'j' any more: read batch.uris as the batch "
                        "comes"));
}

TEST_F(SessionsTest, ShowsWhatAConsumerSaysOfItself) {
  Rank consumer = connect();
  delivery::AttachRequest request;
  request.pipeline = "p";
  request.job = "j";
  request.command = "python train.py" + std::string(1000, 'x');
  request.host = "pod-7";
  request.host_pid = 17;
  sessions_->attach(consumer.connection, std::move(request));
  consumer.attached();
  sessions_->waited(*consumer.connection, {.waited = std::chrono::milliseconds(1500),
                                           .waits = 2,
                                           .steps = 40,
                                           .between = std::chrono::milliseconds(2500),
                                           .mapped = std::chrono::milliseconds(500),
                                           .waits_by_length = {0, 1, 0, 0, 1, 0}});
  const auto sessions = sessions_->reports().sessions(self_);
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].command.substr(0, 16), "python train.pyx");
  EXPECT_EQ(sessions[0].command.size(), 512u);
  EXPECT_EQ(sessions[0].host, "pod-7");
  EXPECT_EQ(sessions[0].host_pid, 17u);
  EXPECT_EQ(sessions[0].waited_s, 1.5);
  EXPECT_EQ(sessions[0].waits, 2u);
  EXPECT_EQ(sessions[0].steps, 40u);
  EXPECT_EQ(sessions[0].between_s, 2.5);
  EXPECT_EQ(sessions[0].map_s, 0.5);
  EXPECT_THAT(sessions[0].waits_by_length, ElementsAre(0, 1, 0, 0, 1, 0));
}

TEST_F(SessionsTest, TellsWhatPartOfItsTimeALoopHasTakenItself) {
  const Rank consumer = attach({.job = "j"});
  consumer.batch();
  const auto lately = [&] { return sessions_->reports().sessions(self_).at(0).lately; };
  const delivery::WaitedNotice first{.steps = 1, .between = std::chrono::hours(7)};
  sessions_->waited(*consumer.connection, first);
  sessions_->tick();
  // So long that what the test itself takes is lost in it.
  clock_.advance(std::chrono::hours(100));
  delivery::WaitedNotice second = first;
  second.between += std::chrono::hours(25);
  second.mapped += std::chrono::hours(150);
  sessions_->waited(*consumer.connection, second);
  sessions_->tick();
  EXPECT_NEAR(lately().value().between_share, 0.25, 1e-3);
  EXPECT_NEAR(lately().value().map_share, 1.5, 1e-3) << "of two threads";
}

TEST_F(SessionsTest, GoesByNoSumsOfALoopThatItWasToldForTheFirstTime) {
  const Rank consumer = attach({.job = "j"});
  consumer.batch();
  sessions_->tick();
  clock_.advance(std::chrono::hours(1));
  // The loader has been open for long, and has come back.
  sessions_->waited(*consumer.connection, {.between = std::chrono::hours(100)});
  sessions_->tick();
  EXPECT_FALSE(sessions_->reports().sessions(self_).at(0).lately);
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
  const auto made = sessions_->operate().create_job(self_, request);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message(), HasSubstr("70400 consumers"));
  request.num_shards = 1000;
  ASSERT_TRUE(sessions_->operate().create_job(self_, request));
  EXPECT_FALSE(sessions_->operate().resize_job(self_, {.job = "j", .pipelines = {"padded"}}, 1100));
  EXPECT_THAT(
      attach({.pipeline = "padded", .job = "k", .shard = 0, .num_shards = 65536, .replicas = 2})
          .refusal(),
      HasSubstr("131072 consumers"));
}

}  // namespace
}  // namespace spdld::session
