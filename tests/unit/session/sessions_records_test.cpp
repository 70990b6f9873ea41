// SPDX-License-Identifier: Apache-2.0
// What outlives ranks and daemons: ledgers, records, restarts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "session/job_records.h"
#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;

TEST_F(SessionsTest, GoesOnWithinAnEpochFromAPositionOfAnotherBatchSize) {
  const Rank consumer =
      attach({.cursor = delivery::StreamPosition{.epoch = 1, .position = 5, .step = 7}});
  const wire::AttachedFrame told = consumer.attached();
  EXPECT_EQ(told.position, 5U);
  EXPECT_EQ(told.step, 7U);
  const wire::BatchFrame batch = consumer.batch();
  EXPECT_EQ(batch.step, 7U);
  EXPECT_EQ(batch.next_position, 7U);
}

TEST_F(SessionsTest, TellsWhoStartsBehindTheLastEpochThatTheJobHasEnded) {
  ASSERT_TRUE(sessions_->operate().create_job(self_, declared(2)));
  const Rank consumer = attach(
      {.job = "j", .cursor = delivery::StreamPosition{.epoch = 2, .position = 0, .step = 0}});
  const auto end = consumer.next<wire::EpochEndFrame>(wire::FrameType::kEpochEnd);
  EXPECT_EQ(end.epoch, 1U);
  EXPECT_EQ(end.last, 1U);
}

TEST_F(SessionsTest, ServesAPipelineThatCannotBeKept) {
  const Rank consumer = attach({.pipeline = "own",
                                .pipeline_yaml = yaml("own", "drop"),

                                .env = {{"NAME", "\xff"}}});
  EXPECT_EQ(consumer.attached().items, 10U);
}

TEST_F(SessionsTest, KeepsTheRunningRanksWhenARestartOfThemIsRefused) {
  const Rank running = attach({.job = "j", .shard = 0, .num_shards = 2});
  running.attached();
  // Twenty shards of two make no step of ten items.
  EXPECT_THAT(attach({.job = "j", .shard = 0, .num_shards = 20, .incarnation = 1}).refusal(),
              HasSubstr("do not fill a step"));
  EXPECT_FALSE(running.connection->ending());
  EXPECT_EQ(attach({.job = "j", .shard = 1, .num_shards = 2}).attached().shard, 1);
}

TEST_F(SessionsTest, TakesAResizedJobUpAfterARestart) {
  ASSERT_TRUE(sessions_->operate().create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->operate().seek_job(self_, {.job = "j"}, {0, 4}));
  ASSERT_TRUE(sessions_->operate().resize_job(self_, {.job = "j"}, 2));
  stop();
  start();
  apply(yaml("p", "drop"));
  ASSERT_TRUE(sessions_->records().restore([](const std::string&) {}).ok());
  EXPECT_EQ(attach({.job = "j", .shard = 1}).attached().num_shards, 2);
}

TEST_F(SessionsTest, RefusesTheRanksOfAJobWhoseDatasetHasShrunkBelowItUntilItIsDeleted) {
  ASSERT_TRUE(sessions_->operate().create_job(self_, declared(0)));
  ASSERT_TRUE(sessions_->operate().seek_job(self_, {.job = "j"}, {0, 4}));
  ASSERT_TRUE(sessions_->operate().resize_job(self_, {.job = "j"}, 2));
  stop();
  for (int i = 4; i < 10; ++i) files_.remove("data/" + std::to_string(i) + ".bin");
  start();
  apply(yaml("p", "drop"));
  std::string warning;
  ASSERT_TRUE(
      sessions_->records().restore([&](std::string text) { warning = std::move(text); }).ok());
  EXPECT_THAT(warning, HasSubstr("job 'j' on pipeline 'p' cannot go on"));
  EXPECT_TRUE(sessions_->reports().jobs(self_).empty());
  EXPECT_THAT(attach({.job = "j"}).refusal(), HasSubstr("bring the dataset back"));
  ASSERT_TRUE(sessions_->operate().delete_job(self_, {.job = "j"}));
  EXPECT_EQ(attach({.job = "j"}).attached().items, 4U);
}

TEST_F(SessionsTest, GoesOnWithAJobsLastVersionInAnotherWorldAndWithAnotherBatchSize) {
  const auto with_limit = [&](const std::string& kib) {
    std::string text = yaml("p", "drop");
    text.replace(text.find("4KiB"), 4, kib);
    return text;
  };
  Wish wish{.job = "j", .shard = 0, .num_shards = 2};
  const Rank first = attach(wish);
  first.batch();
  job::ApplyRequest request;
  request.yaml = with_limit("8KiB");
  request.file = "-";
  const auto swapped = service_->swap(
      self_, request, {.job = "j", .at = {.kind = SwapAt::Kind::kStep, .step = {40, 1}}}, nullptr);
  ASSERT_TRUE(swapped) << swapped.error().message();
  hang_up(first);
  apply(with_limit("16KiB"));
  wish.num_shards = 1;
  const auto goes_on_with = [&](delivery::StreamPosition cursor, std::uint64_t batch_size) {
    wish.cursor = cursor;
    wish.batch_size = batch_size;
    const Rank rank = attach(wish);
    const std::uint32_t version = rank.attached().pipeline_version;
    EXPECT_EQ(rank.batch().next_position, cursor.position + batch_size);
    hang_up(rank);
    return version;
  };
  EXPECT_EQ(goes_on_with({.epoch = 40, .position = 4, .step = 1}, 3), 2U);
  EXPECT_EQ(goes_on_with({.epoch = 39, .position = 2, .step = 1}, 3), 2U);
  EXPECT_EQ(goes_on_with({.epoch = 50, .position = 0, .step = 0}, 2), 2U);
  wish.cursor.reset();
  EXPECT_EQ(attach(wish).attached().pipeline_version, 3U) << "a fresh run is another one";
}

TEST_F(SessionsTest, HasARunOnDiskBeforeItsFirstBatchGoesOut) {
  const job::JobKey key{.uid = self_.uid, .job = "j", .pipeline = "p"};
  const auto on_disk = [&] { return store_->job(key)->value(); };
  const auto shards_on_disk = [&] {
    return job::Schedule::restored(on_disk().schedule)->shards(job::kNoTurn);
  };
  Wish wish{.job = "j", .shard = 0, .num_shards = 2};
  const Rank of_two = attach(wish);
  of_two.batch();
  EXPECT_EQ(shards_on_disk(), 2U);
  hang_up(of_two);
  wish.num_shards = 1;
  wish.cursor = delivery::StreamPosition{.epoch = 0, .position = 4, .step = 1};
  const Rank alone = attach(wish);
  alone.batch();
  EXPECT_EQ(shards_on_disk(), 1U);
  hang_up(alone);
  wish = {.job = "j", .shard = 0, .num_shards = 3};
  const Rank fresh = attach(wish);
  fresh.batch();
  EXPECT_EQ(shards_on_disk(), 3U);
  EXPECT_EQ((*store_->position(key))->cursor.at, job::StepAt());
  // What the earlier ones left behind, and was not on disk by then, is not written over it.
  ASSERT_TRUE(sessions_->operate().seek_job(self_, {.job = "j"}, {30, 0}));
  sessions_->keeper().keep();
  EXPECT_EQ(shards_on_disk(), 3U);
  EXPECT_EQ(on_disk().start, (job::StepAt{30, 0}));
}

TEST_F(SessionsTest, KeepsNoRunWhoseFirstRankIsRefused) {
  const auto all = budget_.reserve(budget_.limit_bytes(), 0, "all that there is");
  ASSERT_TRUE(all) << all.error().message();
  EXPECT_FALSE(attach({.job = "j", .shard = 0, .num_shards = 2}).refusal().empty());
  EXPECT_FALSE(store_->job({.uid = self_.uid, .job = "j", .pipeline = "p"})->has_value());
}

TEST_F(SessionsTest, GoesOnInAnotherWorldThatHasNoSuchStepAsItWasSentTo) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 1};
  const Rank alone = attach(wish);
  alone.batch();
  ASSERT_TRUE(sessions_->operate().seek_job(self_, {.job = "j"}, {7, 4}));
  hang_up(alone);
  wish.num_shards = 2;  // of which each has two steps
  wish.cursor = delivery::StreamPosition{.epoch = 0, .position = 2, .step = 1};
  EXPECT_EQ(attach(wish).attached().step, 1U);
}

TEST_F(SessionsTest, GoesOnByTheLedgerOfTheLastRunOfSeveralThatAreNotOnDisk) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 1};
  const auto read_and_die = [&](int steps) {
    const Rank rank = attach(wish);
    for (int step = 0; step < steps; ++step)
      sessions_->release(*rank.connection, rank.batch().lease);
    hang_up(rank);
  };
  read_and_die(4);
  wish.cursor = delivery::StreamPosition{.epoch = 0, .position = 2, .step = 1};
  read_and_die(1);
  wish.cursor.reset();
  wish.from_ledger = true;
  EXPECT_EQ(attach(wish).attached().step, 2U);
}

TEST_F(SessionsTest, LeavesShardsToOtherNodesThatNobodyHasComeFor) {
  const Rank rank = attach({.job = "j", .shard = 1, .num_shards = 2});
  sessions_->release(*rank.connection, rank.batch().lease);
  const auto ledger = [&] {
    sessions_->tick();
    std::this_thread::yield();
    return sessions_->reports().job(self_, {.job = "j"})->ledger;
  };
  while (ledger().kept_unix_ms == 0) {
  }
  EXPECT_EQ(ledger().at, (job::StepAt{0, 0})) << "shard 0 may be on its way";
  clock_.advance(std::chrono::seconds(61));
  while (ledger().at != job::StepAt{0, 1}) {
  }
}

TEST_F(SessionsTest, BeginsWithTheOthersThoughTheLedgerHasMovedOnSinceTheyBegan) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 2};
  const auto ledger = [&] {
    sessions_->tick();
    std::this_thread::yield();
    return sessions_->reports().job(self_, {.job = "j"})->ledger;
  };
  {
    const Rank first = attach(wish);
    wish.shard = 1;
    const Rank second = attach(wish);
    sessions_->release(*first.connection, first.batch().lease);
    sessions_->release(*second.connection, second.batch().lease);
    hang_up(first);
    hang_up(second);
  }
  wish.from_ledger = true;
  wish.shard = 0;
  const Rank again = attach(wish);
  EXPECT_EQ(again.attached().step, 1U);
  clock_.advance(std::chrono::seconds(61));
  // Nobody has come for the other shard: the ledger goes on without it.
  while (ledger().at == job::StepAt{0, 1})
    sessions_->release(*again.connection, again.batch().lease);
  wish.shard = 1;
  EXPECT_EQ(attach(wish).attached().step, 1U);
}

TEST_F(SessionsTest, BeginsByALedgerThatIsNotOnDiskWhereItsReplicaBegan) {
  const auto replica = [](std::uint32_t number, bool from_ledger) {
    return Wish{.job = "j",
                .shard = 0,
                .num_shards = 1,
                .from_ledger = from_ledger,
                .replicas = 2,
                .replica = number};
  };
  Loop first = open(replica(0, false));
  Loop second = open(replica(1, false));
  read(first, 1);
  read(second, 1);
  kill(first);
  kill(second);
  first = open(replica(0, true));
  EXPECT_EQ(first.wish.cursor->step, 1U);
  kill(first);
  Wish by_cursor = first.wish;
  by_cursor.from_ledger = false;
  first = open(by_cursor);
  second = open(replica(1, true));
  EXPECT_EQ(second.wish.cursor->step, 1U);
}

TEST_F(SessionsTest, BeginsANewRunByTheLedgerThoughADaemonWasKilledUnderTheLastOne) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 2};
  const Rank first = attach(wish);
  sessions_->release(*first.connection, first.batch().lease);
  first.batch();
  wish.shard = 1;
  const Rank second = attach(wish);
  sessions_->release(*second.connection, second.batch().lease);
  second.batch();
  sessions_->tick();
  die_and_start();
  wish.from_ledger = true;
  EXPECT_EQ(attach(wish).attached().step, 1U);
  wish.shard = 0;
  EXPECT_EQ(attach(wish).attached().step, 1U);
  EXPECT_TRUE(sessions_->operate().seek_job(self_, {.job = "j"}, {0, 0}))
      << "nobody is yet to come back";
}

TEST_F(SessionsTest, RefusesToGoOnByALedgerOfAnotherOrder) {
  const Wish wish{.job = "j", .shard = 0, .num_shards = 1, .from_ledger = true};
  const Rank rank = attach({.job = "j", .shard = 0, .num_shards = 1});
  sessions_->release(*rank.connection, rank.batch().lease);
  rank.batch();
  stop();
  start();
  apply(yaml("p", "drop"));
  const Rank again = attach(wish);
  EXPECT_EQ(again.attached().step, 1U);
  again.batch();
  stop();
  files_.file("data/another.bin", "bytes");
  start();
  apply(yaml("p", "drop"));
  EXPECT_THAT(attach(wish).refusal(), HasSubstr("its record is of 10 items"));
}

TEST_F(SessionsTest, GoesBackBeforeWhereTheLedgerHadItInAnotherWorld) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 1};
  const Rank alone = attach(wish);
  for (int step = 0; step < 4; ++step) sessions_->release(*alone.connection, alone.batch().lease);
  hang_up(alone);
  wish.from_ledger = true;
  wish.num_shards = 2;  // of which each has two steps: less than were read
  Loop first = open(wish);
  ASSERT_EQ(first.wish.cursor->step, 4U);
  go_to_epoch(first, 0);
  EXPECT_EQ(at(step(first)), (job::StepAt{0, 0}));
  die_and_start();
  first.wish.from_ledger = false;
  Loop again = reconnect(first);
  EXPECT_EQ(at(step(again)), (job::StepAt{0, 1}));
  EXPECT_EQ(at(step(again)), (job::StepAt{1, 0}));
}

TEST_F(SessionsTest, KeepsOtherJobsThoughTheRecordOfOneCannotBeWritten) {
  const Rank odd = attach({.pipeline = "own",
                           .job = "odd",
                           .pipeline_yaml = yaml("own", "drop"),
                           .pipeline_file = "caf\xe9.yaml"});
  odd.batch();
  const Rank rank = attach({.job = "j"});
  sessions_->release(*rank.connection, rank.batch().lease);
  rank.batch();
  sessions_->tick();
  sessions_->stop();  // after what the tick has begun
  EXPECT_TRUE(store_->job({.uid = self_.uid, .job = "j", .pipeline = "p"})->has_value());
  EXPECT_FALSE(store_->job({.uid = self_.uid, .job = "odd", .pipeline = "own"})->has_value());
  EXPECT_EQ(store_->position({.uid = self_.uid, .job = "j", .pipeline = "p"})->value().cursor.at,
            (job::StepAt{0, 1}));
  EXPECT_TRUE(sessions_->keeper().warnings().empty());
}

TEST_F(SessionsTest, WaitsForAShardThatHasNotComeBackThroughASecondDeathOfTheDaemon) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 2};
  attach(wish).batch();
  wish.shard = 1;
  attach(wish).batch();
  wish.reconnect = true;
  wish.shard = 0;
  wish.cursor = delivery::StreamPosition{.epoch = 0, .position = 4, .step = 1};
  for (int death = 0; death < 3; ++death) {
    die_and_start();
    attach(wish).batch();
    const auto resized = sessions_->operate().resize_job(self_, {.job = "j"}, 1);
    ASSERT_FALSE(resized);
    EXPECT_THAT(resized.error().message(), HasSubstr("shard 1 was read when the daemon stopped"));
  }
  clock_.advance(std::chrono::seconds(61));
  EXPECT_TRUE(sessions_->operate().resize_job(self_, {.job = "j"}, 1));
}

TEST_F(SessionsTest, WaitsForEachReplicaThatWasThereWhenTheDaemonStopped) {
  Wish wish{.job = "j", .shard = 0, .replicas = 2};
  attach(wish).attached();
  wish.replica = 1;
  attach(wish).attached();
  die_and_start();
  wish.reconnect = true;
  wish.cursor = delivery::StreamPosition{};
  const Rank back = attach(wish);
  back.attached();
  const auto sought = sessions_->operate().seek_job(self_, {.job = "j"}, {1, 0});
  ASSERT_FALSE(sought);
  EXPECT_THAT(sought.error().message(),
              HasSubstr("replica 0 of shard 0 was read when the daemon stopped"));
  wish.replica = 0;
  const Rank other = attach(wish);
  other.attached();
  EXPECT_TRUE(sessions_->operate().seek_job(self_, {.job = "j"}, {1, 0}));
}

TEST_F(SessionsTest, IsTheSameJobForAFreshRankWhenTheOnlyOneThatWasBackHasDied) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 2};
  attach(wish).attached();
  wish.shard = 1;
  attach(wish).attached();
  die_and_start();
  const Rank back = attach(wish);
  back.attached();
  hang_up(back);
  attach(wish).attached();
  const auto resized = sessions_->operate().resize_job(self_, {.job = "j"}, 1);
  ASSERT_FALSE(resized);
  EXPECT_THAT(resized.error().message(), HasSubstr("shard 0 was read when the daemon stopped"));
}

TEST_F(SessionsTest, KeepsAJobsLimitsWhenItsRanksAreStartedAgain) {
  const Rank older = attach({.job = "j", .shard = 0, .num_shards = 1});
  older.attached();
  ASSERT_TRUE(sessions_->operate().tune_job(self_, {.job = "j"},
                                            {.set = {{"weight", "3"}, {"cpus", "2"}}}));
  attach({.job = "j", .shard = 0, .num_shards = 2, .incarnation = 1}).attached();
  const auto job = sessions_->reports().job(self_, {.job = "j"});
  EXPECT_EQ(job->num_shards, 2U);
  EXPECT_EQ(job->limits.weight, 3);
  EXPECT_EQ(job->limits.cpus, 2U);
}

TEST_F(SessionsTest, KeepsTheLedgerOfARunThoughAnotherOneWasRefused) {
  Wish wish{.job = "j"};
  const Rank rank = attach(wish);
  sessions_->release(*rank.connection, rank.batch().lease);
  hang_up(rank);
  sessions_->tick();
  wish.vars = {{"nosuch", "1"}};
  EXPECT_THAT(attach(wish).refusal(), HasSubstr("names no variable"));
  wish.vars.clear();
  wish.shard = 7;
  EXPECT_THAT(attach(wish).refusal(), HasSubstr("there is no shard 7"));
  wish.shard.reset();
  wish.from_ledger = true;
  EXPECT_EQ(attach(wish).attached().step, 1U);
}

TEST_F(SessionsTest, ForgetsTheLedgerOfAnEarlierRunOnceAnotherOneHasBegun) {
  Wish wish{.job = "j"};
  const Rank rank = attach(wish);
  sessions_->release(*rank.connection, rank.batch().lease);
  hang_up(rank);
  const Rank another = attach(wish);
  EXPECT_EQ(another.attached().step, 0U);
  EXPECT_EQ(sessions_->reports().job(self_, {.job = "j"})->ledger.at, job::StepAt{});
  hang_up(another);
  wish.from_ledger = true;
  EXPECT_EQ(attach(wish).attached().step, 0U);
}

TEST_F(SessionsTest, GoesOnInASmallerWorldWithBatchesThatTheLargerOneCouldNotHave) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 5};
  const Rank rank = attach(wish);
  rank.batch();
  hang_up(rank);
  wish.num_shards = 1;
  wish.batch_size = 4;  // of which five shards make no step of ten items
  wish.from_ledger = true;
  EXPECT_EQ(attach(wish).attached().batch_size, 4U);
}

TEST_F(SessionsTest, ForgetsRecordsOfEndedJobsThatAreOlderThanItRetainsThem) {
  ASSERT_TRUE(sessions_->operate().create_job(self_, declared(0)));
  const auto made = *store_->job({.uid = self_.uid, .job = "j", .pipeline = "p"});
  const auto record = [&](const std::string& name, bool is_declared, std::uint64_t kept) {
    store::StoredJob job = *made;
    job.key.job = name;
    job.declared = is_declared;
    job.kept_unix_ms = kept;
    return job;
  };
  const std::uint64_t now = unix_ms();
  const std::uint64_t week = std::uint64_t{7} * 24 * 3600 * 1000;
  ASSERT_TRUE(store_
                  ->put_jobs({record("old", false, now - week - 1000),
                              record("young", false, now - week + 600'000),
                              record("declared", true, now - week - 1000)})
                  .ok());
  ASSERT_TRUE(store_
                  ->put_jobs({}, {{.key = record("old", false, 0).key,
                                   .cursor = {.order = {}, .at = {1, 1}, .position = 2},
                                   .kept_unix_ms = now - week - 1000}})
                  .ok());
  sessions_->tick();
  sessions_->stop();  // after what the tick has begun
  EXPECT_FALSE(store_->job(record("old", false, 0).key)->has_value());
  EXPECT_FALSE(store_->position(record("old", false, 0).key)->has_value());
  EXPECT_TRUE(store_->job(record("young", false, 0).key)->has_value());
  EXPECT_TRUE(store_->job(record("declared", true, 0).key)->has_value());
}

}  // namespace
}  // namespace spdld::session
