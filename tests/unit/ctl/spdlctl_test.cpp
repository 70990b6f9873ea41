// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "control/control_server.h"
#include "ctl/failure.h"
#include "ctl/submission.h"
#include "tests/unit/ctl/fake_daemon.h"

namespace spdld::ctl {
namespace {

using control::FakeService;
using control::TempDir;

// The real command against the real gRPC server over a fake service.
class SpdlctlTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::setenv("SPDLD_ADDRESS", dir_.path().c_str(), 1), 0); }
  void TearDown() override { ::unsetenv("SPDLD_ADDRESS"); }

  void start() {
    auto started = control::ControlServer::start(
        control::listen_at(dir_.socket()), service_,
        {.metrics = [](const job::Caller&) { return "spdld_jobs 3\n"; }});
    ASSERT_TRUE(started) << started.error().message();
    server_ = std::move(*started);
  }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = dir_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  TempDir dir_;
  FakeService service_;
  std::unique_ptr<control::ControlServer> server_;
};

TEST_F(SpdlctlTest, AsksTheDaemonThatTheEnvironmentNames) {
  service_.daemon_view.version = "9.9";
  start();
  const Outcome outcome = spdlctl({"status"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.substr(0, 10), "spdld 9.9 ");
}

TEST_F(SpdlctlTest, PrefersTheAddressOptionWhereverItStands) {
  start();
  ::setenv("SPDLD_ADDRESS", "/nowhere", 1);
  EXPECT_EQ(spdlctl({"--address", dir_.path(), "status"}).exit_code, 0);
  EXPECT_EQ(spdlctl({"get", "jobs", "-o", "json", "--address", dir_.path()}).exit_code, 0);
  EXPECT_EQ(spdlctl({"status"}).exit_code, 3);
}

TEST_F(SpdlctlTest, NamesTheOptionThatAPipelinesFileIsGivenBy) {
  for (const std::string command : {"apply", "preview", "explain"}) {
    const Outcome outcome = spdlctl({command, "pets.yaml"});
    EXPECT_EQ(outcome.exit_code, 2) << command;
    EXPECT_EQ(outcome.err, "spdlctl: pets.yaml: a pipeline's file is given by -f: spdlctl " +
                               command + " -f pets.yaml\n");
  }
}

TEST_F(SpdlctlTest, SaysWhichCommandOrOptionMayHaveBeenMeant) {
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"aply", "-f", "pets.yaml"}, "'aply' is no command of 'spdlctl'; did you mean 'apply'?"},
      {{"describe", "job", "run"}, "'describe' is no command of 'spdlctl'; did you mean 'get'?"},
      {{"rm", "job", "run"}, "'rm' is no command of 'spdlctl'; did you mean 'delete'?"},
      {{"get", "jbos"}, "'jbos' is no command of 'spdlctl get'; did you mean 'jobs'?"},
      {{"job", "start"},
       "'start' is no command of 'spdlctl job'; there are: create, advance, seek, resize"},
      {{"status", "--adress", "/x"},
       "'--adress' is no option of 'spdlctl status'; did you mean '--address'?"},
      {{"get", "jobs", "--outputt=json"},
       "'--outputt' is no option of 'spdlctl get jobs'; did you mean '--output'?"},
      {{"status", "--wide"},
       "'--wide' is no option of 'spdlctl status'; see 'spdlctl status --help'"},
      {{"status", "now"}, "'spdlctl status' takes nothing like 'now'; see 'spdlctl status --help'"},
  };
  for (const auto& [words, told] : wrong) {
    const Outcome outcome = spdlctl(words);
    EXPECT_EQ(outcome.exit_code, 2) << told;
    EXPECT_EQ(outcome.err, "spdlctl: " + told + "\n");
  }
}

TEST_F(SpdlctlTest, ConsumesNoLongerThanItsTimeoutSays) {
  const std::vector<std::vector<std::string>> commands = {{"consume", "pets"},
                                                          {"bench", "handoff", "pets"}};
  for (const std::vector<std::string>& command : commands) {
    std::vector<std::string> words = {"--timeout", "0.05"};
    words.insert(words.end(), command.begin(), command.end());
    const Outcome outcome = spdlctl(words);
    EXPECT_EQ(outcome.exit_code, 3);
    EXPECT_NE(outcome.err.find("attempts in 50 ms"), std::string::npos) << outcome.err;
  }
}

TEST_F(SpdlctlTest, SaysThatThereIsNoDirectory) {
  const Outcome outcome = spdlctl({"--address", dir_.path() + "/none", "status"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.err, "spdlctl: no daemon answers at " + dir_.path() +
                             "/none/control.sock: " + dir_.path() +
                             "/none is no directory; is spdld running? start it with 'systemctl "
                             "start spdld' or 'spdld --config FILE', or name another runtime "
                             "directory by --address or $SPDLD_ADDRESS\n");
}

TEST_F(SpdlctlTest, SaysThatThereIsNoSocket) {
  const Outcome outcome = spdlctl({"get", "sessions"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.err.find("there is no such socket; spdld is not running"), std::string::npos)
      << outcome.err;
}

TEST_F(SpdlctlTest, SaysThatTheDaemonEndedAndLeftItsSocket) {
  { control::listen_at(dir_.socket()); }
  const Outcome outcome = spdlctl({"status"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.err.find("the socket is there, but nobody listens"), std::string::npos)
      << outcome.err;
}

TEST_F(SpdlctlTest, SaysWhoMayWhenPermissionIsDenied) {
  if (::geteuid() == 0) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const struct Back {
    ~Back() {
      if (::getuid() == 0 && ::seteuid(0) != 0) std::abort();
    }
  } back;
  TempDir closed;
  const UniqueFd listener = control::listen_at(closed.socket());
  std::filesystem::permissions(closed.socket(), std::filesystem::perms::none);
  const Outcome outcome = spdlctl({"--address", closed.path(), "status"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.err.find("permission denied for user "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("(mode 0000); ask the daemon's owner"), std::string::npos)
      << outcome.err;
}

TEST_F(SpdlctlTest, ReachesSocketsWhosePathIsLongerThanAnAddressHolds) {
  const std::string folder = dir_.path() + "/" + std::string(120, 'x');
  std::filesystem::create_directory(folder);
  const std::string old = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  UniqueFd listener = control::listen_at("control.sock");
  std::filesystem::current_path(old);
  auto server = control::ControlServer::start(std::move(listener), service_);
  ASSERT_TRUE(server);
  const Outcome outcome = spdlctl({"--address", folder, "status"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST_F(SpdlctlTest, TellsTheDaemonsRefusalFromItsAbsence) {
  service_.answer = Status(Code::kUnavailable, "the mount /data does not answer");
  start();
  const Outcome outcome = spdlctl({"get", "classes", "p"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "spdlctl: the mount /data does not answer\n");
}

TEST_F(SpdlctlTest, CallsADaemonThatWentAwayInACallUnreachable) {
  service_.work = [&](const session::Service::Progress&) {
    std::filesystem::remove(dir_.socket());
    return Status(Code::kUnavailable, "the daemon is stopping");
  };
  start();
  const Outcome outcome = spdlctl({"apply", "-f", write("p.yaml", "pipeline: p\n")});
  EXPECT_EQ(outcome.exit_code, 3);
}

TEST_F(SpdlctlTest, CallsAWrongPipelineWrongConfiguration) {
  service_.answer = Status(Code::kInvalidArgument, "p.yaml:3:5: unknown key 'sise'");
  start();
  const Outcome outcome = spdlctl({"apply", "-f", write("p.yaml", "pipeline: p\n")});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.err, "spdlctl: p.yaml:3:5: unknown key 'sise'\n");
}

TEST_F(SpdlctlTest, ExitsWithTwoOnWrongUsage) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"frobnicate"},
      {"get"},
      {"get", "everything"},
      {"status", "-o", "xml"},
      {"apply"},
      {"apply", "-f", dir_.path() + "/none.yaml"},
      {"apply", "-f", dir_.path()},
      {"apply", "-f", write("p.yaml", "pipeline: p\n"), "--var", "size"},
      {"apply", "-f", write("p.yaml", "pipeline: p\n"), "--var", "a=1", "--var", "a=2"},
      {"apply", "-f", write("empty.yaml", "")},
      {"apply", "-f", write("long.yaml", std::string((1 << 20) + 1, '#'))},
      {"get", "pipelines", "-o", "yaml"},
      {"job", "create", "run", "--pipeline", "p", "--shards", "0"},
      {"job", "seek", "run"},
      {"evict", "me"},
      {"consume"},
      {"consume", "p", "--per-row"},
      {"consume", "p", "--cursor", "nonsense"},
      {"--timeout", "0", "status"},
      {"--address", "node-7:4000", "status"},
  };
  for (const auto& arguments : wrong) {
    const Outcome outcome = spdlctl(arguments);
    std::string line;
    for (const std::string& argument : arguments) line += argument + " ";
    EXPECT_EQ(outcome.exit_code, 2) << line << outcome.err;
    EXPECT_FALSE(outcome.err.empty()) << line;
  }
}

TEST_F(SpdlctlTest, PrintsHelpAndVersionWithoutADaemon) {
  EXPECT_EQ(spdlctl({"--help"}).exit_code, 0);
  EXPECT_EQ(spdlctl({"job", "create", "--help"}).exit_code, 0);
  const Outcome version = spdlctl({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.substr(0, 8), "spdlctl ");
}

TEST_F(SpdlctlTest, SendsTheTextItsPathItsVarsAndItsEnvironment) {
  service_.pipeline_view.name = "p";
  service_.pipeline_view.version = 1;
  service_.pipeline_view.items = 12;
  service_.pipeline_view.classes = 3;
  service_.pipeline_view.batch_size = 4;
  service_.pipeline_view.tensors = {{"label", FieldKind::kDense, DType::kInt64, {}}};
  start();
  ::setenv("SPDLD_TEST_ROOT", "/data", 1);
  ::unsetenv("SPDLD_TEST_UNSET");
  const std::string yaml =
      "pipeline: p\nvars: {root: '${env:SPDLD_TEST_ROOT}${env:SPDLD_TEST_UNSET}'}\n";
  const std::string path = write("p.yaml", yaml);
  const Outcome outcome =
      spdlctl({"apply", "-f", dir_.path() + "/./p.yaml", "--var", "size=32", "--var", "a=b=c"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            "pipeline 'p' version 1 applied: 12 items, 3 classes, batches of 4\n  label int64[]\n");
  const job::ApplyRequest sent = service_.last_apply();
  EXPECT_EQ(sent.yaml, yaml);
  EXPECT_EQ(sent.file, path);
  EXPECT_EQ(sent.vars, (std::map<std::string, std::string>{{"size", "32"}, {"a", "b=c"}}));
  EXPECT_EQ(sent.env, (std::map<std::string, std::string>{{"SPDLD_TEST_ROOT", "/data"}}));
  EXPECT_EQ(service_.calls().front(), "apply");

  EXPECT_EQ(spdlctl({"apply", "-f", path, "--dry-run"}).exit_code, 0);
  EXPECT_EQ(service_.calls().back(), "apply dry");
}

TEST(ReferencedEnv, FindsEachNameOnceAndNothingHalf) {
  const auto env = [](const std::string& name) -> std::optional<std::string> {
    if (name == "B") return std::nullopt;
    return "<" + name + ">";
  };
  EXPECT_EQ(referenced_env("a: ${env:A}/${env:B} ${A} ${env:A}${env:C} ${env:D", env),
            (std::map<std::string, std::string>{{"A", "<A>"}, {"C", "<C>"}}));
  EXPECT_TRUE(referenced_env("", env).empty());
}

TEST_F(SpdlctlTest, PrintsEveryListAsJson) {
  service_.session_views.resize(1);
  service_.stage_views.resize(2);
  service_.failure_views.resize(3);
  service_.class_names = {"cat", "dog"};
  service_.user_views.resize(4);
  start();
  const auto size = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = spdlctl(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).size();
  };
  EXPECT_EQ(size({"get", "pipelines", "-o", "json"}), 1u);
  EXPECT_EQ(size({"get", "jobs", "-o", "json"}), 1u);
  EXPECT_EQ(size({"get", "sessions", "-o", "json"}), 1u);
  EXPECT_EQ(size({"get", "stages", "-o", "json"}), 2u);
  EXPECT_EQ(size({"get", "failures", "-o", "json"}), 3u);
  EXPECT_EQ(size({"get", "jobs", "--ended", "-o", "json"}), 1u);
  EXPECT_EQ(service_.calls().back(), "ended_jobs");
  EXPECT_EQ(size({"get", "stages", "--ended", "-o", "json"}), 2u);
  EXPECT_EQ(service_.calls().back(), "ended_stages");
  EXPECT_EQ(size({"get", "classes", "p", "-o", "json"}), 2u);
  EXPECT_EQ(size({"get", "users", "-o", "json"}), 4u);
}

TEST_F(SpdlctlTest, TellsWhyRanksWaitWithFiguresAndWhatToPaste) {
  service_.diagnoses = {
      {.job = "run",
       .pipeline = "pets",
       .waited_share = 0.41,
       .faster = 1.69,
       .ranks = 2,
       .findings = {{.cause = "epoch",
                     .says = "the next epoch is not open yet",
                     .evidence = {{"part_of_wait", 0.98, "share"}, {"rows", 12.345, "rows/s"}},
                     .command = "spdlctl job advance run",
                     .brings = "up to 1.7 x the rows a second"},
                    {.cause = "cpu", .says = "all workers are at work"}}},
      {.job = "idle", .pipeline = "pets", .waited_share = 0.01, .ranks = 1},
      {.job = "new", .pipeline = "pets", .ranks = 1},
      {.job = "empty", .pipeline = "pets"},
      {.job = "odd", .pipeline = "pets", .waited_share = 0.99, .faster = 100, .ranks = 1},
  };
  start();
  const Outcome outcome = spdlctl({"diagnose", "run", "--pipeline", "pets"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(service_.calls().back(), "diagnose run pets");
  EXPECT_EQ(outcome.out,
            "job 'run' on pipeline 'pets': of its ranks, the one that waits most waits for data "
            "41.0 % of its time; with data ready, training would be 1.7 x as fast\n"
            "1. epoch: the next epoch is not open yet\n"
            "   figures  part_of_wait 98 %, rows 12.3 rows/s\n"
            "   try      spdlctl job advance run\n"
            "   brings   up to 1.7 x the rows a second\n"
            "2. cpu: all workers are at work\n"
            "job 'idle' on pipeline 'pets': ranks do not wait for data (at most 1.0 % of their "
            "time): the "
            "trainer sets the pace\n"
            "job 'new' on pipeline 'pets': not known yet: its ranks have only just come\n"
            "job 'empty' on pipeline 'pets': no rank is attached\n"
            "job 'odd' on pipeline 'pets': its rank waits for data 99.0 % of its time; with data "
            "ready, training would be more than 10 x as fast; the figures do not tell why\n");
  service_.diagnoses.clear();
  EXPECT_EQ(spdlctl({"diagnose"}).out, "no jobs\n");
  EXPECT_EQ(spdlctl({"diagnose", "-o", "json"}).out, "[]\n");
}

TEST_F(SpdlctlTest, ShowsWhatReadyDataWouldBring) {
  service_.headspace_view = {.job = "run",
                             .pipeline = "pets",
                             .ranks = 4,
                             .prefetch = 64,
                             .steps_now = 100,
                             .steps_ready = 101,
                             .rounds = 2,
                             .longest_hold_s = 9.5,
                             .steps_per_epoch = 36000,
                             .now_s = 0.5,
                             .ready_s = 0.2};
  start();
  EXPECT_EQ(spdlctl({"headspace", "run"}).out,
            "job 'run' on pipeline 'pets', 4 ranks, the slowest one:\n"
            "a step now              0.5 s (100 steps)\n"
            "a step with data ready  0.2 s (101 steps in 2 rounds of up to 64 batches, held for up "
            "to 9.50s)\n"
            "gain                    60 % of a step: 2.50 x as fast, 3h 0m less an epoch\n");
  EXPECT_EQ(service_.calls().back(), "headspace 100 run ");
  service_.headspace_view.ready_s.reset();
  service_.headspace_view.ended_by = "a rank has left, or come";
  EXPECT_EQ(spdlctl({"headspace", "run", "--steps", "8"}).out,
            "job 'run' on pipeline 'pets', 4 ranks, the slowest one:\n"
            "a step now              0.5 s (100 steps)\n"
            "ended early: a rank has left, or come\n");
}

TEST_F(SpdlctlTest, SaysThatNoJobOfANameHasEndedThoughOthersHave) {
  start();
  const Outcome outcome = spdlctl({"get", "jobs", "--ended", "no-such-job"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "no job of this name has ended\n");
}

TEST_F(SpdlctlTest, KeepsOnlyWhatBelongsToTheJobThatIsAskedFor) {
  service_.stage_views.resize(3);
  service_.stage_views[0].job = service_.stage_views[2].job = "other";
  service_.stage_views[1].job = "run";
  service_.stage_views[1].stage = "decode_image";
  start();
  const Outcome outcome = spdlctl({"get", "stages", "--job", "run", "-o", "json"});
  const auto stages = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(stages.size(), 1u);
  EXPECT_EQ(stages[0]["stage"], "decode_image");
}

TEST_F(SpdlctlTest, ListsNothingOfAJobThatIsThereOrComesBack) {
  service_.job_view.job = "run";
  start();
  EXPECT_EQ(spdlctl({"get", "failures", "run"}).out, "no failures\n");
  EXPECT_EQ(spdlctl({"get", "failures", "7/run"}).out, "no failures\n");
  service_.answer = Status(Code::kUnavailable, "it was read when the daemon stopped");
  EXPECT_EQ(spdlctl({"get", "sessions", "--job", "away"}).out, "no sessions\n");
}

TEST_F(SpdlctlTest, ListsNothingOfUnknownNames) {
  service_.job_view.job = "run";
  service_.answer = Status(Code::kNotFound, "there is no job 'none'");
  start();
  for (const char* const what : {"sessions", "stages", "failures"}) {
    const Outcome no_job = spdlctl({"get", what, "--job", "none"});
    EXPECT_EQ(no_job.exit_code, 1) << what;
    EXPECT_NE(no_job.err.find("there is no job 'none'"), std::string::npos) << no_job.err;
  }
  for (const char* const what : {"sessions", "stages", "failures", "jobs"}) {
    const Outcome no_pipeline = spdlctl({"get", what, "--pipeline", "none"});
    EXPECT_EQ(no_pipeline.exit_code, 1) << what;
    EXPECT_NE(no_pipeline.err.find("there is no pipeline 'none'"), std::string::npos)
        << no_pipeline.err;
  }
}

TEST_F(SpdlctlTest, PrintsAPipelineAsItWasApplied) {
  start();
  EXPECT_EQ(spdlctl({"get", "pipelines", "p", "-o", "yaml"}).out, "pipeline: p\n");
  EXPECT_EQ(service_.calls(), (std::vector<std::string>{"pipeline p", "text p"}));
}

TEST_F(SpdlctlTest, SteersJobs) {
  service_.job_view.job = "run";
  service_.job_view.shards = {{0, 7, 123, 1, 40}};
  start();
  const Outcome created = spdlctl({"job", "create", "run", "--pipeline", "p", "--shards", "8",
                                   "--seed", "0", "--epochs", "manual", "--var", "size=32"});
  EXPECT_EQ(created.exit_code, 0) << created.err;
  EXPECT_NE(
      created.out.find("SHARD  SESSION  PID  EPOCH  STEP\n    0        7  123      1    40\n"),
      std::string::npos)
      << created.out;
  const session::JobRequest asked = service_.last_job();
  EXPECT_EQ(asked.num_shards, 8u);
  EXPECT_EQ(asked.seed, 0u);
  EXPECT_FALSE(asked.batch_size);
  EXPECT_EQ(asked.epochs, job::EpochMode::kManual);
  EXPECT_EQ(asked.vars.at("size"), "32");

  EXPECT_EQ(spdlctl({"job", "advance", "run"}).exit_code, 0);
  EXPECT_EQ(spdlctl({"job", "advance", "run", "--to", "0"}).exit_code, 0);
  EXPECT_EQ(spdlctl({"job", "seek", "run", "--epoch", "2"}).exit_code, 0);
  EXPECT_EQ(spdlctl({"job", "resize", "run", "--shards", "4", "--pipeline", "p"}).exit_code, 0);
  EXPECT_EQ(spdlctl({"delete", "job", "run"}).exit_code, 0);
  EXPECT_EQ(spdlctl({"delete", "pipeline", "p"}).exit_code, 0);
  EXPECT_EQ(spdlctl({"evict", "7", "--reason", "too slow"}).exit_code, 0);
  EXPECT_EQ(service_.calls(),
            (std::vector<std::string>{"create_job run", "advance next run ", "advance 0 run ",
                                      "seek 2/0 run ", "resize 4 run p", "delete_job run ",
                                      "delete_pipeline p", "evict 7 too slow"}));
}

TEST_F(SpdlctlTest, PrintsMetricsAsTheDaemonTellsThem) {
  start();
  const Outcome outcome = spdlctl({"metrics"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "spdld_jobs 3\n");
}

TEST_F(SpdlctlTest, PrintsNoMetricsOfADaemonThatIsNotThere) {
  const Outcome outcome = spdlctl({"metrics"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.out, "");
}

TEST_F(SpdlctlTest, DrainsAndSaysWhatIsInForce) {
  service_.drain_begun.drain = {.since_unix_ms = 1'767'000'000'000, .by = 7, .ranks = 2};
  start();
  const Outcome drained = spdlctl({"drain"});
  EXPECT_EQ(drained.exit_code, 0) << drained.err;
  EXPECT_EQ(drained.out, "drained since 2025-12-29 09:20:00Z by uid 7: 2 ranks are attached\n");
  service_.drain_begun.began = false;
  EXPECT_EQ(spdlctl({"drain"}).out.substr(0, 28), "drained already, since 2025-");
  EXPECT_EQ(
      nlohmann::json::parse(spdlctl({"drain", "-o", "json"}).out),
      (nlohmann::json{
          {"drain",
           {{"since_unix_ms", 1'767'000'000'000}, {"by", 7}, {"ranks", 2}, {"awaited_jobs", 0}}},
          {"began", false}}));
}

TEST_F(SpdlctlTest, StatusSaysThatTheDaemonIsDrained) {
  service_.drains = {session::DrainView{
      .since_unix_ms = 1'767'000'000'000, .by = 7, .ranks = 1, .awaited_jobs = 3}};
  start();
  EXPECT_THAT(spdlctl({"status"}).out, ::testing::Not(::testing::HasSubstr("drained")));
  spdlctl({"drain"});
  EXPECT_THAT(spdlctl({"status"}).out,
              ::testing::HasSubstr("\ndrained    since 2025-12-29 09:20:00Z by uid 7: 1 rank is "
                                   "attached, and ranks of 3 jobs may come back; no new jobs are "
                                   "taken\n"));
}

TEST_F(SpdlctlTest, UndrainSaysWhatItEnded) {
  start();
  EXPECT_EQ(spdlctl({"undrain"}).out, "it is not drained: new jobs are taken\n");
  EXPECT_EQ(nlohmann::json::parse(spdlctl({"undrain", "-o", "json"}).out),
            (nlohmann::json{{"ended", nullptr}}));
  service_.drain_ended = session::DrainView{.since_unix_ms = 1'767'000'000'000, .by = 7};
  EXPECT_EQ(spdlctl({"undrain"}).out,
            "new jobs are taken again; it was drained since 2025-12-29 09:20:00Z by uid 7\n");
}

TEST_F(SpdlctlTest, DrainWaitsForRanksAndForThoseThatMayComeBack) {
  using session::DrainView;
  service_.drain_begun.drain.ranks = 2;
  service_.drains = {DrainView{.ranks = 2}, DrainView{.awaited_jobs = 1}, DrainView{.ranks = 1},
                     DrainView{}};
  start();
  const Outcome waited = spdlctl({"drain", "--wait"});
  EXPECT_EQ(waited.exit_code, 0) << waited.err;
  EXPECT_THAT(waited.out,
              ::testing::EndsWith("2 ranks are attached\nno rank is attached any more\n"));
  EXPECT_EQ(service_.calls(),
            (std::vector<std::string>{"drain", "daemon", "daemon", "daemon", "daemon"}));
  const auto json = nlohmann::json::parse(spdlctl({"drain", "--wait", "-o", "json"}).out);
  EXPECT_EQ(json["drain"]["ranks"], 0);
}

TEST_F(SpdlctlTest, DrainFailsWhereSomebodyEndsItMeanwhile) {
  service_.drains = {session::DrainView{.ranks = 2}, std::nullopt};
  start();
  const Outcome waited = spdlctl({"drain", "--wait"});
  EXPECT_EQ(waited.exit_code, 1);
  EXPECT_THAT(waited.err, ::testing::HasSubstr("drained no more: somebody has ended that while its "
                                               "ranks were waited for; 2 ranks were attached"));
}

TEST_F(SpdlctlTest, DrainThatIsInterruptedStaysInForce) {
  service_.drains = {session::DrainView{.since_unix_ms = 1'767'000'000'000, .by = 7, .ranks = 1}};
  start();
  const std::jthread impatient([this] {
    while (service_.calls().size() < 2) std::this_thread::yield();
    ::kill(::getpid(), SIGINT);
  });
  const Outcome waited = spdlctl({"drain", "--wait"});
  EXPECT_EQ(waited.exit_code, 1);
  EXPECT_THAT(waited.err, ::testing::HasSubstr("interrupted; the daemon stays drained since "
                                               "2025-12-29 09:20:00Z by uid 7: 1 rank is attached; "
                                               "'spdlctl undrain' has it take new jobs again"));
}

TEST_F(SpdlctlTest, DrainSaysThatTheDaemonWentAwayWhileItWaited) {
  service_.drains = {session::DrainView{.ranks = 1}};
  start();
  const std::jthread end([this] {
    while (service_.calls().size() < 2) std::this_thread::yield();
    server_->stop(std::chrono::milliseconds(0));
  });
  const Outcome waited = spdlctl({"drain", "--wait"});
  EXPECT_NE(waited.exit_code, 0);
  EXPECT_THAT(waited.err, ::testing::HasSubstr("this was while its ranks were waited for. A daemon "
                                               "that comes back is still drained: 'spdlctl drain "
                                               "--wait' waits again"));
}

TEST_F(SpdlctlTest, DrainSaysWhoMay) {
  service_.answer = Status(Code::kPermissionDenied, "only admins drain the daemon");
  start();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"drain", "--wait"}, {"drain"}, {"undrain"}}) {
    const Outcome refused = spdlctl(words);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_EQ(refused.err, "spdlctl: only admins drain the daemon\n");
    EXPECT_EQ(refused.out, "");
  }
}

TEST_F(SpdlctlTest, ExplainsAndPreviews) {
  service_.preview_view.tensors = {{"image", FieldKind::kDense, DType::kUInt8, {8, 8, 3}},
                                   {"label", FieldKind::kDense, DType::kInt64, {}}};
  service_.preview_view.data = {std::vector<std::byte>(192), std::vector<std::byte>(8)};
  service_.preview_view.data[1][0] = std::byte{1};
  service_.preview_view.indices = {77};
  service_.preview_view.uris = {"dog/1.jpg"};
  service_.preview_view.classes = {"cat", "dog"};
  start();
  const std::string path = write("p.yaml", "pipeline: p\n");
  EXPECT_EQ(spdlctl({"explain", "-f", path}).out, "the plan\n");
  const std::string png = dir_.path() + "/grid.png";
  const Outcome outcome = spdlctl({"preview", "-f", path, "-o", png, "--rows", "1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, png +
                             ": tensor 'image', 1 row in 1 column, values as they are\n"
                             "ROW  LABEL  CLASS  ITEM  URI\n"
                             "  0      1  dog      77  dog/1.jpg\n");
  EXPECT_TRUE(std::filesystem::exists(png));
  EXPECT_EQ(service_.calls().back(), "preview 1");
}

TEST_F(SpdlctlTest, ShowsTheRowsOfAStep) {
  const std::string texts = "a catdog";
  const auto* const bytes = reinterpret_cast<const std::byte*>(texts.data());
  const double scales[] = {0.5, -2};
  const auto* const doubles = reinterpret_cast<const std::byte*>(scales);
  service_.step_view = {
      .job = "run",
      .pipeline = "pets",
      .version = 3,
      .at = {2, 7},
      .shard = 1,
      .num_shards = 4,
      .turn = 30,
      .sent = true,
      .batch = {.tensors = {{"image", FieldKind::kDense, DType::kUInt8, {8, 8, 3}},
                            {"label", FieldKind::kDense, DType::kInt64, {}},
                            {"scale", FieldKind::kDense, DType::kFloat64, {}},
                            {"size", FieldKind::kDense, DType::kInt16, {2}},
                            {"caption", FieldKind::kBytes, DType::kUInt8, {}, true}},
                .data = {std::vector<std::byte>(384),
                         std::vector<std::byte>(16),
                         {doubles, doubles + sizeof(scales)},
                         std::vector<std::byte>(8),
                         {bytes, bytes + texts.size()}},
                .packed = {{}, {}, {}, {}, {.begins = {0, 5, 8}, .shapes = {}}},
                .indices = {77, 5},
                .valid = {true, false},
                .uris = {"dog/1.jpg", "cat/5.jpg"},
                .classes = {"cat", "dog"}}};
  service_.step_view.batch.data[1][0] = std::byte{1};
  service_.step_view.batch.data[3][0] = std::byte{9};
  start();
  const std::string rows =
      "ROW  ITEM  VALID  URI        CLASS  label  scale  size  caption\n"
      "  0    77  yes    dog/1.jpg  dog        1    0.5   9 0  a cat\n"
      "  1     5  no     cat/5.jpg  cat        0     -2   0 0  dog\n";
  const std::string step =
      "epoch 2, step 7 of job 'run' on pipeline 'pets': version 3, shard 1 of 4; ";
  const Outcome outcome = spdlctl({"show", "run", "--step", "2/7", "--shard", "1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, step + "sent at turn 30 of the run\n" + rows);
  EXPECT_EQ(service_.calls().back(), "show 2/7 shard 1 run ");
  const std::string png = dir_.path() + "/grid.png";
  EXPECT_EQ(spdlctl({"show", "run", "--step", "2/7", "--pipeline", "pets", "-o", png}).out,
            png + ": tensor 'image', 2 rows in 2 columns, values as they are\n" + step +
                "sent at turn 30 of the run\n" + rows);
  EXPECT_TRUE(std::filesystem::exists(png));
  EXPECT_EQ(service_.calls().back(), "show 2/7 shard 0 run pets");
  const auto json =
      nlohmann::json::parse(spdlctl({"show", "run", "--step", "2/7", "-o", "json"}).out);
  EXPECT_EQ(json["at"], (nlohmann::json{{"epoch", 2}, {"step", 7}}));
  EXPECT_EQ(json["turn"], 30);
  EXPECT_EQ(json["tensors"].size(), 5U);
  const nlohmann::json values = {
      {"label", 1}, {"scale", 0.5}, {"size", {9, 0}}, {"caption", "a cat"}};
  EXPECT_EQ(json["rows"][0]["values"], values);
  EXPECT_EQ(json["rows"][0]["class"], "dog");
  EXPECT_EQ(json["rows"][1]["valid"], false);
  EXPECT_EQ(json["rows"][1]["item"], 5);
  EXPECT_NE(json["rows"][0]["digest"], json["rows"][1]["digest"]);
  service_.step_view.sent = false;
  EXPECT_THAT(spdlctl({"show", "run", "--step", "2/7"}).out,
              ::testing::StartsWith(step + "to come at turn 30 of the run\n"));
  service_.step_view.turn.reset();
  EXPECT_THAT(
      spdlctl({"show", "run", "--step", "2/7"}).out,
      ::testing::StartsWith(
          step + "the run does not come to this step: shown as 'job seek' would have it\n"));
}

TEST_F(SpdlctlTest, RefusesToShowWhatIsNoStep) {
  start();
  for (const std::string place : {"7", "2/", "/7", "2/x", "-1/2", "2/7/1"}) {
    const Outcome outcome = spdlctl({"show", "run", "--step=" + place});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.err,
              "spdlctl: --step '" + place + "' is not EPOCH/STEP: 2/0 is where epoch 2 begins\n");
  }
  EXPECT_EQ(spdlctl({"show", "run", "--step", "2/7", "-o", "p.jpg"}).exit_code, 2);
  EXPECT_EQ(service_.calls(), std::vector<std::string>());
  // Beside the rows something is missing that tells which count.
  service_.step_view.batch.indices = {1};
  const Outcome broken = spdlctl({"show", "run", "--step", "2/7"});
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.err, ::testing::HasSubstr("a step that contradicts itself"));
}

TEST_F(SpdlctlTest, DrawsPreviewsAsPngAlone) {
  start();
  const std::string path = write("p.yaml", "pipeline: p\n");
  for (const std::string name : {"p.jpg", "p", "yaml"}) {
    const Outcome outcome = spdlctl({"preview", "-f", path, "-o", name});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, ::testing::HasSubstr(name + " does not end in .png"));
  }
  EXPECT_THAT(spdlctl({"preview", "-f", path, "-o", "a/p.jpg"}).err,
              ::testing::HasSubstr("say -o a/p.png,"));
  EXPECT_EQ(service_.calls(), std::vector<std::string>());
}

TEST_F(SpdlctlTest, PreviewsTextsBesideTheRows) {
  const std::string long_text(200, 'x');
  const std::string texts = "a cat" + long_text;
  const auto* const bytes = reinterpret_cast<const std::byte*>(texts.data());
  service_.preview_view.tensors = {
      {"caption", FieldKind::kBytes, DType::kUInt8, {}, true},
      {"packed", FieldKind::kBytes, DType::kUInt8, {}},
  };
  service_.preview_view.data = {{bytes, bytes + texts.size()}, {}};
  service_.preview_view.packed = {{.begins = {0, 5, texts.size()}, .shapes = {}},
                                  {.begins = {0, 0, 0}, .shapes = {}}};
  service_.preview_view.indices = {7, 8};
  service_.preview_view.uris = {"a", "b"};
  start();
  const std::string path = write("p.yaml", "pipeline: p\n");
  const Outcome outcome = spdlctl({"preview", "-f", path});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            "ROW  LABEL  CLASS  ITEM  URI  caption\n"
            "  0      -  -         7  a    a cat\n"
            "  1      -  -         8  b    " +
                long_text.substr(0, 60) + "...\n");
  const auto json = nlohmann::json::parse(spdlctl({"preview", "-f", path, "-o", "json"}).out);
  EXPECT_EQ(json["rows"][1]["texts"], (nlohmann::json{{"caption", long_text}}));
}

TEST_F(SpdlctlTest, SaysAsJsonWhatWasDone) {
  start();
  const auto done = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"-o", "json"});
    const Outcome outcome = spdlctl(words);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  EXPECT_EQ(done({"delete", "pipeline", "p"}),
            (nlohmann::json{{"pipeline", "p"}, {"deleted", true}}));
  EXPECT_EQ(done({"delete", "job", "run"}),
            (nlohmann::json{
                {"job", "run"}, {"pipeline", "images"}, {"deleted", true}, {"had_ended", false}}));
  EXPECT_EQ(done({"evict", "7", "--reason", "slow \xff"}),
            (nlohmann::json{{"session", 7}, {"evicted", true}, {"reason", "slow \xef\xbf\xbd"}}));
}

TEST_F(SpdlctlTest, ExplainsToPrograms) {
  service_.explain_view.facts.pipeline = "p";
  service_.explain_view.facts.tasks = {{.stages = "fetch", .concurrency = 16}};
  service_.explain_view.facts.tensors = {{"image", FieldKind::kDense, DType::kUInt8, {8, 8, 3}}};
  service_.explain_view.facts.needed_bytes = 4096;
  start();
  const Outcome outcome =
      spdlctl({"explain", "-f", write("p.yaml", "pipeline: p\n"), "-o", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto plan = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(plan["pipeline"], "p");
  EXPECT_EQ(plan["tasks"][0]["stages"], "fetch");
  EXPECT_EQ(plan["tasks"][0]["concurrency"], 16);
  EXPECT_EQ(plan["batch"]["tensors"][0]["shape"], (std::vector<int>{8, 8, 3}));
  EXPECT_EQ(plan["arenas"]["needed_bytes"], 4096);
  EXPECT_EQ(plan["arenas"]["fits"], true);
  EXPECT_EQ(plan["cache"], nullptr);
}

TEST_F(SpdlctlTest, PreviewsToPrograms) {
  service_.preview_view.tensors = {{"label", FieldKind::kDense, DType::kInt64, {}}};
  service_.preview_view.data = {std::vector<std::byte>(16)};
  service_.preview_view.data[0][0] = std::byte{1};
  service_.preview_view.data[0][8] = std::byte{9};
  service_.preview_view.indices = {77, 78};
  service_.preview_view.uris = {"dog/1.jpg"};
  service_.preview_view.classes = {"cat", "dog"};
  start();
  const Outcome outcome =
      spdlctl({"preview", "-f", write("p.yaml", "pipeline: p\n"), "-o", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto preview = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(preview["tensors"][0]["dtype"], "int64");
  EXPECT_EQ(preview["rows"][0], (nlohmann::json{{"label", 1},
                                                {"class", "dog"},
                                                {"item", 77},
                                                {"uri", "dog/1.jpg"},
                                                {"texts", nlohmann::json::object()}}));
  EXPECT_EQ(preview["rows"][1], (nlohmann::json{{"label", 9},
                                                {"class", nullptr},
                                                {"item", 78},
                                                {"uri", nullptr},
                                                {"texts", nlohmann::json::object()}}));
  EXPECT_FALSE(std::filesystem::exists("json"));
}

TEST_F(SpdlctlTest, GivesUpOnADaemonThatAcceptsAndIsSilent) {
  const UniqueFd listener = control::listen_at(dir_.socket());
  const Outcome outcome = spdlctl({"--timeout", "0.05", "status"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("did not answer in time"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace spdld::ctl
