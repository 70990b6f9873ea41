// SPDX-License-Identifier: Apache-2.0
#include "control/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

namespace spdld::control {
namespace {

v1::CreateJobRequest valid_job() {
  v1::CreateJobRequest message;
  message.set_job("run-7");
  message.set_pipeline("imagenet");
  message.set_num_shards(8);
  return message;
}

TEST(JobRequest, LeavesWhatIsNotSaidToTheDaemon) {
  const auto request = job_request(valid_job());
  ASSERT_TRUE(request);
  EXPECT_EQ(request->job, "run-7");
  EXPECT_EQ(request->pipeline, "imagenet");
  EXPECT_EQ(request->num_shards, 8u);
  EXPECT_EQ(request->replicas, 1u);
  EXPECT_FALSE(request->seed);
  EXPECT_FALSE(request->batch_size);
  EXPECT_EQ(request->epochs, job::EpochMode::kAuto);
  EXPECT_EQ(request->max_epochs, 0u);
}

TEST(JobRequest, TakesOverWhatIsSaid) {
  v1::CreateJobRequest message = valid_job();
  message.set_replicas(2);
  message.set_seed(0);
  message.set_batch_size(64);
  message.set_epochs(v1::EPOCH_MODE_MANUAL);
  message.set_max_epochs(90);
  (*message.mutable_vars())["size"] = "32";
  const auto request = job_request(message);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->replicas, 2u);
  EXPECT_EQ(request->seed, 0u) << "a seed of 0 is a seed";
  EXPECT_EQ(request->batch_size, 64u);
  EXPECT_EQ(request->epochs, job::EpochMode::kManual);
  EXPECT_EQ(request->max_epochs, 90u);
  EXPECT_EQ(request->vars.at("size"), "32");
}

TEST(JobRequest, RefusesWhatNoJobCanBe) {
  v1::CreateJobRequest message = valid_job();
  message.clear_job();
  EXPECT_FALSE(job_request(message));
  message = valid_job();
  message.clear_pipeline();
  EXPECT_FALSE(job_request(message));
  message = valid_job();
  message.set_num_shards(0);
  EXPECT_EQ(job_request(message).error().message(), "job 'run-7': num_shards must be at least 1");
  message = valid_job();
  message.set_epochs(static_cast<v1::EpochMode>(77));
  EXPECT_EQ(job_request(message).error().message(), "job 'run-7': epochs is 77, which no mode has");
}

TEST(JobRequest, TakesOverLimitsAndReadsZeroAsNone) {
  v1::CreateJobRequest message = valid_job();
  EXPECT_EQ(job_request(message)->limits, job::JobLimits{});
  message.mutable_limits()->set_weight(0.5);
  message.mutable_limits()->set_cpus(4);
  message.mutable_limits()->set_arena_bytes(0);
  EXPECT_EQ(job_request(message)->limits, (job::JobLimits{0.5, 4, std::nullopt}));
  message.mutable_limits()->set_arena_bytes(1 << 20);
  EXPECT_EQ(job_request(message)->limits, (job::JobLimits{0.5, 4, 1 << 20}));
  for (const double weight : {-1.0, std::nan(""), HUGE_VAL}) {
    message.mutable_limits()->set_weight(weight);
    EXPECT_FALSE(job_request(message)) << weight;
  }
}

TEST(Fill, WritesAJobWithItsShards) {
  job::JobView view;
  view.job = "j";
  view.epochs = job::EpochMode::kManual;
  view.open_epochs = 2;
  view.num_shards = 2;
  view.shards = {{0, 11, 400, 1, 7}, {1, 0, 0, 1, 6}};
  v1::Job message;
  fill(&message, view);
  EXPECT_EQ(message.epochs(), v1::EPOCH_MODE_MANUAL);
  EXPECT_EQ(message.open_epochs(), 2u);
  ASSERT_EQ(message.shards_size(), 2);
  EXPECT_EQ(message.shards(0).session(), 11u);
  EXPECT_EQ(message.shards(0).pid(), 400);
  EXPECT_EQ(message.shards(1).step(), 6u);
}

TEST(Fill, WritesAJobWithWhatItTakesAndWhatItRuns) {
  job::JobView view;
  view.limits = {2.5, 3, std::nullopt};
  view.arena_bytes = 4096;
  view.cpu_s = 1.5;
  view.shared_rows = 640;
  view.saved_cpu_s = 0.5;
  view.phases = {{{0, 0}, 3, 8, {{"size", "32"}}}, {{2, 1}, 4, 16, {}}};
  view.ledger = {{1, 7}, 56, 1'000, "rank 1 was at 1/6 \xff"};
  view.shards = {{0, 11, 400, 1, 7, 1}};
  v1::Job message;
  fill(&message, view);
  EXPECT_EQ(message.limits().weight(), 2.5);
  EXPECT_EQ(message.limits().cpus(), 3u);
  EXPECT_FALSE(message.limits().has_arena_bytes()) << "no limit is not a limit of 0";
  EXPECT_EQ(message.arena_bytes(), 4096u);
  EXPECT_EQ(message.cpu_s(), 1.5);
  EXPECT_EQ(message.shared_rows(), 640u);
  EXPECT_EQ(message.saved_cpu_s(), 0.5);
  ASSERT_EQ(message.phases_size(), 2);
  EXPECT_EQ(message.phases(0).vars().at("size"), "32");
  EXPECT_EQ(message.phases(1).from().epoch(), 2u);
  EXPECT_EQ(message.phases(1).from().step(), 1u);
  EXPECT_EQ(message.phases(1).pipeline_version(), 4u);
  EXPECT_EQ(message.phases(1).batch_size(), 16u);
  EXPECT_EQ(message.ledger().at().step(), 7u);
  EXPECT_EQ(message.ledger().position(), 56u);
  EXPECT_EQ(message.ledger().kept_unix_ms(), 1'000u);
  EXPECT_EQ(message.ledger().conflict(), "rank 1 was at 1/6 \\xff");
  EXPECT_EQ(message.shards(0).replica(), 1u);
}

}  // namespace
}  // namespace spdld::control
