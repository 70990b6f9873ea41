// SPDX-License-Identifier: Apache-2.0
// Hot swap, history and limits over gRPC, against a fake service.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "control/control_server.h"
#include "spdld/v1/control.grpc.pb.h"
#include "tests/unit/control/channel.h"
#include "tests/unit/control/fake_service.h"

namespace spdld::control {
namespace {

using session::SwapAt;

class SwapCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    service_.swap_view.pipeline.name = "p";
    service_.swap_view.pipeline.version = 4;
    service_.swap_view.jobs = {{"run", "p", 4, {2, 7}, false}};
    auto started = ControlServer::start(listen_at(dir_.socket()), service_);
    ASSERT_TRUE(started) << started.error().message();
    server_ = std::move(*started);
    const auto channel = channel_to(dir_.socket());
    pipelines_ = v1::Pipelines::NewStub(channel);
    jobs_ = v1::Jobs::NewStub(channel);
  }

  static v1::SwapRequest to_step_seven() {
    v1::SwapRequest swap;
    swap.set_job("run");
    swap.set_at(v1::SWAP_POINT_STEP);
    swap.mutable_step()->set_epoch(2);
    swap.mutable_step()->set_step(7);
    return swap;
  }

  static v1::ApplyRequest apply_to(const v1::SwapRequest& swap) {
    v1::ApplyRequest request;
    request.mutable_text()->set_yaml("pipeline: p");
    *request.mutable_swap() = swap;
    return request;
  }

  // The last message of a stream, and how it ended.
  template <typename Response>
  static grpc::Status last_of(const std::unique_ptr<grpc::ClientReader<Response>>& reader,
                              Response* last) {
    Response response;
    while (reader->Read(&response)) *last = response;
    return reader->Finish();
  }

  grpc::Status apply(const v1::ApplyRequest& request, v1::ApplyResponse* last) {
    grpc::ClientContext context;
    return last_of(pipelines_->Apply(&context, request), last);
  }

  TempDir dir_;
  FakeService service_;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<v1::Pipelines::Stub> pipelines_;
  std::unique_ptr<v1::Jobs::Stub> jobs_;
};

TEST_F(SwapCallsTest, AppliesToRunningJobsWhenAskedTo) {
  v1::ApplyResponse last;
  ASSERT_TRUE(apply(apply_to(to_step_seven()), &last).ok());
  ASSERT_TRUE(last.has_swap());
  EXPECT_EQ(last.swap().pipeline().version(), 4u);
  ASSERT_EQ(last.swap().jobs_size(), 1);
  EXPECT_EQ(last.swap().jobs(0).job(), "run");
  EXPECT_EQ(last.swap().jobs(0).from().epoch(), 2u);
  EXPECT_EQ(last.swap().jobs(0).from().step(), 7u);
  EXPECT_EQ(service_.calls(), std::vector<std::string>{"swap"});
  EXPECT_EQ(service_.last_swap()->job, "run");
  EXPECT_EQ(service_.last_swap()->at.kind, SwapAt::Kind::kStep);
  EXPECT_EQ(service_.last_swap()->at.step, (job::StepAt{2, 7}));
  EXPECT_FALSE(service_.last_swap()->allow_schema_change);
}

TEST_F(SwapCallsTest, AsksForAllJobsByAnEmptyName) {
  v1::SwapRequest swap;
  swap.set_all_jobs(true);
  swap.set_at(v1::SWAP_POINT_NOW);
  swap.set_allow_schema_change(true);
  v1::ApplyResponse last;
  ASSERT_TRUE(apply(apply_to(swap), &last).ok());
  EXPECT_EQ(service_.last_swap()->job, "");
  EXPECT_EQ(service_.last_swap()->at.kind, SwapAt::Kind::kNow);
  EXPECT_TRUE(service_.last_swap()->allow_schema_change);
}

TEST_F(SwapCallsTest, RefusesSwapsThatMeanNothingBeforeTheServiceSeesThem) {
  const auto refusal = [&](const v1::ApplyRequest& request) {
    v1::ApplyResponse last;
    const grpc::Status status = apply(request, &last);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  EXPECT_EQ(refusal(apply_to({})),
            "the swap names no job: set swap.job, or swap.all_jobs for all on the pipeline");
  v1::SwapRequest swap = to_step_seven();
  swap.set_all_jobs(true);
  EXPECT_EQ(refusal(apply_to(swap)),
            "the swap names a job and asks for all: set either swap.job or swap.all_jobs");
  swap = to_step_seven();
  swap.clear_step();
  EXPECT_EQ(refusal(apply_to(swap)), "the swap is to be at a step: set swap.step");
  swap = to_step_seven();
  swap.set_at(v1::SWAP_POINT_NOW);
  EXPECT_EQ(refusal(apply_to(swap)),
            "the swap names a step: set swap.at to SWAP_POINT_STEP, or leave swap.step out");
  swap.set_at(static_cast<v1::SwapPoint>(77));
  EXPECT_EQ(refusal(apply_to(swap)), "the swap's point is 77, which is none");
  EXPECT_EQ(service_.calls(), std::vector<std::string>{});
}

TEST_F(SwapCallsTest, DryRunSaysWhatLiesAheadOfEachJob) {
  service_.swap_view.jobs.front().outlook = session::SwapOutlook{.version_before = 3,
                                                                 .frontier = {1, 9},
                                                                 .steps_per_epoch = 12,
                                                                 .steps_per_s = 2.5,
                                                                 .known = true};
  v1::ApplyRequest dry = apply_to(to_step_seven());
  dry.set_dry_run(true);
  v1::ApplyResponse last;
  ASSERT_TRUE(apply(dry, &last).ok());
  EXPECT_EQ(service_.calls(), std::vector<std::string>{"swap dry"});
  EXPECT_TRUE(service_.last_apply().dry_run);
  const v1::SwapOutlook& outlook = last.swap().jobs(0).outlook();
  EXPECT_EQ(outlook.version_before(), 3u);
  EXPECT_EQ(outlook.frontier().epoch(), 1u);
  EXPECT_EQ(outlook.frontier().step(), 9u);
  EXPECT_EQ(outlook.steps_per_epoch(), 12u);
  EXPECT_EQ(outlook.steps_per_s(), 2.5);
  EXPECT_TRUE(outlook.known());
}

TEST_F(SwapCallsTest, DryRunLeavesOutAPaceThatIsNotKnown) {
  service_.swap_view.jobs.front().outlook = session::SwapOutlook{};
  v1::ApplyRequest dry = apply_to(to_step_seven());
  dry.set_dry_run(true);
  v1::ApplyResponse last;
  ASSERT_TRUE(apply(dry, &last).ok());
  EXPECT_FALSE(last.swap().jobs(0).outlook().has_steps_per_s());
}

TEST_F(SwapCallsTest, PassesOnWhyASwapIsRefused) {
  service_.answer = Status(Code::kFailedPrecondition, "job 'run' is beyond step 7 of epoch 2");
  v1::ApplyResponse last;
  const grpc::Status status = apply(apply_to(to_step_seven()), &last);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "job 'run' is beyond step 7 of epoch 2");
}

TEST_F(SwapCallsTest, ListsTheVersionsOfAPipeline) {
  service_.revision_views = {{1, 1'000, 0, "aa", "", 2, false},
                             {2, 2'000, 1000, "bb", "rollback to version 1", 0, true}};
  grpc::ClientContext context;
  v1::HistoryRequest request;
  request.set_pipeline("p");
  v1::HistoryResponse response;
  ASSERT_TRUE(pipelines_->History(&context, request, &response).ok());
  ASSERT_EQ(response.revisions_size(), 2);
  EXPECT_EQ(response.revisions(0).jobs(), 2u);
  EXPECT_FALSE(response.revisions(0).current());
  const v1::Revision& last = response.revisions(1);
  EXPECT_EQ(last.version(), 2u);
  EXPECT_EQ(last.applied_unix_ms(), 2'000u);
  EXPECT_EQ(last.applied_by(), 1000u);
  EXPECT_EQ(last.content_digest(), "bb");
  EXPECT_EQ(last.note(), "rollback to version 1");
  EXPECT_TRUE(last.current());
  EXPECT_EQ(service_.calls(), std::vector<std::string>{"history p"});
}

TEST_F(SwapCallsTest, RollsBackWithAndWithoutAVersionAndJobs) {
  const auto rollback = [&](const v1::RollbackRequest& request) {
    grpc::ClientContext context;
    v1::RollbackResponse last;
    EXPECT_TRUE(last_of(pipelines_->Rollback(&context, request), &last).ok());
    return last.swap().pipeline().version();
  };
  v1::RollbackRequest request;
  request.set_pipeline("p");
  EXPECT_EQ(rollback(request), 4u);
  EXPECT_FALSE(service_.last_swap()) << "no running job was to change";
  request.set_version(0);
  *request.mutable_swap() = to_step_seven();
  rollback(request);
  EXPECT_EQ(service_.last_swap()->job, "run");
  EXPECT_EQ(service_.calls(), (std::vector<std::string>{"rollback p previous", "rollback p 0"}));
}

TEST_F(SwapCallsTest, SkipsStepsButNotNone) {
  v1::SkipRequest request;
  request.mutable_key()->set_job("run");
  v1::Job job;
  {
    grpc::ClientContext context;
    EXPECT_EQ(jobs_->Skip(&context, request, &job).error_message(),
              "job 'run': steps must be at least 1");
  }
  request.set_steps(20);
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->Skip(&context, request, &job).ok());
  EXPECT_EQ(service_.calls(), std::vector<std::string>{"skip 20 run "});
}

TEST_F(SwapCallsTest, TunesAJobOrTheDaemon) {
  service_.live_values = {{.key = "prefetch",
                           .now = "8",
                           .configured = "4",
                           .range = "2 to 64",
                           .means = "batches ahead"}};
  v1::TuneRequest request;
  (*request.mutable_set())["prefetch"] = "8";
  request.add_reset("weight");
  v1::TuneResponse response;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(jobs_->Tune(&context, request, &response).ok());
  }
  request.mutable_key()->set_job("run");
  grpc::ClientContext context;
  ASSERT_TRUE(jobs_->Tune(&context, request, &response).ok());
  EXPECT_EQ(service_.calls(), (std::vector<std::string>{"tune the daemon", "tune run "}));
  EXPECT_EQ(service_.last_tuning().set, (std::map<std::string, std::string>{{"prefetch", "8"}}));
  EXPECT_EQ(service_.last_tuning().reset, std::vector<std::string>{"weight"});
  ASSERT_EQ(response.values_size(), 1);
  EXPECT_EQ(response.values(0).key(), "prefetch");
  EXPECT_EQ(response.values(0).now(), "8");
  EXPECT_EQ(response.values(0).configured(), "4");
  EXPECT_EQ(response.values(0).range(), "2 to 64");
  EXPECT_EQ(response.values(0).means(), "batches ahead");
}

}  // namespace
}  // namespace spdld::control
