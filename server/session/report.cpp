// SPDX-License-Identifier: Apache-2.0
// What Sessions tells of itself.
#include <utility>

#include "session/sessions.h"

namespace spdld::session {
namespace {

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

std::uint64_t microseconds(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(time.count() / 1000);
}

}  // namespace

std::vector<SessionView> Sessions::sessions(const Caller& caller) const {
  MutexLock lock(mutex_);
  std::vector<SessionView> views;
  for (const auto& [id, session] : sessions_) {
    if (session->closed || session->job == nullptr || session->consumer == nullptr ||
        !visible(caller, *session->job))
      continue;
    const Consumer::View consumer = session->consumer->view();
    const delivery::Peer& peer = session->connection->peer();
    views.push_back({.id = id,
                     .uid = peer.uid,
                     .pid = peer.pid,
                     .client = session->connection->client(),
                     .job = session->job->key.job,
                     .pipeline = session->job->key.pipeline,
                     .shard = session->member.shard,
                     .num_shards = session->job->timeline.num_shards(),
                     .replica = session->member.replica,
                     .pipeline_version = session->job->timeline.phase(consumer.next)->version(),
                     .epoch = consumer.next.epoch,
                     .step = consumer.next.step,
                     .credits = session->consumer->credits(),
                     .leases = consumer.leases,
                     .ready = consumer.ready,
                     .batches = consumer.batches,
                     .arena_bytes = consumer.arena_bytes});
  }
  return views;
}

std::vector<StageView> Sessions::stages(const Caller& caller) const {
  MutexLock lock(mutex_);
  std::vector<StageView> views;
  for (const auto& entry : jobs_) {
    const JobPtr& job = entry.second;
    if (!visible(caller, *job)) continue;
    const engine::Run& run = *job->phase().run;
    const auto add = [&](const engine::StagePlan& stage, int concurrency,
                         const engine::StageStats& stats) {
      const engine::StageSnapshot now = stats.snapshot();
      views.push_back(
          {.job = job->key.job,
           .pipeline = job->key.pipeline,
           .stage = stage.name,
           .tasks = now.tasks,
           .failures = now.failures,
           .busy_s = seconds(now.busy),
           .wait_s = seconds(now.wait),
           .in_flight = now.in_flight,
           .concurrency = static_cast<std::uint32_t>(
               concurrency > 0 ? concurrency : static_cast<int>(deps_.executor.threads())),
           .p50_us = microseconds(now.p50),
           .p99_us = microseconds(now.p99)});
    };
    add(run.plan().fetch, run.fetch_concurrency(), run.fetch_stats());
    add(run.plan().process, run.process_concurrency(), run.process_stats());
  }
  return views;
}

std::vector<FailureView> Sessions::failures(const Caller& caller) const {
  std::vector<JobPtr> seen;
  {
    MutexLock lock(mutex_);
    for (const auto& [key, job] : jobs_) {
      if (visible(caller, *job)) seen.push_back(job);
    }
  }
  std::vector<FailureView> views;
  for (const JobPtr& job : seen) {
    for (const engine::SampleFailure& failure : job->failures.recent())
      views.push_back({.job = job->key.job,
                       .pipeline = job->key.pipeline,
                       .epoch = failure.epoch,
                       .position = failure.position,
                       .item = failure.item,
                       .uri = failure.uri,
                       .code = std::string(code_name(failure.status.code())),
                       .message = failure.status.message(),
                       .replaced_by = failure.replaced_by});
  }
  return views;
}

Sessions::Totals Sessions::totals() const {
  MutexLock lock(mutex_);
  Totals totals = past_;
  totals.jobs = static_cast<std::uint32_t>(jobs_.size());
  for (const auto& [id, session] : sessions_) {
    if (session->consumer == nullptr) continue;
    const Consumer::View view = session->consumer->view();
    totals.batches += view.batches;
    totals.rows += view.rows;
    if (!session->closed) ++totals.sessions;
  }
  return totals;
}

}  // namespace spdld::session
