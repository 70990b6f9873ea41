// SPDX-License-Identifier: Apache-2.0
#include "session/drain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr pid_t kFirstPid =
    4'000'001;  // processes beside the test's own, which is nobody's rank here
constexpr pid_t kSecondPid = 4'000'002;

class DrainTest : public SessionsTest {
 protected:
  void SetUp() override {
    SessionsTest::SetUp();
    apply(yaml("q", "drop"));
  }
  void drain() { ASSERT_TRUE(service_->drain(self_)); }
  std::optional<DrainView> view() { return service_->daemon(self_).drain; }
  Result<job::JobView> declare(const std::string& job) {
    JobRequest request;
    request.job = job;
    request.pipeline = "p";
    request.num_shards = 1;
    return service_->create_job(self_, request, nullptr);
  }
  // What another daemon on the same state_dir begins with.
  void start_again() {
    die_and_start();
    service_->restore();
  }

  const job::Caller stranger_{Credentials{.uid = self_.uid + 4711}, getpid()};
};

TEST_F(DrainTest, ADrainedDaemonTakesNoNewJobs) {
  drain();
  EXPECT_THAT(attach({.job = "new", .pid = kFirstPid}).refusal(),
              AllOf(HasSubstr("the daemon is drained since 20"),
                    HasSubstr("by uid " + std::to_string(self_.uid)),
                    HasSubstr("takes no new jobs: start job 'new' on another node"),
                    HasSubstr("spdlctl --address /run/spdld undrain")));
  EXPECT_THAT(attach({.pid = kFirstPid}).refusal(), HasSubstr("start it on another node"));
  const auto declared = declare("new");
  ASSERT_FALSE(declared);
  EXPECT_EQ(declared.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(declared.error().message(), HasSubstr("takes no new jobs: start job 'new'"));
  EXPECT_TRUE(service_->jobs(self_).empty());
}

TEST_F(DrainTest, RanksOfAJobThatIsThereComeAndComeBack) {
  const Rank first = attach({.job = "run", .shard = 0, .num_shards = 2, .pid = kFirstPid});
  first.attached();
  drain();
  const Rank second = attach({.job = "run", .shard = 1, .num_shards = 2, .pid = kSecondPid});
  second.attached();
  first.batch();
  hang_up(first);
  attach({.job = "run", .shard = 0, .num_shards = 2, .pid = kFirstPid}).attached();
}

TEST_F(DrainTest, ANewerRestartTakesItsJobOver) {
  attach({.job = "run", .pid = kFirstPid}).attached();
  drain();
  attach({.job = "run", .incarnation = 1, .pid = kSecondPid}).attached();
}

TEST_F(DrainTest, ADeclaredJobIsThereThoughNobodyReadsIt) {
  ASSERT_TRUE(declare("declared"));
  drain();
  attach({.job = "declared", .pid = kFirstPid}).attached();
}

TEST_F(DrainTest, ATrainingRunOpensFurtherLoaders) {
  attach({.job = "run", .pid = kFirstPid}).attached();
  attach({.pid = kSecondPid}).attached();
  drain();
  attach({.pipeline = "q", .job = "run", .pid = kFirstPid}).attached();
  attach({.pipeline = "q", .pid = kSecondPid}).attached();
}

TEST_F(DrainTest, AJobThatHasEndedIsNewWhenItComesAgain) {
  const Rank rank = attach({.job = "run", .pid = kFirstPid});
  rank.attached();
  drain();
  hang_up(rank);
  EXPECT_THAT(attach({.job = "run", .from_ledger = true, .pid = kFirstPid}).refusal(),
              HasSubstr("start job 'run' on another node"));
}

TEST_F(DrainTest, ARestartKeepsTheDrainAndTheRanksThatComeBack) {
  attach({.job = "run", .pid = kFirstPid}).attached();
  attach({.job = "other", .pid = kSecondPid}).attached();
  drain();
  const std::uint64_t since_unix_ms = view()->since_unix_ms;
  start_again();
  ASSERT_TRUE(view());
  EXPECT_EQ(view()->since_unix_ms, since_unix_ms);
  EXPECT_EQ(view()->by, self_.uid);
  EXPECT_EQ(view()->ranks, 0U);
  EXPECT_EQ(view()->awaited_jobs, 2U);
  EXPECT_THAT(attach({.job = "new", .pid = kFirstPid}).refusal(), HasSubstr("takes no new jobs"));
  attach({.job = "run", .reconnect = true, .pid = kFirstPid}).attached();
  attach({.job = "other", .pid = kSecondPid}).attached();  // its trainer restarted meanwhile
  EXPECT_EQ(view()->ranks, 2U);
  EXPECT_EQ(view()->awaited_jobs, 0U);
}

TEST_F(DrainTest, NobodyIsAwaitedForEver) {
  attach({.job = "run", .pid = kFirstPid}).attached();
  drain();
  start_again();
  EXPECT_EQ(view()->awaited_jobs, 1U);
  clock_.advance(JobTable::kComeBack);
  EXPECT_EQ(view()->awaited_jobs, 0U);
  EXPECT_THAT(attach({.job = "run", .pid = kFirstPid}).refusal(), HasSubstr("takes no new jobs"));
}

TEST_F(DrainTest, RanksAreCountedUntilTheyLeave) {
  EXPECT_FALSE(view());
  const Rank rank = attach({.job = "run", .pid = kFirstPid});
  rank.attached();
  drain();
  EXPECT_EQ(view()->ranks, 1U);
  sessions_->detach(*rank.connection);
  EXPECT_EQ(view()->ranks, 0U);
}

TEST_F(DrainTest, ASecondDrainLeavesTheFirstInForce) {
  const auto first = service_->drain(self_);
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->began);
  const auto second = service_->drain(self_);
  ASSERT_TRUE(second);
  EXPECT_FALSE(second->began);
  EXPECT_EQ(second->drain.since_unix_ms, first->drain.since_unix_ms);
}

TEST_F(DrainTest, UndrainTakesNewJobsAgain) {
  drain();
  const auto ended = service_->undrain(self_);
  ASSERT_TRUE(ended && *ended);
  EXPECT_EQ((*ended)->by, self_.uid);
  EXPECT_FALSE(view());
  attach({.job = "new", .pid = kFirstPid}).attached();
  const auto again = service_->undrain(self_);
  ASSERT_TRUE(again);
  EXPECT_FALSE(*again) << "none was in force";
  start_again();
  EXPECT_FALSE(view());
}

TEST_F(DrainTest, OnlyAdminsDrainAndUndrain) {
  const auto refused = service_->drain(stranger_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("only admins drain the daemon, and uid " + std::to_string(stranger_.uid) +
                        " is not in access.admins"));
  EXPECT_FALSE(view());
  drain();
  const auto kept = service_->undrain(stranger_);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(kept.error().message(), HasSubstr("only admins undrain the daemon"));
  EXPECT_TRUE(view());
}

TEST_F(DrainTest, AnotherUsersJobOfTheNameIsNone) {
  attach({.job = "run", .pid = kFirstPid}).attached();
  drain();
  const Rank rank = connect(stranger_.uid, kSecondPid);
  delivery::AttachRequest request;
  request.pipeline = "p";
  request.job = "run";
  sessions_->attach(rank.connection, std::move(request));
  EXPECT_THAT(rank.refusal(), HasSubstr("takes no new jobs"));
}

TEST_F(DrainTest, ADrainThatCannotBeKeptDoesNotBegin) {
  run_sql("DROP TABLE drain");
  const auto failed = service_->drain(self_);
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message(), HasSubstr("spdld.sqlite could not be written"));
  EXPECT_FALSE(view());
  attach({.job = "new", .pid = kFirstPid}).attached();
}

}  // namespace
}  // namespace spdld::session
