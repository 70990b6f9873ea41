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
  ASSERT_TRUE(open()->put_pipeline(pipeline).ok());
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
  EXPECT_THAT(open()->put_pipeline(pipeline).message(), HasSubstr("not UTF-8"));
  StoredJob job;
  job.key = {.uid = 7, .job = "run-1", .pipeline = "train"};
  job.request.vars = {{"root", "\xff"}};
  EXPECT_THAT(open()->put_job(job).message(), HasSubstr("not UTF-8"));
  EXPECT_TRUE(open()->jobs()->empty());
}

TEST_F(StoreTest, KeepsAJobWithItsEpochsAndCuts) {
  StoredJob job;
  job.key = {.uid = 7, .job = "run-1", .pipeline = "train"};
  job.request.num_shards = 2;
  job.request.batch_size = 32;
  job.request.epochs = EpochMode::kManual;
  job.request.max_epochs = 90;
  job.seed = 0xffffffffffffffff;
  job.open_epochs = 4;
  job.start = {2, 17};
  job.cuts = {{.from = {3, 5}, .position = 640, .num_shards = 3}};
  ASSERT_TRUE(open()->put_job(job).ok());
  const auto kept = open()->jobs();
  ASSERT_TRUE(kept);
  ASSERT_EQ(kept->size(), 1U);
  const StoredJob& same = kept->front();
  EXPECT_EQ(same.key, job.key);
  EXPECT_EQ(same.request.num_shards, 2U);
  EXPECT_EQ(same.request.batch_size, job.request.batch_size);
  EXPECT_EQ(same.request.epochs, EpochMode::kManual);
  EXPECT_EQ(same.seed, job.seed);
  EXPECT_EQ(same.open_epochs, 4U);
  EXPECT_EQ(same.start, job.start);
  EXPECT_EQ(same.cuts, job.cuts);
}

TEST_F(StoreTest, ForgetsAJobWithWhatWasReplacedInIt) {
  const JobKey key{.uid = 7, .job = "run-1", .pipeline = "train"};
  auto store = open();
  StoredJob job;
  job.key = key;
  ASSERT_TRUE(store->put_job(job).ok());
  ASSERT_TRUE(store->add_replaced(key, 5).ok());
  ASSERT_TRUE(store->add_replaced(key, 5).ok());
  EXPECT_EQ(store->replaced(key)->size(), 1U);
  ASSERT_TRUE(store->remove_job(key).ok());
  EXPECT_TRUE(store->jobs()->empty());
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
