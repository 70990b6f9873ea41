// SPDX-License-Identifier: Apache-2.0
#include "observe/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/control/fake_service.h"
#include "tests/unit/observe/read_metrics.h"

namespace spdld::observe {
namespace {

using Labels = ReadMetrics::Labels;

constexpr uid_t kAnn = 1001;
constexpr uid_t kBob = 1002;

job::JobView job_of(uid_t owner, const std::string& name, std::uint64_t rows) {
  job::JobView job;
  job.job = name;
  job.pipeline = "images";
  job.owner = owner;
  job.rows = rows;
  return job;
}

Labels labels_of(const job::JobView& job, const Labels& more = {}) {
  Labels labels = more;
  labels["job"] = job.job;
  labels["pipeline"] = job.pipeline;
  labels["owner"] = std::to_string(job.owner);
  return labels;
}

job::StageView stage_of(const job::JobView& job, const std::string& stage, std::uint64_t tasks) {
  return {
      .job = job.job, .pipeline = job.pipeline, .owner = job.owner, .stage = stage, .tasks = tasks};
}

session::SessionView session_of(const job::JobView& job, std::uint32_t shard, double waited_s) {
  session::SessionView session;
  session.job = job.job;
  session.pipeline = job.pipeline;
  session.owner = job.owner;
  session.shard = shard;
  session.waited_s = waited_s;
  return session;
}

// Everything that there can be is there.
Observed everything() {
  Observed observed;
  session::DaemonView& daemon = observed.daemon;
  daemon.version = "1.2.3";
  daemon.workers.core_s = 1;
  daemon.workers.throttled_s = 2;
  daemon.pss_bytes = 3;
  daemon.cpu_pressure = 0.25;
  daemon.storage = {{.device = "259:2", .mount = "/da\"ta\n", .stuck = 1, .reads = 7}};
  session::CacheView& cache = daemon.caches.emplace_back();
  cache.name = "images \\ \xff";
  cache.form = "decoded";
  cache.where = "ram";
  cache.hits = 5;
  daemon.gpus.emplace_back().uuid = "GPU-1";
  observed.jobs = {job_of(kAnn, "run \"7\"\n", 100)};
  observed.jobs[0].shards.emplace_back();
  observed.stages = {stage_of(observed.jobs[0], "fetch", 3)};
  observed.stages[0].bytes = 4096;
  observed.stages[0].rejected = 9;
  observed.stages[0].failures_by_code = {{"DATA_LOSS", 2}};
  observed.stages[0].ops = {{.field = "image", .ops = "decode_image", .rows = 1, .spent_s = 0.5}};
  observed.sessions = {session_of(observed.jobs[0], 0, 0.5)};
  return observed;
}

ReadMetrics metrics_of(const Observed& observed) { return read_metrics(metrics_text(observed)); }

TEST(Metrics, HaveHelpAndAKindThatTheirNamesTell) {
  const ReadMetrics metrics = metrics_of(everything());
  EXPECT_GE(metrics.type.size(), 60u);
  for (const auto& [name, type] : metrics.type) {
    EXPECT_TRUE(name.starts_with("spdld_")) << name;
    const bool is_histogram = name == "spdld_session_wait_seconds";
    EXPECT_EQ(type, name.ends_with("_total") ? "counter"
                    : is_histogram           ? "histogram"
                                             : "gauge")
        << name;
    EXPECT_TRUE(metrics.help.contains(name) && metrics.help.at(name).ends_with('.')) << name;
    EXPECT_TRUE(metrics.samples.contains(is_histogram ? name + "_bucket" : name)) << name;
    for (const std::string unit : {"_s", "_ms", "_us", "_kib", "_mib", "_percent"})
      EXPECT_FALSE(name.ends_with(unit) || name.ends_with(unit + "_total")) << name;
  }
}

TEST(Metrics, TellFailuresByCodeRejectionsAndTheTimeOfOps) {
  const Observed observed = everything();
  const ReadMetrics metrics = metrics_of(observed);
  const auto of_fetch = [&](Labels more) {
    more["stage"] = "fetch";
    return labels_of(observed.jobs[0], more);
  };
  EXPECT_EQ(metrics.value("spdld_stage_bytes_total", of_fetch({})), 4096);
  EXPECT_EQ(metrics.value("spdld_stage_rejected_total", of_fetch({})), 9);
  EXPECT_EQ(metrics.value("spdld_stage_failures_by_code_total", of_fetch({{"code", "DATA_LOSS"}})),
            2);
  EXPECT_EQ(metrics.value("spdld_op_seconds_total",
                          of_fetch({{"field", "image"}, {"ops", "decode_image"}})),
            0.5);
}

TEST(Metrics, KeepNamesAsUsersGaveThem) {
  const ReadMetrics metrics = metrics_of(everything());
  const Labels job = {{"job", "run \"7\"\n"}, {"pipeline", "images"}, {"owner", "1001"}};
  EXPECT_EQ(metrics.value("spdld_job_rows_total", job), 100);
  EXPECT_EQ(metrics.value("spdld_storage_stuck", {{"device", "259:2"}, {"mount", "/da\"ta\n"}}), 1);
  EXPECT_EQ(metrics.value("spdld_cache_hits_total",
                          {{"cache", "images \\ \\xff"}, {"form", "decoded"}, {"where", "ram"}}),
            5);
}

TEST(Metrics, AreAskedForInTheNameOfTheCaller) {
  control::FakeService service;
  service.job_view = job_of(kBob, "run", 1);
  job::Caller caller;
  caller.uid = kBob;
  const Observed observed = observed_by(caller, service);
  EXPECT_EQ(service.last_caller().uid, kBob);
  EXPECT_EQ(service.calls(), (std::vector<std::string>{"daemon", "stages", "sessions", "jobs"}));
  EXPECT_EQ(metrics_of(observed).value("spdld_job_rows_total", labels_of(service.job_view)), 1);
}

TEST(Metrics, TellOfNothingThatTheCallerDoesNotSee) {
  Observed observed = everything();
  observed.daemon.storage.clear();
  observed.jobs.clear();
  for (const auto& [name, samples] : metrics_of(observed).samples) {
    EXPECT_FALSE(name.starts_with("spdld_storage_")) << name;
    for (const auto& [labels, value] : samples) EXPECT_FALSE(labels.contains("job")) << name;
  }
}

TEST(Metrics, KeepApartJobsOfOneNameOfTwoUsers) {
  Observed observed;
  observed.jobs = {job_of(kAnn, "run", 10), job_of(kBob, "run", 20)};
  observed.stages = {stage_of(observed.jobs[0], "fetch", 1),
                     stage_of(observed.jobs[1], "fetch", 2)};
  observed.sessions = {session_of(observed.jobs[0], 0, 3), session_of(observed.jobs[0], 1, 4),
                       session_of(observed.jobs[1], 0, 5)};
  const ReadMetrics metrics = metrics_of(observed);
  const auto& [ann, bob] = std::tie(observed.jobs[0], observed.jobs[1]);
  EXPECT_EQ(metrics.value("spdld_job_rows_total", labels_of(ann)), 10);
  EXPECT_EQ(metrics.value("spdld_job_rows_total", labels_of(bob)), 20);
  EXPECT_EQ(metrics.value("spdld_stage_tasks_total", labels_of(ann, {{"stage", "fetch"}})), 1);
  EXPECT_EQ(metrics.value("spdld_stage_tasks_total", labels_of(bob, {{"stage", "fetch"}})), 2);
  const auto waited = [&](const job::JobView& job, const char* shard) {
    return metrics.value("spdld_session_waited_seconds_total",
                         labels_of(job, {{"shard", shard}, {"replica", "0"}}));
  };
  EXPECT_EQ(waited(ann, "0"), 3);
  EXPECT_EQ(waited(ann, "1"), 4);
  EXPECT_EQ(waited(bob, "0"), 5);
}

TEST(Metrics, SumTheJobsBeyondTheMost) {
  Observed observed;
  for (std::size_t number = 0; number < kMostJobs + 3; ++number) {
    observed.jobs.push_back(job_of(kAnn, "job " + std::to_string(number), 1000 + number));
    observed.stages.push_back(stage_of(observed.jobs.back(), "fetch", 1));
    observed.stages.push_back(stage_of(observed.jobs.back(), "decode_image", 10));
    observed.sessions.push_back(session_of(observed.jobs.back(), 4, 0.5));
  }
  const job::JobView& read = observed.jobs.back();
  observed.jobs.back().shards.push_back({.session = 12});
  const ReadMetrics metrics = metrics_of(observed);

  const Labels none = {{"job", ""}, {"pipeline", ""}, {"owner", ""}};
  EXPECT_EQ(metrics.value("spdld_jobs_summed"), 3);
  EXPECT_EQ(metrics.samples.at("spdld_job_rows_total").size(), kMostJobs + 1);
  EXPECT_EQ(metrics.value("spdld_job_rows_total", labels_of(read)), 1000 + kMostJobs + 2);
  // Of the jobs that nobody reads, the last three.
  EXPECT_EQ(metrics.value("spdld_job_rows_total", none), 3 * (1000 + kMostJobs));
  Labels of_stage = none;
  of_stage["stage"] = "";
  EXPECT_EQ(metrics.value("spdld_stage_tasks_total", of_stage), 33);
  Labels of_session = none;
  of_session["shard"] = of_session["replica"] = "";
  EXPECT_EQ(metrics.value("spdld_session_waited_seconds_total", of_session), 1.5);
  of_session["of"] = "slot";
  EXPECT_EQ(metrics.value("spdld_session_shortage_seconds_total", of_session), 0);
  EXPECT_TRUE(std::isnan(metrics.value("spdld_job_steps_per_epoch", none)));
}

TEST(Metrics, SumNothingWhereAllJobsHaveTheirOwn) {
  Observed observed;
  for (std::size_t number = 0; number < kMostJobs; ++number)
    observed.jobs.push_back(job_of(kAnn, "job " + std::to_string(number), 1));
  const ReadMetrics metrics = metrics_of(observed);
  EXPECT_EQ(metrics.samples.at("spdld_job_rows_total").size(), kMostJobs);
  EXPECT_EQ(metrics.value("spdld_jobs_summed"), 0);
}

TEST(Metrics, LeaveOutWhatIsToldOfAJobThatHasEnded) {
  Observed observed;
  const job::JobView ended = job_of(kAnn, "ended", 1);
  observed.stages = {stage_of(ended, "fetch", 1)};
  observed.sessions = {session_of(ended, 0, 1)};
  for (const auto& [name, samples] : metrics_of(observed).samples) {
    EXPECT_FALSE(name.starts_with("spdld_stage_") || name.starts_with("spdld_session_")) << name;
  }
}

TEST(Metrics, TellThePlaceOfTheSlowestShard) {
  Observed observed;
  observed.jobs = {job_of(kAnn, "run", 1)};
  observed.jobs[0].shards = {{.shard = 0, .epoch = 3, .step = 1},
                             {.shard = 1, .epoch = 2, .step = 9},
                             {.shard = 2, .epoch = 2, .step = 8}};
  const ReadMetrics metrics = metrics_of(observed);
  EXPECT_EQ(metrics.value("spdld_job_epoch", labels_of(observed.jobs[0])), 2);
  EXPECT_EQ(metrics.value("spdld_job_step", labels_of(observed.jobs[0])), 8);
}

TEST(Metrics, TellWorkersTimeByWhatItWentInto) {
  Observed observed;
  session::WorkersView& workers = observed.daemon.workers;
  workers = {.rows_s = 1, .batches_s = 2, .bytes_s = 3, .memory_s = 4, .stage_bound_s = 5};
  workers.job_bound_s = 6;
  workers.slot_s = 7;
  workers.left_s = 8;
  workers.work_s = 9;
  workers.yield_s = 10;
  workers.calls_s = 11;
  const ReadMetrics metrics = metrics_of(observed);
  const std::map<std::string, double> spent = {{"rows", 1},   {"batches", 2},     {"bytes", 3},
                                               {"memory", 4}, {"stage_bound", 5}, {"job_bound", 6},
                                               {"slot", 7},   {"left", 8},        {"work", 9},
                                               {"yield", 10}, {"calls", 11}};
  EXPECT_EQ(metrics.samples.at("spdld_worker_seconds_total").size(), spent.size());
  for (const auto& [name, seconds] : spent)
    EXPECT_EQ(metrics.value("spdld_worker_seconds_total", {{"spent", name}}), seconds) << name;
  // That nobody knows is not that there was none.
  EXPECT_FALSE(metrics.samples.contains("spdld_worker_core_wait_seconds_total"));
  EXPECT_FALSE(metrics.samples.contains("spdld_throttled_seconds_total"));
  EXPECT_FALSE(metrics.samples.contains("spdld_pss_bytes"));
  EXPECT_FALSE(metrics.samples.contains("spdld_cpu_pressure_ratio"));
}

TEST(Metrics, TellWhatASessionLacked) {
  Observed observed;
  observed.jobs = {job_of(kAnn, "run", 1)};
  observed.sessions = {session_of(observed.jobs[0], 2, 0)};
  for (std::size_t of = 0; of < stream::kShortages; ++of)
    observed.sessions[0].shortages.lacked_s[of] = 1.0 + static_cast<double>(of);
  const ReadMetrics metrics = metrics_of(observed);
  const std::vector<std::string> names = {"bytes",   "worker", "memory", "calls", "making", "slot",
                                          "replica", "job",    "copy",   "epoch", "change", "disk"};
  for (std::size_t of = 0; of < names.size(); ++of) {
    EXPECT_EQ(metrics.value("spdld_session_shortage_seconds_total",
                            labels_of(observed.jobs[0],
                                      {{"shard", "2"}, {"replica", "0"}, {"of", names[of]}})),
              1.0 + static_cast<double>(of))
        << names[of];
  }
}

TEST(Metrics, TellHowTheLoopOfASessionFares) {
  Observed observed;
  observed.jobs = {job_of(kAnn, "run", 1)};
  session::SessionView& session =
      observed.sessions.emplace_back(session_of(observed.jobs[0], 2, 9));
  session.steps = 40;
  session.between_s = 2.5;
  session.map_s = 0.5;
  session.waits_by_length = {1, 2, 3, 4, 5, 6};
  const ReadMetrics metrics = metrics_of(observed);
  Labels labels = labels_of(observed.jobs[0], {{"shard", "2"}, {"replica", "0"}});
  EXPECT_EQ(metrics.value("spdld_session_steps_total", labels), 40);
  EXPECT_EQ(metrics.value("spdld_session_between_seconds_total", labels), 2.5);
  EXPECT_EQ(metrics.value("spdld_session_map_seconds_total", labels), 0.5);
  EXPECT_EQ(metrics.value("spdld_session_wait_seconds_sum", labels), 9);
  EXPECT_EQ(metrics.value("spdld_session_wait_seconds_count", labels), 21);
  const std::map<std::string, double> up_to = {{"0.001", 1}, {"0.01", 3}, {"0.1", 6},
                                               {"1", 10},    {"10", 15},  {"+Inf", 21}};
  EXPECT_EQ(metrics.samples.at("spdld_session_wait_seconds_bucket").size(), up_to.size());
  for (const auto& [bound, count] : up_to) {
    labels["le"] = bound;
    EXPECT_EQ(metrics.value("spdld_session_wait_seconds_bucket", labels), count) << bound;
  }
}

}  // namespace
}  // namespace spdld::observe
