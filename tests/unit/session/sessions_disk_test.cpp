// SPDX-License-Identifier: Apache-2.0
// The disk of state_dir does not answer: ranks that read, come and go do not wait for it, and none
// is sent what the next daemon would not know of.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <future>
#include <thread>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

// Job 'j' of two shards on ninety files in batches of two.
class SlowDiskTest : public SessionsTest {
 protected:
  void SetUp() override {
    SessionsTest::SetUp();
    declare_on_more();
    ASSERT_TRUE(sessions_->operate().resize_job(self_, {.job = "j"}, 2));
  }
  static Wish wish(std::uint32_t shard) { return {.pipeline = "q", .job = "j", .shard = shard}; }
  void read(const Rank& rank, int batches) {
    for (int batch = 0; batch < batches; ++batch)
      sessions_->release(*rank.connection, rank.batch().lease);
  }
  job::ShardView shard(std::uint32_t number) {
    return sessions_->reports().job(self_, {.job = "j"})->shards.at(number);
  }
};

TEST_F(SlowDiskTest, HoldsUpNoRankThatReads) {
  const Rank rank = attach(wish(0));
  read(rank, 1);
  const MutexLock writing(sessions_->table().records());
  read(rank, 100);
}

TEST_F(SlowDiskTest, HoldsUpNoRankThatComesLeavesOrDies) {
  const Rank first = attach(wish(0));
  read(first, 1);
  const MutexLock writing(sessions_->table().records());
  const Rank second = attach(wish(1));
  second.attached();
  hang_up(second);
  const Rank again = attach(wish(1));
  again.attached();
  sessions_->detach(*again.connection);
  const Rank other = attach({.job = "another", .pipeline_yaml = yaml("brought", "drop")});
  other.attached();
  hang_up(other);
  read(first, 3);
}

TEST_F(SlowDiskTest, KeepsANewRankFromBatchesThatNoRecordKnowsOf) {
  Rank rank;
  std::future<void> read_one;
  {
    const MutexLock writing(sessions_->table().records());
    rank = attach(wish(0));
    rank.attached();
    while (sessions_->reports().slot_counts().ready == 0)
      std::this_thread::yield();  // a batch is there
    read_one = std::async(std::launch::async, [&] { read(rank, 1); });
    EXPECT_EQ(shard(0).step, 0U);
    EXPECT_EQ(sessions_->reports().sessions(self_).front().ready, 0U) << "next() could not have it";
  }
  read_one.get();
}

TEST_F(SlowDiskTest, KeepsARankFromBatchesBeyondWhatTheRecordSaysOfIt) {
  const Rank rank = attach(wish(0));
  read(rank, 1);
  std::uint64_t sent = 0;
  {
    const MutexLock writing(sessions_->table().records());
    const auto view = [&] { return sessions_->reports().sessions(self_).front(); };
    while (true) {
      if (view().leases > 0) {
        read(rank, 1);
      } else if (sessions_->reports().slot_counts().ready > 0) {
        break;  // it is there, and is not sent
      } else {
        std::this_thread::yield();
      }
    }
    sent = view().batches;
    const auto record = store_->job({.uid = self_.uid, .job = "j", .pipeline = "q"});
    EXPECT_LE(sent, (*record)->reserved) << "each batch is a turn";
  }
  read(rank, 1);
  while (sessions_->reports().sessions(self_).front().batches <= sent) std::this_thread::yield();
}

TEST_F(SlowDiskTest, LosesNothingOfARunThatEndedAndBeganAgainMeanwhile) {
  {
    const MutexLock writing(sessions_->table().records());
    for (int run = 0; run < 2; ++run) {
      const Rank rank = attach({.job = "again"});
      rank.attached();
      sessions_->detach(*rank.connection);
      hang_up(rank);
    }
  }
  sessions_->keeper().keep();
  const auto ended = store_->ended_jobs(self_.uid);
  ASSERT_TRUE(ended);
  ASSERT_EQ(ended->size(), 1U);
  EXPECT_EQ(ended->front().view.job, "again");
}

TEST_F(SlowDiskTest, HoldsUpNoPrivateJobForAPipelineThatAnotherLoaderBrought) {
  const MutexLock writing(sessions_->table().records());
  attach({.job = "k", .pipeline_yaml = yaml("brought", "drop")}).attached();
  const Rank own = attach({.pipeline = "p"});
  read(own, 3);
}

TEST_F(SlowDiskTest, KeepsWhatALoaderBroughtForTheNextDaemon) {
  {
    const MutexLock writing(sessions_->table().records());
    attach({.job = "k", .pipeline_yaml = yaml("brought", "drop")}).attached();
  }
  sessions_->keeper().keep();
  const auto pipelines = store_->pipelines();
  ASSERT_TRUE(pipelines);
  EXPECT_TRUE(std::any_of(pipelines->begin(), pipelines->end(), [](const auto& pipeline) {
    return pipeline.id.find("brought") != std::string::npos;
  }));
}

}  // namespace
}  // namespace spdld::session
