// SPDX-License-Identifier: Apache-2.0
// spdlctl against a daemon that is older than itself.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "spdld/v1/control.grpc.pb.h"
#include "tests/unit/ctl/fake_daemon.h"

namespace spdld::ctl {
namespace {

// Knows Apply, but no swaps; all else it answers as gRPC does for what is not there.
class OldPipelines final : public v1::Pipelines::Service {
 public:
  grpc::Status Apply(grpc::ServerContext*, const v1::ApplyRequest*,
                     grpc::ServerWriter<v1::ApplyResponse>* writer) override {
    v1::ApplyResponse response;
    response.mutable_pipeline()->set_name("pets");
    writer->Write(response);
    return grpc::Status::OK;
  }
  grpc::Status Explain(grpc::ServerContext*, const v1::ExplainRequest*,
                       grpc::ServerWriter<v1::ExplainResponse>* writer) override {
    v1::ExplainResponse response;
    response.set_plan("the plan");
    writer->Write(response);
    return grpc::Status::OK;
  }
};

class OldDaemonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + dir_.socket(), grpc::InsecureServerCredentials());
    builder.RegisterService(&pipelines_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    const std::string file = dir_.path() + "/pets.yaml";
    std::ofstream(file) << "pipeline: pets\n";
    apply_ = {"--address", dir_.path(), "apply", "-f", file};
  }

  control::TempDir dir_;
  OldPipelines pipelines_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> apply_;
};

TEST_F(OldDaemonTest, IsNotBelievedToHaveChangedAJob) {
  apply_.insert(apply_.end(), {"--job", "run"});
  const Outcome outcome = spdlctl(apply_);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "spdlctl: the daemon at " + dir_.path() +
                             " has applied pipeline 'pets', but is of an earlier version, which "
                             "cannot change running jobs: they stay as they are\n");
}

TEST_F(OldDaemonTest, IsNamedAsTheReasonWhyACallIsNotThere) {
  const Outcome outcome = spdlctl({"--address", dir_.path(), "rollback", "pets"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "spdlctl: the daemon at " + dir_.path() +
                             " is of an earlier version, which cannot do this: restart it as the "
                             "version of this spdlctl\n");
}

TEST_F(OldDaemonTest, ExplainsToPeopleAlone) {
  std::vector<std::string> explain = apply_;
  explain[2] = "explain";
  EXPECT_EQ(spdlctl(explain).out, "the plan\n");
  explain.insert(explain.end(), {"-o", "json"});
  const Outcome outcome = spdlctl(explain);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "spdlctl: the daemon at " + dir_.path() +
                             " is of an earlier version, which tells a plan as text alone: leave "
                             "out -o json, or restart it as the version of this spdlctl\n");
}

TEST_F(OldDaemonTest, StillAppliesAndLeavesOpenWhichJobsStay) {
  const Outcome outcome = spdlctl(apply_);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "pipeline 'pets' version 0 applied: 0 items, 0 classes, batches of 0\n");
  EXPECT_EQ(outcome.err, "");
}

}  // namespace
}  // namespace spdld::ctl
