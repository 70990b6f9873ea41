// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "session/daemon_values.h"
#include "tests/unit/session/sessions_fixture.h"

namespace spdld::session {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string now_of(const std::vector<LiveValue>& values, const std::string& key) {
  for (const LiveValue& value : values) {
    if (value.key == key) return value.now + " of " + value.configured;
  }
  return "not there";
}

// One job on a pipeline of forty small files in batches of two: twenty steps.
class TuneTest : public SessionsTest {
 protected:
  void SetUp() override {
    for (int i = 10; i < 40; ++i) files_.file("data/" + std::to_string(i) + ".bin", "bytes");
    SessionsTest::SetUp();
  }
  Result<std::vector<LiveValue>> tune(const TuneRequest& request) {
    return service_->tune_job(self_, "j", "", request);
  }
  void set(const std::string& key, const std::string& value) {
    const auto tuned = tune({.set = {{key, value}}});
    ASSERT_TRUE(tuned) << tuned.error().message();
  }
  std::string value(const std::string& key) { return now_of(*tune({}), key); }
  // Batches that the rank is sent while it gives none back.
  std::vector<wire::BatchFrame> hold(Loop& loop, std::size_t batches) {
    std::vector<wire::BatchFrame> held;
    while (held.size() < batches && !HasFailure()) held.push_back(loop.rank.batch());
    for (const wire::BatchFrame& batch : held) EXPECT_EQ(batch.turn, loop.wish.in_run.turn++);
    return held;
  }
  // Reads until the process is told that it may hold so many batches.
  void read_until_told(Loop& loop, std::uint32_t credits) {
    while (const auto frame = test::receive_frame(loop.rank.socket.get())) {
      if (frame->type() == wire::FrameType::kBatch) {
        const auto batch = frame->as<wire::BatchFrame>();
        EXPECT_EQ(batch.turn, loop.wish.in_run.turn++);
        sessions_->release(*loop.rank.connection, batch.lease);
      }
      if (frame->type() == wire::FrameType::kVersion &&
          frame->as<wire::VersionFrame>().credits == credits)
        return;
    }
    ADD_FAILURE() << "hung up instead";
  }
  void release(const Loop& loop, const std::vector<wire::BatchFrame>& batches) {
    for (const wire::BatchFrame& batch : batches)
      sessions_->release(*loop.rank.connection, batch.lease);
  }
};

TEST_F(TuneTest, PrefetchChangesInMidEpochAndNoBatchIsLostOrRepeated) {
  Loop loop = open({.job = "j", .shard = 0, .num_shards = 1, .credits = 2});
  read(loop, 2);
  EXPECT_EQ(value("prefetch"), "2 of 4") << "what the loader asked for";
  set("prefetch", "6");
  EXPECT_EQ(value("prefetch"), "6 of 4");
  read_until_told(loop, 6);  // batches that were begun lie in the old slots
  release(loop, hold(loop, 6));
  EXPECT_EQ(service_->sessions(self_).front().credits, 6U);
  ASSERT_TRUE(tune({.reset = {"prefetch"}}));
  read_until_told(loop, 2);
  read(loop, 28);
  EXPECT_EQ(service_->sessions(self_).front().credits, 2U) << "what the loader asked for";
}

TEST_F(TuneTest, ReplicasGoOnTogetherInTheNewSlots) {
  Wish wish{.job = "j", .shard = 0, .num_shards = 1, .replicas = 2};
  Loop first = open(wish);
  wish.replica = 1;
  wish.pid = 4'000'001;
  Loop second = open(wish);
  step(first);
  set("prefetch", "2");
  step(second);
  for (int i = 1; i < 20; ++i) EXPECT_EQ(at(step(first)), at(step(second)));
  for (const SessionView& session : service_->sessions(self_)) EXPECT_EQ(session.credits, 2U);
}

TEST_F(TuneTest, KeepsWhatWasTunedOverARestart) {
  JobRequest request = declared(0);
  request.limits.weight = 3;
  ASSERT_TRUE(service_->create_job(self_, request, nullptr));
  set("prefetch", "8");
  set("fetch.concurrency", "64");
  set("weight", "5");
  stop();
  start();
  service_->restore();
  EXPECT_EQ(value("prefetch"), "8 of 4");
  EXPECT_EQ(value("fetch.concurrency"), "64 of 16");
  EXPECT_EQ(value("weight"), "5 of 3");
  Loop loop = open({.job = "j", .shard = 0});
  hold(loop, 8);
  ASSERT_TRUE(tune({.reset = {"all"}}));
  EXPECT_EQ(service_->job(self_, "j", "")->limits.prefetch, std::nullopt);
  EXPECT_EQ(value("weight"), "3 of 3");
}

TEST_F(TuneTest, ChangesStagesOfAJobThatReads) {
  Loop loop = open({.job = "j", .shard = 0, .num_shards = 1});
  read(loop, 1);
  ASSERT_TRUE(tune({.set = {{"fetch.concurrency", "3"}, {"process.concurrency", "1"}}}));
  std::vector<job::StageView> stages = service_->stages(self_);
  EXPECT_EQ(stages[0].concurrency, 3U);
  EXPECT_EQ(stages[1].concurrency, 1U);
  ASSERT_TRUE(tune({.reset = {"fetch.concurrency", "process.concurrency"}}));
  stages = service_->stages(self_);
  EXPECT_EQ(stages[0].concurrency, 16U);
  EXPECT_EQ(stages[1].concurrency, 2U) << "as many as there are workers";
}

TEST_F(TuneTest, RefusesWhatIsNoValueAndChangesNothing) {
  open({.job = "j", .shard = 0, .num_shards = 1});
  const auto refusal = [&](const TuneRequest& request) {
    const auto tuned = tune(request);
    EXPECT_FALSE(tuned);
    return tuned ? std::string() : tuned.error().message();
  };
  EXPECT_EQ(refusal({.set = {{"cpus", "2"}, {"prefetch", "65"}}}),
            "job 'j': prefetch cannot be '65': it may be 2 to 64");
  EXPECT_EQ(refusal({.set = {{"weight", "1e300"}}}),
            "job 'j': weight cannot be '1e300': it may be 0.001 to 1000");
  EXPECT_THAT(refusal({.set = {{"prefetsh", "8"}}}),
              HasSubstr("there is no value 'prefetsh' of a job that can be changed while it is in "
                        "force; did you mean 'prefetch'?"));
  EXPECT_THAT(refusal({.reset = {"batch.size"}}), HasSubstr("there is no value 'batch.size'"));
  EXPECT_EQ(value("cpus"), "all of all");
}

TEST_F(TuneTest, SaysWhatIsMissingWhereTheNewSlotsDoNotFit) {
  Loop loop = open({.job = "j", .shard = 0, .num_shards = 1});
  read(loop, 1);
  const std::uint64_t used = service_->job(self_, "j", "")->arena_bytes;
  set("memory", std::to_string(used + 4096));
  const auto tuned = tune({.set = {{"prefetch", "64"}}});
  ASSERT_FALSE(tuned);
  EXPECT_EQ(tuned.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(tuned.error().message(), HasSubstr("does not fit: the job has"));
  EXPECT_EQ(value("prefetch"), "4 of 4");
  read(loop, 25);
}

// The daemon's values, two of them, which a test looks at.
class DaemonValuesTest : public TuneTest {
 protected:
  DaemonValue number(const std::string& key, int& value) {
    return {.key = key,
            .range = "1 to 9",
            .means = "a number",
            .now = [&value] { return std::to_string(value); },
            .read = [key, &value](const std::string& text) -> Result<DaemonValue::Setting> {
              if (text.size() != 1 || text < "1" || text > "9")
                return tl::unexpected<Status>(not_in_range(key, text, "1 to 9"));
              return [&value, number = std::stoi(text)] {
                value = number;
                return Status();
              };
            }};
  }
  std::unique_ptr<DaemonValues> made() {
    auto values = std::make_unique<DaemonValues>(
        std::vector<DaemonValue>{number("a", a_), number("b", b_)}, *store_);
    EXPECT_TRUE(values->configure({{"a", "1"}, {"b", "2"}}).changed.empty());
    EXPECT_TRUE(values->restore().empty());
    return values;
  }
  const TrustedUsers trusted_{{self_.uid}};
  int a_ = 1;
  int b_ = 2;
};

TEST_F(DaemonValuesTest, KeepsWhatAnAdminSaidUntilItIsReset) {
  EXPECT_EQ(now_of(*made()->tune(self_, trusted_, {.set = {{"a", "5"}}}), "a"), "5 of 1");
  a_ = 1;  // as another daemon begins
  auto values = made();
  EXPECT_EQ(a_, 5);
  EXPECT_EQ(now_of(*values->tune(self_, trusted_, {.reset = {"all"}}), "a"), "1 of 1");
  EXPECT_EQ(a_, 1);
}

TEST_F(DaemonValuesTest, TakesAChangedConfigurationButNotOverAnAdminsWord) {
  const auto values = made();
  ASSERT_TRUE(values->tune(self_, trusted_, {.set = {{"a", "5"}}}));
  const auto told = values->configure({{"a", "3"}, {"b", "4"}}).changed;
  EXPECT_EQ(a_, 5);
  EXPECT_EQ(b_, 4);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_THAT(told[0], AllOf(HasSubstr("a is 3 in the configuration now, and stays 5"),
                             HasSubstr("spdlctl tune daemon --reset a")));
  EXPECT_EQ(told[1], "b is 4 from now on, as the configuration says");
  ASSERT_TRUE(values->tune(self_, trusted_, {.reset = {"a"}}));
  EXPECT_EQ(a_, 3);
}

TEST_F(DaemonValuesTest, LeavesAValueAsItWasThatTheConfigurationGetsWrong) {
  const auto values = made();
  const DaemonValues::Configured told = values->configure({{"a", "99"}, {"b", "4"}});
  EXPECT_EQ(told.refused, std::vector<std::string>{
                              "the configuration's a stays 1: a cannot be '99': it may be 1 to 9"});
  EXPECT_EQ(now_of(*values->tune(self_, trusted_, {}), "a"), "1 of 1");
  EXPECT_EQ(b_, 4);
}

TEST_F(DaemonValuesTest, ForgetsAValueThatDoesNotFitAnyMoreOnceItIsReset) {
  ASSERT_TRUE(store_->put_tuned({{"a", "77"}}).ok());
  DaemonValues values({number("a", a_)}, *store_);
  values.configure({{"a", "1"}});
  const auto told = values.restore();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], HasSubstr("a=77, as it was tuned, does not count: a cannot be '77'"));
  ASSERT_TRUE(values.tune(self_, trusted_, {.reset = {"all"}}));
  EXPECT_TRUE(store_->tuned()->empty());
}

TEST_F(DaemonValuesTest, ChangesAllOrNothing) {
  const auto values = made();
  const auto refused = values->tune(self_, trusted_, {.set = {{"a", "5"}, {"b", "77"}}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(), "b cannot be '77': it may be 1 to 9");
  EXPECT_EQ(a_, 1);
  EXPECT_EQ(b_, 2);
  EXPECT_THAT(values->tune(self_, trusted_, {.reset = {"c"}}).error().message(),
              HasSubstr("there is no value 'c' of the daemon"));
}

TEST_F(DaemonValuesTest, NobodyButAdminsTunesTheDaemon) {
  const auto refused = made()->tune(self_, TrustedUsers({self_.uid + 1}, false), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.error().message(), HasSubstr("only admins tune the daemon"));
}

}  // namespace
}  // namespace spdld::session
