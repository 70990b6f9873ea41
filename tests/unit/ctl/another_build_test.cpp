// SPDX-License-Identifier: Apache-2.0
// spdlctl against a daemon of another build.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>

#include "spdld/v1/control.grpc.pb.h"
#include "tests/unit/ctl/fake_daemon.h"

namespace spdld::ctl {
namespace {

TEST(AnotherBuild, IsNamedAsTheReasonWhyACallIsNotThere) {
  control::TempDir dir;
  v1::Pipelines::Service none;  // answers each call as gRPC does for one that is not there
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + dir.socket(), grpc::InsecureServerCredentials());
  builder.RegisterService(&none);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const Outcome outcome = spdlctl({"--address", dir.path(), "rollback", "pets"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "spdlctl: the daemon at " + dir.path() +
                             " is of another build, which cannot do this: install the same build "
                             "of spdld for both\n");
}

}  // namespace
}  // namespace spdld::ctl
