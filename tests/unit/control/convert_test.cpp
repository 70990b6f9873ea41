// SPDX-License-Identifier: Apache-2.0
#include "control/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace spdld::control {
namespace {

TEST(ApplyRequest, TakesOverTextVarsAndEnvironment) {
  v1::PipelineText text;
  text.set_yaml("pipeline: p");
  text.set_file("/etc/p.yaml");
  (*text.mutable_vars())["size"] = "32";
  (*text.mutable_env())["HOME"] = "/home/a";
  const auto request = apply_request(text, true);
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->yaml, "pipeline: p");
  EXPECT_EQ(request->file, "/etc/p.yaml");
  EXPECT_EQ(request->vars.at("size"), "32");
  EXPECT_EQ(request->env.at("HOME"), "/home/a");
  EXPECT_TRUE(request->dry_run);
}

TEST(ApplyRequest, CallsATextWithoutAFileADash) {
  v1::PipelineText text;
  text.set_yaml("pipeline: p");
  EXPECT_EQ(apply_request(text, false)->file, "-");
}

TEST(ApplyRequest, RefusesNoTextAndRelativeFiles) {
  v1::PipelineText text;
  ASSERT_FALSE(apply_request(text, false));
  text.set_yaml("pipeline: p");
  text.set_file("p.yaml");
  const auto refused = apply_request(text, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(),
            Status(Code::kInvalidArgument,
                   "file 'p.yaml' is relative, and the daemon cannot know to what: send its "
                   "absolute path, or '-' for a text without a file"));
}

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
  EXPECT_EQ(request->epochs, session::EpochMode::kAuto);
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
  EXPECT_EQ(request->epochs, session::EpochMode::kManual);
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
  EXPECT_EQ(job_request(message)->limits, session::JobLimits{});
  message.mutable_limits()->set_weight(0.5);
  message.mutable_limits()->set_cpus(4);
  message.mutable_limits()->set_arena_bytes(0);
  EXPECT_EQ(job_request(message)->limits, (session::JobLimits{0.5, 4, std::nullopt}));
  message.mutable_limits()->set_arena_bytes(1 << 20);
  EXPECT_EQ(job_request(message)->limits, (session::JobLimits{0.5, 4, 1 << 20}));
  for (const double weight : {-1.0, std::nan(""), HUGE_VAL}) {
    message.mutable_limits()->set_weight(weight);
    EXPECT_FALSE(job_request(message)) << weight;
  }
}

TEST(Fill, WritesAPipelineWithItsTensors) {
  session::PipelineView view;
  view.name = "p";
  view.version = 3;
  view.owner = 1000;
  view.state = "ready";
  view.items = 10;
  view.order_digest = "aa";
  view.content_digest = "bb";
  view.batch_size = 4;
  view.tensors = {{"image", FieldKind::kRagged, DType::kFloat32, {3, -1, -1}},
                  {"caption", FieldKind::kBytes, DType::kUInt8, {}, true},
                  {"packet", FieldKind::kBytes, DType::kUInt8, {}}};
  v1::Pipeline message;
  fill(&message, view);
  EXPECT_EQ(message.name(), "p");
  EXPECT_EQ(message.version(), 3u);
  EXPECT_EQ(message.owner(), 1000u);
  EXPECT_EQ(message.items(), 10u);
  EXPECT_EQ(message.order_digest(), "aa");
  EXPECT_EQ(message.content_digest(), "bb");
  ASSERT_EQ(message.tensors_size(), 3);
  EXPECT_EQ(message.tensors(0).kind(), "ragged");
  EXPECT_EQ(message.tensors(0).dtype(), "float32");
  EXPECT_EQ(message.tensors(0).shape(1), -1);
  EXPECT_EQ(message.tensors(1).kind(), "bytes");
  EXPECT_TRUE(message.tensors(1).text());
  EXPECT_FALSE(message.tensors(2).text());
}

TEST(Fill, TellsASubstituteOfItemZeroFromNone) {
  session::FailureView view;
  v1::Failure none;
  fill(&none, view);
  EXPECT_FALSE(none.has_replaced_by());
  EXPECT_FALSE(none.has_item());
  view.facts.sample.emplace().replaced_by = 0;
  v1::Failure zero;
  fill(&zero, view);
  EXPECT_TRUE(zero.has_replaced_by());
  EXPECT_TRUE(zero.has_item());
}

TEST(Fill, WritesAJobWithItsShards) {
  session::JobView view;
  view.job = "j";
  view.epochs = session::EpochMode::kManual;
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
  session::JobView view;
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

TEST(Fill, TellsARateOfZeroFromOneThatIsNotKnown) {
  const auto of = [](auto message, auto view) {
    fill(&message, view);
    return message;
  };
  session::JobView job;
  session::StageView stage;
  session::SessionView session;
  session::DaemonView daemon;
  EXPECT_FALSE(of(v1::Job(), job).has_rows_per_s());
  EXPECT_FALSE(of(v1::Stage(), stage).has_rows_per_s());
  EXPECT_FALSE(of(v1::Stage(), stage).has_busy_share());
  EXPECT_FALSE(of(v1::Session(), session).has_rows_per_s());
  EXPECT_FALSE(of(v1::Daemon(), daemon).has_rows_per_s());
  job.rows_per_s = stage.rows_per_s = session.rows_per_s = daemon.rows_per_s = 0;
  stage.busy_share = 0.5;
  daemon.batches_per_s = 2;
  EXPECT_TRUE(of(v1::Job(), job).has_rows_per_s());
  EXPECT_TRUE(of(v1::Stage(), stage).has_rows_per_s());
  EXPECT_EQ(of(v1::Stage(), stage).busy_share(), 0.5);
  EXPECT_TRUE(of(v1::Session(), session).has_rows_per_s());
  EXPECT_TRUE(of(v1::Daemon(), daemon).has_rows_per_s());
  EXPECT_EQ(of(v1::Daemon(), daemon).batches_per_s(), 2);
}

TEST(Fill, WritesAPlanWithWhatItNeeds) {
  using Task = engine::PlanFacts::Task;
  engine::PlanFacts facts;
  facts.pipeline = "p";
  facts.items = 100;
  facts.shuffle = {.kind = Shuffle::Kind::kBlock, .block = 64, .interleave = 8};
  facts.tasks = {{.stages = "fetch", .pool = Task::Pool::kIo, .concurrency = 16},
                 {.stages = "decode_image + resize", .pool = Task::Pool::kCpu, .concurrency = 2}};
  facts.image = {.layout = Layout::kNHWC, .normalized = true, .resamples = 2};
  facts.batch_rows = 8;
  facts.slot_bytes = 4096;
  facts.tensors = {{"image", FieldKind::kDense, DType::kFloat32, {3, 8, 8}}};
  facts.max_bytes = 1 << 20;
  facts.steps_per_epoch = 12;
  facts.credits = 4;
  facts.slots = 6;
  facts.arena_kind = "memfd";
  facts.arena_bytes = facts.needed_bytes = 30'000;
  facts.used_bytes = 500;
  facts.budget_bytes = 20'500;
  facts.missing_bytes = 10'000;
  facts.warnings = {"stage normalize: means of the 0..255 scale"};
  v1::Plan message;
  fill(&message, facts);
  EXPECT_EQ(message.order().shuffle(), "block");
  EXPECT_EQ(message.order().interleave(), 8u);
  ASSERT_EQ(message.tasks_size(), 2);
  EXPECT_EQ(message.tasks(0).pool(), "io");
  EXPECT_EQ(message.tasks(1).stages(), "decode_image + resize");
  EXPECT_EQ(message.tasks(1).concurrency(), 2u);
  EXPECT_EQ(message.image().layout(), "NHWC");
  EXPECT_EQ(message.image().resamples(), 2u);
  EXPECT_EQ(message.batch().slot_bytes(), 4096u);
  EXPECT_EQ(message.batch().tensors(0).shape(0), 3);
  EXPECT_FALSE(message.batch().has_max_bytes()) << "no tensor holds strings";
  EXPECT_EQ(message.steps_per_epoch(), 12u);
  EXPECT_FALSE(message.arenas().fits());
  EXPECT_EQ(message.arenas().missing_bytes(), 10'000u);
  EXPECT_FALSE(message.has_cache());
  ASSERT_EQ(message.warnings_size(), 1);
  EXPECT_EQ(message.warnings(0), facts.warnings.front());

  facts.shuffle.kind = Shuffle::Kind::kNone;
  facts.image.reset();
  facts.tensors = {{"text", FieldKind::kBytes, DType::kUInt8, {}}};
  facts.missing_bytes = 0;
  facts.cache = {.form = "decoded", .where = "ram", .used = false, .why_not = "raise cache.size"};
  v1::Plan other;
  fill(&other, facts);
  EXPECT_EQ(other.order().shuffle(), "none");
  EXPECT_FALSE(other.order().has_block());
  EXPECT_FALSE(other.has_image());
  EXPECT_EQ(other.batch().max_bytes(), 1u << 20);
  EXPECT_TRUE(other.arenas().fits());
  EXPECT_FALSE(other.cache().used());
  EXPECT_FALSE(other.cache().has_payback_epochs()) << "it never comes back";
}

TEST(Fill, WritesASessionWithItsReplicaAndVersion) {
  session::SessionView view;
  view.replica = 1;
  view.pipeline_version = 4;
  v1::Session message;
  fill(&message, view);
  EXPECT_EQ(message.replica(), 1u);
  EXPECT_EQ(message.pipeline_version(), 4u);
}

}  // namespace
}  // namespace spdld::control
