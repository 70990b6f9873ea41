// SPDX-License-Identifier: Apache-2.0
#include "session/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/scratch_dir.h"

namespace spdld::session {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open() {
    auto store = Store::open(directory_);
    EXPECT_TRUE(store) << store.error().message();
    return store ? std::move(*store) : nullptr;
  }

  test::ScratchDir scratch_;
  const std::string directory_ = scratch_.path();
};

TEST_F(StoreTest, KeepsPipelinesAcrossARestart) {
  StoredPipeline pipeline{.name = "train", .version = 3, .owner = 1000, .request = {}};
  pipeline.request.yaml = "pipeline: train\n# \"quotes\" and ünïcode\n";
  pipeline.request.file = "/etc/spdld/train.yaml";
  pipeline.request.vars = {{"size", "224"}};
  pipeline.request.env = {{"HOME", "/root"}};
  ASSERT_TRUE(open()->put_pipeline(pipeline, {}).ok());
  const auto kept = open()->pipelines();
  ASSERT_TRUE(kept);
  ASSERT_EQ(kept->size(), 1U);
  EXPECT_EQ(kept->front().version, 3U);
  EXPECT_EQ(kept->front().owner, 1000U);
  EXPECT_EQ(kept->front().request.yaml, pipeline.request.yaml);
  EXPECT_EQ(kept->front().request.vars, pipeline.request.vars);
  EXPECT_EQ(kept->front().request.env, pipeline.request.env);
}

TEST_F(StoreTest, RefusesWhatIsNotUtf8) {
  StoredPipeline pipeline{.name = "train", .version = 1, .owner = 0, .request = {}};
  pipeline.request.env = {{"NAME", "\xff"}};
  EXPECT_THAT(open()->put_pipeline(pipeline, {}).message(), HasSubstr("not UTF-8"));
  StoredJob job;
  job.key = {.uid = 7, .job = "run-1", .pipeline = "train"};
  job.declared = true;
  job.vars = {{"root", "\xff"}};
  EXPECT_THAT(open()->put_jobs({job}).message(), HasSubstr("not UTF-8"));
  EXPECT_TRUE(open()->declared_jobs()->empty());
}

TEST_F(StoreTest, KeepsAJobWithItsPhasesAndCuts) {
  StoredJob job;
  job.key = {.uid = 7, .job = "run-1", .pipeline = "train"};
  job.declared = true;
  job.incarnation = 3;
  job.replicas = 4;
  job.batch_size = 32;
  job.vars = {{"size", "224"}};
  job.epochs = EpochMode::kManual;
  job.max_epochs = 90;
  job.seed = 0xffffffffffffffff;
  job.open_epochs = 4;
  job.limits = {.weight = 2.5, .cpus = 3, .bytes = std::nullopt};
  job.start = {2, 17};
  job.phases.resize(2);
  job.phases[1].version = 2;
  job.phases[1].request.yaml = "pipeline: train\n";
  job.phases[1].batch_size = 48;
  job.cuts = {{.from = {}, .position = 0, .num_shards = 2, .phase = 0},
              {.from = {3, 5}, .position = 640, .num_shards = 3, .phase = 1}};
  job.live = {{0, 0}, {2, 1}};
  job.done = {{0, 1}, {2, 3}};
  ASSERT_TRUE(open()->put_jobs({job}).ok());
  const auto kept = open()->declared_jobs();
  ASSERT_TRUE(kept) << kept.error().message();
  ASSERT_EQ(kept->size(), 1U);
  const StoredJob& same = kept->front();
  EXPECT_EQ(same.key, job.key);
  EXPECT_EQ(same.incarnation, 3U);
  EXPECT_EQ(same.replicas, 4U);
  EXPECT_EQ(same.done, job.done);
  EXPECT_EQ(same.batch_size, job.batch_size);
  EXPECT_EQ(same.vars, job.vars);
  EXPECT_EQ(same.epochs, EpochMode::kManual);
  EXPECT_EQ(same.seed, job.seed);
  EXPECT_EQ(same.open_epochs, 4U);
  EXPECT_EQ(same.limits, job.limits);
  EXPECT_EQ(same.start, job.start);
  ASSERT_EQ(same.phases.size(), 2U);
  EXPECT_EQ(same.phases[1].version, 2U);
  EXPECT_EQ(same.phases[1].request.yaml, "pipeline: train\n");
  EXPECT_EQ(same.phases[1].batch_size, job.phases[1].batch_size);
  ASSERT_EQ(same.cuts.size(), 2U);
  EXPECT_EQ(same.cuts[1].from, (StepAt{3, 5}));
  EXPECT_EQ(same.cuts[1].position, 640U);
  EXPECT_EQ(same.cuts[1].num_shards, 3U);
  EXPECT_EQ(same.cuts[1].phase, 1U);
  EXPECT_EQ(same.live, job.live);
}

TEST_F(StoreTest, KeepsTheHistoryOfAPipelineAndForgetsItWithThePipeline) {
  auto store = open();
  StoredPipeline pipeline{.name = "train", .version = 1, .owner = 0, .request = {}};
  for (std::uint32_t version = 1; version <= 3; ++version) {
    pipeline.version = version;
    pipeline.request.yaml = "version " + std::to_string(version);
    ASSERT_TRUE(store
                    ->put_pipeline(pipeline, {.version = version,
                                              .applied_unix_ms = version * 1000,
                                              .applied_by = 7,
                                              .content_digest = "d",
                                              .note = "n",
                                              .request = {}})
                    .ok());
  }
  const auto history = open()->history("train");
  ASSERT_TRUE(history);
  ASSERT_EQ(history->size(), 3U);
  EXPECT_EQ(history->front().version, 1U);
  EXPECT_EQ(history->back().request.yaml, "version 3");
  EXPECT_EQ(history->back().applied_unix_ms, 3000U);
  ASSERT_TRUE(store->remove_pipeline("train").ok());
  EXPECT_TRUE(store->history("train")->empty());
}

TEST_F(StoreTest, KeepsNoMoreOfAHistoryThanItSays) {
  auto store = open();
  StoredPipeline pipeline{.name = "train", .version = 1, .owner = 0, .request = {}};
  for (std::uint32_t version = 1; version <= Store::kMaxRevisions + 5; ++version)
    ASSERT_TRUE(store->put_pipeline(pipeline, {.version = version}).ok());
  EXPECT_EQ(store->history("train")->size(), static_cast<std::size_t>(Store::kMaxRevisions));
  EXPECT_EQ(store->history("train")->front().version, 6U);
}

TEST_F(StoreTest, ChangesNothingWhenOneOfTheJobsOfASwapCannotBeKept) {
  auto store = open();
  StoredPipeline pipeline{.name = "train", .version = 1, .owner = 0, .request = {}};
  ASSERT_TRUE(store->put_pipeline(pipeline, {.version = 1}).ok());
  StoredJob good;
  good.key = {.uid = 7, .job = "good", .pipeline = "train"};
  good.declared = true;
  StoredJob bad = good;
  bad.key.job = "bad";
  bad.vars = {{"x", "\xff"}};
  pipeline.version = 2;
  EXPECT_FALSE(store->put_pipeline(pipeline, {.version = 2}, {good, bad}).ok());
  EXPECT_EQ(store->pipelines()->front().version, 1U);
  EXPECT_EQ(store->history("train")->size(), 1U);
  EXPECT_TRUE(store->declared_jobs()->empty());
}

StoredPrepared prepared_swap() {
  StoredPrepared prepared{.token = "t",
                          .until_unix_ms = 5'000'000,
                          .caller = 7,
                          .pipeline = {.name = "train", .version = 2, .owner = 9}};
  prepared.pipeline.request.yaml = "pipeline: train\n";
  StoredSwap& swap = prepared.swaps.emplace_back();
  swap.key = {.uid = 7, .job = "run-1", .pipeline = "train"};
  swap.from = {3, 5};
  swap.phase.version = 2;
  swap.phase.batch_size = 48;
  swap.vars = {{"size", "224"}};
  swap.tuned = true;
  return prepared;
}

TEST_F(StoreTest, KeepsAPreparedSwapUntilItIsRemoved) {
  auto store = open();
  ASSERT_TRUE(store->put_prepared(prepared_swap()).ok());
  const auto kept = open()->prepared();
  ASSERT_TRUE(kept) << kept.error().message();
  ASSERT_EQ(kept->size(), 1U);
  const StoredPrepared& same = kept->front();
  EXPECT_EQ(same.token, "t");
  EXPECT_EQ(same.until_unix_ms, 5'000'000U);
  EXPECT_FALSE(same.committed);
  EXPECT_EQ(same.caller, 7U);
  EXPECT_EQ(same.pipeline.name, "train");
  EXPECT_EQ(same.pipeline.version, 2U);
  EXPECT_EQ(same.pipeline.owner, 9U);
  EXPECT_EQ(same.pipeline.request.yaml, "pipeline: train\n");
  ASSERT_EQ(same.swaps.size(), 1U);
  EXPECT_EQ(same.swaps[0].key, prepared_swap().swaps[0].key);
  EXPECT_EQ(same.swaps[0].from, (StepAt{3, 5}));
  EXPECT_EQ(same.swaps[0].phase.batch_size, 48U);
  EXPECT_EQ(same.swaps[0].vars, prepared_swap().swaps[0].vars);
  EXPECT_TRUE(same.swaps[0].tuned);
  EXPECT_FALSE(same.swaps[0].known);
  ASSERT_TRUE(store->remove_prepared("t").ok());
  EXPECT_TRUE(store->remove_prepared("t").ok()) << "twice is no error";
  EXPECT_TRUE(store->prepared()->empty());
}

TEST_F(StoreTest, MarksAPreparedSwapAsCommittedWithItsPipelineOrNotAtAll) {
  auto store = open();
  ASSERT_TRUE(store->put_prepared(prepared_swap()).ok());
  StoredJob bad;
  bad.vars = {{"x", "\xff"}};
  const StoredPipeline pipeline = prepared_swap().pipeline;
  EXPECT_FALSE(store->put_pipeline(pipeline, {.version = 2}, {bad}, "t").ok());
  EXPECT_FALSE(store->prepared()->front().committed);
  ASSERT_TRUE(store->put_pipeline(pipeline, {.version = 2}, {}, "t").ok());
  EXPECT_TRUE(store->prepared()->front().committed);
}

TEST_F(StoreTest, ForgetsWhatWasPreparedLongBefore) {
  auto store = open();
  StoredPrepared prepared = prepared_swap();
  ASSERT_TRUE(store->put_prepared(prepared).ok());
  prepared.token = "later";
  prepared.until_unix_ms += 3'600'000;
  ASSERT_TRUE(store->put_prepared(prepared).ok());
  EXPECT_EQ(store->prepared()->size(), 2U);
  prepared.token = "much later";
  prepared.until_unix_ms += 1;
  ASSERT_TRUE(store->put_prepared(prepared).ok());
  ASSERT_EQ(store->prepared()->size(), 2U);
  EXPECT_EQ(store->prepared()->front().token, "later");
}

TEST_F(StoreTest, RefusesAPreparedSwapWhoseVariablesAreNotUtf8) {
  auto store = open();
  StoredPrepared prepared = prepared_swap();
  prepared.swaps[0].vars = {{"x", "\xff"}};
  EXPECT_THAT(store->put_prepared(prepared).message(), HasSubstr("not UTF-8"));
  EXPECT_TRUE(store->prepared()->empty());
}

TEST_F(StoreTest, KeepsPositionsAndForgetsThoseOfJobsThatEndedLongAgo) {
  const JobKey old{.uid = 7, .job = "old", .pipeline = "train"};
  const JobKey declared{.uid = 7, .job = "declared", .pipeline = "train"};
  auto store = open();
  StoredJob job;
  job.key = declared;
  job.declared = true;
  job.kept_unix_ms = 10;
  ASSERT_TRUE(store->put_jobs({job}).ok());
  job.key = old;
  job.declared = false;
  ASSERT_TRUE(store->put_jobs({job}).ok());
  ASSERT_TRUE(
      store
          ->put_jobs({}, {{.key = old, .at = {1, 2}, .position = 3, .kept_unix_ms = 10},
                          {.key = declared, .at = {4, 5}, .position = 6, .kept_unix_ms = 10}})
          .ok());
  ASSERT_TRUE(store->add_replaced(old, 5).ok());
  ASSERT_TRUE(store->add_replaced(declared, 6).ok());
  EXPECT_EQ((*store->position(old))->at, (StepAt{1, 2}));
  EXPECT_EQ(*store->jobs_named("old"), std::vector<JobKey>{old});
  ASSERT_TRUE(store->forget_before(11).ok());
  EXPECT_TRUE(store->jobs_named("old")->empty());
  EXPECT_TRUE(store->replaced(old)->empty());
  EXPECT_EQ(store->replaced(declared)->size(), 1U);
  EXPECT_FALSE(store->position(old)->has_value());
  EXPECT_FALSE(store->job(old)->has_value());
  EXPECT_EQ((*store->position(declared))->position, 6U);
}

TEST_F(StoreTest, ForgetsAJobWithWhatWasReplacedInIt) {
  const JobKey key{.uid = 7, .job = "run-1", .pipeline = "train"};
  auto store = open();
  StoredJob job;
  job.key = key;
  job.declared = true;
  ASSERT_TRUE(store->put_jobs({job}).ok());
  ASSERT_TRUE(store->add_replaced(key, 5).ok());
  ASSERT_TRUE(store->add_replaced(key, 5).ok());
  EXPECT_EQ(store->replaced(key)->size(), 1U);
  ASSERT_TRUE(store->remove_job(key).ok());
  EXPECT_TRUE(store->declared_jobs()->empty());
  EXPECT_TRUE(store->replaced(key)->empty());
}

TEST_F(StoreTest, SaysWhatToDoWhereItsDirectoryCannotBeMade) {
  std::ofstream(directory_ + "/file") << "not a directory";
  const auto store = Store::open(directory_ + "/file/state");
  ASSERT_FALSE(store);
  EXPECT_THAT(store.error().message(), HasSubstr("--set state_dir=DIR"));
}

TEST_F(StoreTest, SaysWhatToDoWhereItsFileIsNoDatabase) {
  std::ofstream(directory_ + "/spdld.sqlite") << std::string(4096, 'x');
  const auto store = Store::open(directory_);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), Code::kDataLoss);
  EXPECT_THAT(store.error().message(), HasSubstr("move the file away"));
}

TEST_F(StoreTest, RefusesTheFileOfANewerVersion) {
  open();
  const std::string command = directory_ + "/spdld.sqlite";
  std::fstream file(command, std::ios::in | std::ios::out | std::ios::binary);
  constexpr int kUserVersionOffset = 60;  // of SQLite's file header, big-endian
  file.seekp(kUserVersionOffset);
  file.write("\0\0\0\x63", 4);
  file.close();
  const auto store = Store::open(directory_);
  ASSERT_FALSE(store);
  EXPECT_THAT(store.error().message(), HasSubstr("written by a newer spdld"));
}

TEST_F(StoreTest, SaysThatTheDirectoryIsReadOnly) {
  if (geteuid() == 0) GTEST_SKIP() << "root writes everywhere";
  fs::permissions(directory_, fs::perms::owner_read | fs::perms::owner_exec);
  const auto store = Store::open(directory_);
  fs::permissions(directory_, fs::perms::owner_all);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(store.error().message(), HasSubstr("cannot be written by uid"));
}

}  // namespace
}  // namespace spdld::session
