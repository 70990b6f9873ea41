// SPDX-License-Identifier: Apache-2.0
// What spdlctl does to running jobs: apply with --job, rollback, limits and skips.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ctl/failure.h"
#include "ctl/numbers.h"
#include "ctl/swap_options.h"
#include "tests/unit/ctl/fake_daemon.h"

namespace spdld::ctl {
namespace {

using session::SwapAt;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class SpdlctlSwapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::setenv("SPDLD_ADDRESS", daemon_.path().c_str(), 1), 0);
    session::PipelineView& pipeline = service().pipeline_view;
    pipeline.name = "pets";
    pipeline.version = 4;
    pipeline.items = 211;
    pipeline.classes = 3;
    pipeline.batch_size = 8;
    pipeline.content_digest = "c4";
    service().swap_view.pipeline = pipeline;
    service().swap_view.jobs = {{"run-7", "pets", 4, {2, 0}, false}};
    pipeline.staying = {{"run-7", 3}};
    daemon_.start();
    file_ = daemon_.write("pets.yaml", "pipeline: pets\n");
  }
  void TearDown() override { ::unsetenv("SPDLD_ADDRESS"); }

  control::FakeService& service() { return daemon_.service; }

  static void expect_usage_error(const std::vector<std::string>& arguments,
                                 const std::string& message) {
    const Outcome outcome = spdlctl(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_EQ(outcome.err, "spdlctl: " + message + "\n");
  }

  FakeDaemon daemon_;
  std::string file_;
};

constexpr char kApplied[] =
    "pipeline 'pets' version 4 applied: 211 items, 3 classes, batches of 8\n";

TEST_F(SpdlctlSwapTest, SaysAtWhichStepAJobChanges) {
  const Outcome outcome = spdlctl({"apply", "-f", file_, "--job", "run-7"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            std::string(kApplied) + "job 'run-7' changes to version 4 at epoch 2, step 0\n");
  EXPECT_EQ(service().calls(), std::vector<std::string>{"swap"});
  EXPECT_EQ(service().last_swap()->job, "run-7");
  EXPECT_EQ(service().last_swap()->at.kind, SwapAt::Kind::kNextEpoch);
  EXPECT_FALSE(service().last_swap()->allow_schema_change);
}

TEST_F(SpdlctlSwapTest, SaysThatOnlyLiveValuesDiffered) {
  service().swap_view.jobs = {{"run-7", "pets", 4, {1, 3}, true}};
  EXPECT_EQ(spdlctl({"apply", "-f", file_, "--job", "run-7"}).out,
            std::string(kApplied) +
                "job 'run-7' runs version 4: changed at once, only live values differ\n");
}

TEST_F(SpdlctlSwapTest, SaysWhatAJobRunsAlready) {
  session::JobSwap& job = service().swap_view.jobs.front();
  job.runs = true;
  EXPECT_EQ(spdlctl({"apply", "-f", file_, "--job", "run-7"}).out,
            std::string(kApplied) + "job 'run-7' runs version 4 already, since epoch 2, step 0\n");
  job.version = 2;
  EXPECT_EQ(spdlctl({"apply", "-f", file_, "--job", "run-7"}).out,
            std::string(kApplied) +
                "job 'run-7' runs version 2 already, since epoch 2, step 0; version 4 is the same "
                "for it\n");
}

TEST_F(SpdlctlSwapTest, SaysWhatASwapReplacesAndOverrules) {
  session::JobSwap& job = service().swap_view.jobs.front();
  job.replaces = {{3, {3, 0}}};
  job.overrides = {{"size", "64", "32"}};
  const Outcome outcome = spdlctl({"apply", "-f", file_, "--job", "run-7"});
  EXPECT_EQ(outcome.out,
            std::string(kApplied) +
                "job 'run-7' changes to version 4 at epoch 2, step 0\n"
                "  replaces the change to version 3 that was to come at epoch 3, step 0\n"
                "job 'run-7' said size=64; it runs with size=32 from epoch 2, step 0 on\n");
}

TEST_F(SpdlctlSwapTest, NamesNoCommandWhereNoJobStays) {
  service().pipeline_view.staying.clear();
  EXPECT_EQ(spdlctl({"apply", "-f", file_}).out, kApplied);
}

TEST_F(SpdlctlSwapTest, SaysOfAJobThatHadEndedThatItIsForgotten) {
  EXPECT_EQ(spdlctl({"delete", "job", "run-7"}).out, "job 'run-7' on pipeline 'images' deleted\n");
  service().deleted_job.had_ended = true;
  EXPECT_EQ(spdlctl({"delete", "job", "run-7"}).out,
            "job 'run-7' on pipeline 'images' had ended: what was kept of it is forgotten\n");
}

TEST_F(SpdlctlSwapTest, SaysThatThereWasNoJobToChange) {
  service().swap_view.jobs.clear();
  EXPECT_EQ(spdlctl({"apply", "-f", file_, "--all-jobs"}).out,
            std::string(kApplied) + "no job runs it: version 4 is what new ones get\n");
  EXPECT_EQ(service().last_swap()->job, "");
}

TEST_F(SpdlctlSwapTest, SendsThePointThatWasAskedFor) {
  const auto sent = [&](const std::string& at) {
    const Outcome outcome = spdlctl({"apply", "-f", file_, "--all-jobs", "--at", at});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return service().last_swap()->at;
  };
  EXPECT_EQ(sent("now").kind, SwapAt::Kind::kNow);
  EXPECT_EQ(sent("next-epoch").kind, SwapAt::Kind::kNextEpoch);
  EXPECT_EQ(sent("step:12/340").kind, SwapAt::Kind::kStep);
  EXPECT_EQ(sent("step:12/340").step, (job::StepAt{12, 340}));
}

TEST_F(SpdlctlSwapTest, AllowsAnotherSchemaOnlyWhenTold) {
  EXPECT_EQ(spdlctl({"apply", "-f", file_, "--job", "run-7", "--allow-schema-change"}).exit_code,
            0);
  EXPECT_TRUE(service().last_swap()->allow_schema_change);
}

TEST_F(SpdlctlSwapTest, PrintsASwapAsJson) {
  const Outcome outcome = spdlctl({"apply", "-f", file_, "--job", "run-7", "-o", "json"});
  const auto json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["pipeline"]["version"], 4);
  EXPECT_EQ(json["jobs"][0]["from"]["epoch"], 2);
  EXPECT_EQ(json["jobs"][0]["tuned"], false);
}

TEST_F(SpdlctlSwapTest, PassesOnWhyASwapIsRefused) {
  service().answer = Status(Code::kFailedPrecondition, "job 'run-7' is beyond step 0 of epoch 2");
  const Outcome outcome = spdlctl({"apply", "-f", file_, "--job", "run-7", "--at", "step:2/0"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "spdlctl: job 'run-7' is beyond step 0 of epoch 2\n");
}

TEST_F(SpdlctlSwapTest, RefusesOptionsThatContradictEachOther) {
  const auto apply = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"apply", "-f", file_});
    return more;
  };
  expect_usage_error(apply({"--at", "now"}),
                     "--at is about running jobs: say which by --job JOB or --all-jobs, or leave "
                     "--at out");
  expect_usage_error(apply({"--allow-schema-change"}),
                     "--allow-schema-change is about running jobs: say which by --job JOB or "
                     "--all-jobs, or leave --allow-schema-change out");
  expect_usage_error(apply({"--job", "a", "--all-jobs"}), "give either --job or --all-jobs");
  expect_usage_error(apply({"--job", ""}), "--job needs the name of a job");
  expect_usage_error(apply({"--job", "a", "--dry-run"}),
                     "--dry-run checks the pipeline and changes no job: leave out either --dry-run "
                     "or --job and --all-jobs");
  for (const std::string at : {"", "soon", "step:", "step:2", "step:/2", "step:2/", "step:2/-1",
                               "step:2/1x", "step: 2/1", "step:99999999999999999999/0"}) {
    expect_usage_error(apply({"--job", "a", "--at", at}),
                       "--at '" + at +
                           "' is none of next-epoch, now and step:EPOCH/STEP (step:2/0 is where "
                           "epoch 2 begins)");
  }
  EXPECT_EQ(service().calls(), std::vector<std::string>{});
}

TEST_F(SpdlctlSwapTest, SaysWhichJobsStayAndHowToChangeThem) {
  const Outcome outcome = spdlctl({"apply", "-f", file_, "--var", "note=two words"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            std::string(kApplied) +
                "1 running job stays on version 3. To change it:\n  spdlctl apply -f " + file_ +
                " --var 'note=two words' --job run-7 --at next-epoch\n");
  service().pipeline_view.staying = {{"run-7", 3}, {"run-8", 2}, {"run-9", 3}};
  EXPECT_EQ(spdlctl({"apply", "-f", file_}).out,
            std::string(kApplied) +
                "1 running job stays on version 2, 2 on version 3. To change them:\n  spdlctl "
                "apply -f " +
                file_ + " --all-jobs --at next-epoch\n");
  EXPECT_EQ(service().calls(), (std::vector<std::string>{"apply", "apply"}));
}

TEST_F(SpdlctlSwapTest, NamesTheAddressInTheCommandIfOneWasGiven) {
  const Outcome outcome = spdlctl({"--address", daemon_.path(), "apply", "-f", file_});
  EXPECT_NE(outcome.out.find("\n  spdlctl --address " + daemon_.path() + " apply -f "),
            std::string::npos)
      << outcome.out;
}

TEST_F(SpdlctlSwapTest, SaysOfADryRunWhatWouldBeAppliedAndNoVersion) {
  service().pipeline_view.version = 0;
  EXPECT_EQ(spdlctl({"apply", "-f", file_, "--dry-run"}).out,
            "pipeline 'pets' would be applied: 211 items, 3 classes, batches of 8\n");
  EXPECT_EQ(service().calls(), std::vector<std::string>{"apply dry"});
}

TEST_F(SpdlctlSwapTest, RollsBackToTheVersionBeforeOrToOneThatIsNamed) {
  service().swap_view.pipeline.version = 5;
  service().swap_view.jobs = {{"run-7", "pets", 5, {2, 0}, false}};
  const Outcome outcome =
      spdlctl({"rollback", "pets", "--to", "3", "--job", "run-7", "--at", "now"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            "pipeline 'pets' rolled back, as version 5: 211 items, 3 classes, batches of 8\n"
            "job 'run-7' changes to version 5 at epoch 2, step 0\n");
  EXPECT_EQ(service().last_swap()->at.kind, SwapAt::Kind::kNow);
  EXPECT_EQ(spdlctl({"rollback", "pets", "--all-jobs"}).exit_code, 0);
  EXPECT_EQ(service().calls(),
            (std::vector<std::string>{"rollback pets 3", "rollback pets previous"}));
}

TEST_F(SpdlctlSwapTest, SaysWhichJobsStayAfterARollback) {
  service().swap_view.pipeline.version = 5;
  service().swap_view.pipeline.staying = {{"run-7", 3}};
  service().swap_view.repeats = 2;
  const Outcome outcome = spdlctl({"rollback", "pets"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            "pipeline 'pets' rolled back, as version 5: 211 items, 3 classes, batches of 8\n"
            "1 running job stays on version 3. To change it:\n"
            "  spdlctl rollback pets --to 2 --job run-7 --at next-epoch\n");
  EXPECT_FALSE(service().last_swap());
}

TEST_F(SpdlctlSwapTest, ClaimsNoRollbackToWhatIsCurrent) {
  service().swap_view.unchanged = true;
  service().swap_view.repeats = 4;
  EXPECT_EQ(spdlctl({"rollback", "pets", "--to", "4"}).out,
            "pipeline 'pets' is at version 4 already: nothing was changed\n");
  service().swap_view.repeats = 1;
  service().swap_view.pipeline.staying = {{"run-7", 3}};
  EXPECT_EQ(
      spdlctl({"rollback", "pets", "--to", "1"}).out,
      "pipeline 'pets' is at version 4 already, which repeats version 1: nothing was changed\n"
      "1 running job stays on version 3. To change it:\n"
      "  spdlctl rollback pets --to 1 --job run-7 --at next-epoch\n");
  EXPECT_EQ(spdlctl({"rollback", "pets", "--to", "1", "--job", "run-7"}).out,
            "pipeline 'pets' is at version 4 already, which repeats version 1: 211 items, 3 "
            "classes, batches of 8\n"
            "job 'run-7' changes to version 4 at epoch 2, step 0\n");
}

TEST_F(SpdlctlSwapTest, SaysWhichVersionADroppedChangeLeaves) {
  service().swap_view.jobs = {
      {"run-7", "pets", 3, {0, 0}, false, true, {{5, {2, 0}}}},
  };
  const std::string job =
      ": 211 items, 3 classes, batches of 8\n"
      "job 'run-7' runs version 3 already, since epoch 0, step 0";
  const std::string dropped =
      "\n  replaces the change to version 5 that was to come at epoch 2, step 0\n";
  const std::vector<std::string> rollback = {"rollback", "pets", "--to", "3", "--job", "run-7"};
  service().swap_view.pipeline.version = 3;
  service().swap_view.repeats = 3;
  EXPECT_EQ(spdlctl(rollback).out, "pipeline 'pets' is back at version 3" + job + dropped);
  service().swap_view.pipeline.version = 5;
  service().swap_view.repeats = 0;
  service().swap_view.unchanged = true;
  EXPECT_EQ(spdlctl(rollback).out, "pipeline 'pets' stays at version 5" + job + dropped);
}

TEST_F(SpdlctlSwapTest, RefusesRollbacksThatMeanNothing) {
  expect_usage_error({"rollback", "pets", "--at", "now"},
                     "--at is about running jobs: say which by --job JOB or --all-jobs, or leave "
                     "--at out");
  EXPECT_EQ(spdlctl({"rollback"}).exit_code, 2);
  EXPECT_EQ(spdlctl({"rollback", "pets", "--to", "0"}).exit_code, 2);
  EXPECT_EQ(service().calls(), std::vector<std::string>{});
  service().answer = Status(Code::kNotFound, "pipeline 'pets' has no version 9");
  const Outcome outcome = spdlctl({"rollback", "pets", "--to", "9"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "spdlctl: pipeline 'pets' has no version 9\n");
}

TEST_F(SpdlctlSwapTest, ListsAPipelinesVersions) {
  service().revision_views = {
      {3, 1'760'000'000'000, 1000, "0123456789abcdef", "", 2, false},
      {4, 1'760'000'060'000, 0, "fedcba9876543210", "rollback to version 2", 0, true}};
  EXPECT_EQ(spdlctl({"get", "pipelines", "pets", "--history"}).out,
            "VERSION  APPLIED                 BY  JOBS  CURRENT  CONTENT       NOTE\n"
            "      3  2025-10-09 08:53:20Z  1000     2  -        0123456789ab  -\n"
            "      4  2025-10-09 08:54:20Z     0     0  yes      fedcba987654  rollback to version "
            "2\n");
  const auto json =
      nlohmann::json::parse(spdlctl({"get", "pipelines", "pets", "--history", "-o", "json"}).out);
  EXPECT_EQ(json[0]["content_digest"], "0123456789abcdef");
  EXPECT_EQ(json[1]["current"], true);
  expect_usage_error({"get", "pipelines", "--history"},
                     "get pipelines --history needs the name of a pipeline");
  expect_usage_error({"get", "pipelines", "pets", "--history", "-o", "yaml"},
                     "get pipelines --history is a list: print it with -o table or -o json");
}

TEST_F(SpdlctlSwapTest, DeclaresJobsWithReplicasAndLimits) {
  const Outcome outcome = spdlctl({"job", "create", "run", "--pipeline", "pets", "--replicas", "2",
                                   "--weight", "0.5", "--cpus", "4", "--memory", "2GiB"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(service().last_job().replicas, 2u);
  EXPECT_EQ(service().last_job().limits, (job::JobLimits{0.5, 4, 2ull << 30}));
  EXPECT_EQ(spdlctl({"job", "create", "run", "--pipeline", "pets"}).exit_code, 0);
  EXPECT_EQ(service().last_job().limits, job::JobLimits{});
}

TEST_F(SpdlctlSwapTest, TunesAJobOrTheDaemonAndShowsWhatWasChanged) {
  service().live_values = {
      {.key = "prefetch",
       .now = "8",
       .configured = "4",
       .range = "2 to 64",
       .means = "batches ahead"},
      {.key = "weight", .now = "1", .configured = "1", .range = "0.001 to 1000", .means = "share"}};
  const Outcome changed = spdlctl(
      {"tune", "run", "--pipeline", "pets", "prefetch=8", "memory=2GiB", "--reset", "cpus"});
  EXPECT_EQ(changed.exit_code, 0) << changed.err;
  EXPECT_THAT(changed.out, AllOf(HasSubstr("prefetch  8"), Not(HasSubstr("weight"))));
  EXPECT_EQ(service().last_tuning().set,
            (std::map<std::string, std::string>{{"prefetch", "8"}, {"memory", "2GiB"}}));
  EXPECT_EQ(service().last_tuning().reset, std::vector<std::string>{"cpus"});
  EXPECT_THAT(spdlctl({"tune", "run"}).out, HasSubstr("weight"));
  EXPECT_TRUE(service().last_tuning().changes_nothing());
  const auto json =
      nlohmann::json::parse(spdlctl({"tune", "daemon", "--reset", "all", "-o", "json"}).out);
  EXPECT_EQ(json[0]["configured"], "4");
  EXPECT_EQ(service().calls(),
            (std::vector<std::string>{"tune run pets", "tune run ", "tune the daemon"}));
}

TEST_F(SpdlctlSwapTest, SaysFromWhereOnRowsAreDealtOutAnew) {
  job::JobView& job = service().job_view;
  job.job = "run";
  job.num_shards = 4;
  job.batch_size = 8;
  job.dealt_from = {2, 17};
  const auto said = [](const std::vector<std::string>& command) {
    const Outcome outcome = spdlctl(command);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string resized = said({"job", "resize", "run", "--shards", "4"});
  EXPECT_EQ(resized.substr(0, resized.find('\n')),
            "job 'run' is dealt out to 4 shards from epoch 2, step 17 on");
  EXPECT_NE(resized.find("\nbatches    8 rows on each of 4 shards, dealt out so from 2/17 on\n"),
            std::string::npos)
      << resized;
  const std::string skipped = said({"job", "seek", "run", "--skip", "1"});
  EXPECT_EQ(skipped.substr(0, skipped.find('\n')),
            "job 'run' leaves out 1 step of rows from epoch 2, step 17 on");
  const auto json =
      nlohmann::json::parse(said({"job", "resize", "run", "--shards", "4", "-o", "json"}));
  EXPECT_EQ(json["dealt_from"], (nlohmann::json{{"epoch", 2}, {"step", 17}}));
}

TEST_F(SpdlctlSwapTest, SaysUpToWhereAJobReadsOnThatIsSentElsewhere) {
  job::JobView& job = service().job_view;
  job.job = "run";
  job.seeks = {{.from = {1, 2}, .to = {9, 0}}, {.from = {9, 5}, .to = {0, 3}}};
  const Outcome sought = spdlctl({"job", "seek", "run", "--epoch", "0", "--step", "3"});
  EXPECT_EQ(sought.out.substr(0, sought.out.find('\n')),
            "job 'run' reads on to epoch 9, step 5, and goes on at epoch 0, step 3 from there");
  EXPECT_NE(sought.out.find("\nseek       at 1/2 to 9/0: not every rank is known to be there\n"
                            "seek       at 9/5 to 0/3: not every rank is known to be there\n"),
            std::string::npos)
      << sought.out;
}

TEST_F(SpdlctlSwapTest, SkipsSteps) {
  EXPECT_EQ(spdlctl({"job", "seek", "run", "--skip", "20"}).exit_code, 0);
  EXPECT_EQ(spdlctl({"job", "seek", "run", "--epoch", "0", "--step", "3"}).exit_code, 0);
  EXPECT_EQ(service().calls(), (std::vector<std::string>{"skip 20 run ", "seek 0/3 run "}));
}

TEST_F(SpdlctlSwapTest, RefusesJobCommandsThatMeanNothing) {
  expect_usage_error({"tune", "run", "prefetch"}, "tune: 'prefetch' is no KEY=VALUE");
  expect_usage_error({"tune", "run", "cpus=1", "cpus=2"}, "tune: cpus is given twice");
  expect_usage_error({"tune", "run", "cpus=1", "--reset", "cpus"},
                     "tune: cpus is both set and reset");
  expect_usage_error({"job", "seek", "run"},
                     "job seek needs to know where: --epoch E [--step S], or --skip N");
  expect_usage_error({"job", "seek", "run", "--step", "3"},
                     "job seek needs to know where: --epoch E [--step S], or --skip N");
  expect_usage_error({"job", "seek", "run", "--skip", "3", "--epoch", "1"},
                     "job seek --skip counts from where the job is: leave --epoch and --step out");
  const auto refused = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"job", "create", "run", "--pipeline", "pets"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = spdlctl(arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    return outcome.err.substr(0, outcome.err.find('\n'));
  };
  EXPECT_EQ(refused({"--weight", "0"}), "--weight: '0' is no number above 0");
  EXPECT_EQ(refused({"--weight", "nan"}), "--weight: 'nan' is no number above 0");
  EXPECT_EQ(refused({"--cpus", "-1"}), "--cpus: '-1' is no whole number of at least 0");
  EXPECT_EQ(refused({"--memory", "2XiB"}),
            "--memory: '2XiB' is no size such as 2GiB, 1.5GiB or 1048576");
  EXPECT_EQ(service().calls(), std::vector<std::string>{});
}

TEST_F(SpdlctlSwapTest, TakesSeveralAddressesOnlyWhereTheyMeanSomething) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"status"},
                                                  {"get", "jobs"},
                                                  {"job", "advance", "run"},
                                                  {"rollback", "pets"},
                                                  {"consume", "pets"},
                                                  {"explain", "-f", file_}}) {
    std::vector<std::string> arguments = {"--address", "/a,/b"};
    arguments.insert(arguments.end(), command.begin(), command.end());
    expect_usage_error(arguments,
                       "--address names 2 daemons; only 'apply --job JOB --at step:EPOCH/N' takes "
                       "several: name one of them");
  }
  const std::string several =
      "an apply to several daemons changes one job at one step: give --job JOB and --at "
      "step:EPOCH/STEP; for anything else run it once for each --address";
  const std::vector<std::string> apply = {"--address", "/a", "--address", "/b",
                                          "apply",     "-f", file_};
  for (const std::vector<std::string>& more : {std::vector<std::string>{},
                                               {"--dry-run"},
                                               {"--job", "run"},
                                               {"--job", "run", "--at", "now"},
                                               {"--all-jobs", "--at", "step:1/0"}}) {
    std::vector<std::string> arguments = apply;
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_usage_error(arguments, several);
  }
  expect_usage_error({"--address", "/a,,/b", "status"},
                     "--address '/a,,/b' names an empty address among others");
  expect_usage_error({"--address", "/a,/a", "status"}, "--address /a is given twice");
}

TEST(ParseSize, ReadsWhatTheConfigurationReads) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("1048576"), 1u << 20);
  EXPECT_EQ(parse_size("2GiB"), 2ull << 30);
  EXPECT_EQ(parse_size("1.5GiB"), 3ull << 29);
  EXPECT_EQ(parse_size("64 kB"), 64'000u);
  for (const std::string text : {"", " ", "GiB", "-1", "1.2.3GiB", "1.0001kB5", "2gib", "0.3B",
                                 "9223372036854775808", "99999999TiB", "1e3", ".", "1  GiB"}) {
    EXPECT_FALSE(parse_size(text)) << text;
  }
}

TEST(ShellCommand, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(shell_command({"spdlctl", "-f", "/a/b.yaml", "--var", "a=1"}),
            "spdlctl -f /a/b.yaml --var a=1");
  EXPECT_EQ(shell_command({"a b", "it's", "$(x)", ""}), "'a b' 'it'\\''s' '$(x)' ''");
}

}  // namespace
}  // namespace spdld::ctl
