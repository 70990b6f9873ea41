// SPDX-License-Identifier: Apache-2.0
#include "session/job.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text/utf8.h"
#include "session/about.h"

namespace spdld::session {
namespace {

// How much is kept of each text in which a client describes itself.
constexpr std::size_t kMaxSaidBytes = 512;

using RunSet = std::set<const engine::Run*>;

// A version that only tunes another one has its run.
RunSet runs_of(const JobPlan& plan) {
  RunSet runs;
  for (const auto& [version, phase] : plan.phases) runs.insert(phase->run.get());
  return runs;
}

Spent spent_on(const engine::Run& run) {
  Spent spent{.cpu_s = std::chrono::duration<double>(run.cpu_time()).count(),
              .cache_hits = run.cache_hits()};
  if (spent.cache_hits == 0) return spent;
  const engine::SampleCache::Snapshot cache = run.cache()->snapshot();
  spent.saved_cpu_s = std::chrono::duration<double>(cache.saved).count() *
                      static_cast<double>(spent.cache_hits) /
                      static_cast<double>(std::max<std::uint64_t>(cache.hits, 1));
  return spent;
}

}  // namespace

Session::Session(delivery::ConnectionPtr attaches, const delivery::AttachRequest& request)
    : id(attaches->id()),
      connection(std::move(attaches)),
      command(cut(request.command, kMaxSaidBytes)),
      host(cut(request.host, kMaxSaidBytes)),
      host_pid(request.host_pid),
      device(request.device),
      starts_runners(request.starts_runners) {}

std::string Session::process() const {
  const pid_t pid = connection->peer().pid;
  if (pid > 0) return "pid " + std::to_string(pid);
  if (host_pid && !host.empty()) return "pid " + std::to_string(*host_pid) + " on " + host;
  return "a process of another PID namespace";
}

bool Session::may_be_process_of(const Session& other) const {
  const pid_t pid = connection->peer().pid;
  if (pid != other.connection->peer().pid) return false;
  return pid > 0 || (host == other.host && host_pid == other.host_pid);
}

bool Session::is_process_of(const Session& other) const {
  const bool known = connection->peer().pid > 0 || (host_pid && !host.empty());
  return known && may_be_process_of(other);
}

Status check_world(std::uint32_t num_shards, std::uint32_t replicas) {
  const auto not_between = [](const std::string& what, std::uint32_t has, std::uint32_t most) {
    return Status(Code::kInvalidArgument, what + " " + std::to_string(has) +
                                              " is not between 1 and " + std::to_string(most));
  };
  if (num_shards < 1 || num_shards > kMaxShards)
    return not_between("num_shards", num_shards, kMaxShards);
  if (replicas < 1 || replicas > kMaxReplicas)
    return not_between("replicas", replicas, kMaxReplicas);
  const std::uint64_t consumers = std::uint64_t{num_shards} * replicas;
  if (consumers <= kMaxShards) return {};
  return Status(Code::kInvalidArgument,
                "num_shards " + std::to_string(num_shards) + " and replicas " +
                    std::to_string(replicas) + " make " + std::to_string(consumers) +
                    " consumers, and a job has at most " + std::to_string(kMaxShards));
}

Spent& Spent::operator+=(const Spent& more) {
  cpu_s += more.cpu_s;
  cache_hits += more.cache_hits;
  saved_cpu_s += more.saved_cpu_s;
  return *this;
}

void Ledger::keep(const store::StoredPosition& position) {
  const job::Cursor& at = position.cursor;
  place = {.sent = at.turn,
           .next = at.at,
           .released = at.turn,
           .at = at.at,
           .position = at.position,
           .order = at.order};
  kept_unix_ms = position.kept_unix_ms;
  kept = position;
}

void Ledger::rewind(const job::Progress& to) {
  place = to;
  kept.reset();
  ++rewinds;
}

Job::Job(stream::JobTag job_tag, job::JobKey job_key, JobPlanPtr job_plan, std::uint64_t job_seed,
         std::uint64_t replace_budget, KeptFailures kept_failures)
    : tag(job_tag),
      key(std::move(job_key)),
      seed(job_seed),
      failures(replace_budget, std::move(kept_failures.replaced), kept_failures.last),
      state{.plan = std::move(job_plan)},
      record{.last_failure = kept_failures.last} {}

Status Job::may_replace(const engine::SampleFailure& failure) {
  bool is_new = false;
  SPDLD_TRY(failures.admit(failure, is_new));
  if (!is_new) return {};
  log::warn(about(key), "job {}, pipeline {}: {} cannot be used and is replaced: {}", key.job,
            key.pipeline, failure.uri, failure.status.message());
  return {};
}

void Job::stream_failed(const engine::StreamFailure& failure) {
  failures.record(failure);
  log::error(about(key), "job {}, pipeline {}: {}", key.job, key.pipeline,
             failure.status.message());
}

void Job::warn_of_rejections(const engine::Run& run) {
  constexpr std::uint64_t kFewest = 1000;  // items that tell something of the dataset
  const engine::Run::Judged judged = run.judged();
  if (has_warned_of_rejections || judged.items < kFewest || 2 * judged.rejected <= judged.items)
    return;
  has_warned_of_rejections = true;
  log::warn(
      about(key),
      "job {}, pipeline {}: its filters and functions have rejected {} of {} items, which are read "
      "all the same: 'source.select' leaves items out before they are read, by what the listing "
      "knows",
      key.job, key.pipeline, judged.rejected, judged.items);
}

std::vector<SessionPtr> Job::attached() const {
  std::vector<SessionPtr> attached;
  for (const auto& [member, session] : members) {
    if (session->consumer != nullptr) attached.push_back(session);
  }
  return attached;
}

Job::Standing Job::standing() const {
  std::optional<Standing> least;
  for (const SessionPtr& session : attached()) {
    Consumer::View view = session->consumer->view();
    if (least && least->turn <= view.progress.sent) continue;
    least = {.turn = view.progress.sent, .own = std::move(view.own), .at = view.progress.next};
  }
  if (least) return *std::move(least);
  for (const auto& [member, of] : membership.entries()) {
    if (!of.has_left() || (least && least->turn <= of.progress.sent)) continue;
    least = {.turn = of.progress.sent, .own = {}, .at = of.progress.next};
  }
  if (least) return *std::move(least);
  if (ledger.is_known()) return {.turn = ledger.place.released, .own = {}, .at = ledger.place.at};
  return {.turn = first_turn(), .own = {}, .at = schedule().locate(first_turn(), {}).at()};
}

Job::Standing Job::furthest() const {
  std::optional<Standing> most = furthest_here();
  return most ? *std::move(most) : standing();
}

std::optional<Job::Standing> Job::furthest_here(std::optional<std::uint32_t> shard) const {
  std::optional<Standing> most;
  for (const SessionPtr& session : attached()) {
    if (shard && session->member.shard != *shard) continue;
    Consumer::View view = session->consumer->view();
    if (most && most->turn >= view.progress.sent) continue;
    most = {.turn = view.progress.sent, .own = std::move(view.own), .at = view.progress.next};
  }
  return most;
}

pipeline::PhasePtr Job::phase() const {
  const Standing at = standing();
  return state.plan->phase_at(at.turn, at.own);
}

void Job::note_left(const Session& session, bool done) {
  if (session.consumer == nullptr) return;
  const Consumer::View view = session.consumer->view();
  membership.reach(session.member, view.progress);
  membership.leave(session.member, done || view.resized_away);
}

void Job::note_progress() {
  for (const SessionPtr& session : attached()) {
    const Consumer::View view = session->consumer->view();
    membership.reach(session->member, view.progress);
    if (view.asks) record.is_old = true;
  }
}

bool Job::outruns_record(bool paces) {
  std::optional<job::Turn> due;
  for (const SessionPtr& session : attached()) {
    const Consumer::View view = session->consumer->view();
    due = std::max(due.value_or(0), schedule().planned_turn(view.progress.sent, view.own));
  }
  return membership.outruns_record(paces, due.value_or(job::kNoTurn));
}

bool Job::find_entries() {
  JobPlan next = *state.plan;
  bool found = false;
  const std::vector<job::Edit> edits = schedule().edits();
  for (const job::Edit& edit : edits) {
    const auto* const resize = std::get_if<job::Edit::Resize>(&edit.change);
    if (resize == nullptr || resize->entry) continue;
    for (const SessionPtr& session : attached()) {
      const Consumer::View view = session->consumer->view();
      // A rank of a shard that itself enters here does not know the place.
      const auto entered = schedule().entry(session->member.shard);
      if (view.handed < edit.turn || (entered && entered->turn >= edit.turn)) continue;
      if (next.schedule.set_entry(edit.turn, view.own)) found = true;
    }
  }
  if (!found) return false;
  state.plan = std::make_shared<JobPlan>(std::move(next));
  record.is_old = true;
  return true;
}

void Job::forget_entries() {
  JobPlan next = *state.plan;
  next.schedule.forget_entries(membership.frontier());
  if (next.schedule.record() == schedule().record()) return;
  state.plan = std::make_shared<JobPlan>(std::move(next));
  record.is_old = true;
}

bool Job::all_seen() const {
  std::uint64_t seen = attached().size();
  for (const auto& [member, of] : membership.entries())
    seen += of.has_left() && member.shard < num_shards() ? 1 : 0;
  return seen >= std::uint64_t{num_shards()} * replicas;
}

job::Progress Job::acknowledged() const {
  std::optional<job::Progress> lowest;
  const auto count = [&](const job::Progress& progress) {
    if (!lowest || progress.released < lowest->released) lowest = progress;
  };
  for (const SessionPtr& session : attached()) count(session->consumer->view().progress);
  for (const auto& [member, of] : membership.entries()) {
    if (member.shard >= num_shards()) continue;  // nobody is to read on from there
    if (of.has_left()) count(of.progress);
  }
  if (!lowest || (!all_seen() && !gathering.over))
    count(ledger.is_known() ? ledger.place : state.plan->progress_at(first_turn(), {}));
  return *std::move(lowest);
}

std::vector<pipeline::PhasePtr> Job::phases() const {
  std::vector<pipeline::PhasePtr> phases;
  for (const auto& [version, phase] : state.plan->phases) {
    if (std::find(phases.begin(), phases.end(), phase) == phases.end()) phases.push_back(phase);
  }
  return phases;
}

void Job::forget_versions() {
  std::set<std::uint32_t> in_use;
  for (const SessionPtr& session : attached()) {
    for (const job::OwnSeek& seek : session->consumer->view().own) in_use.insert(seek.version);
  }
  auto next = std::make_shared<JobPlan>(*state.plan);
  next->schedule.forget_versions(in_use);
  const job::Versions& known = next->schedule.record().versions;
  if (known.size() == next->phases.size()) return;
  std::erase_if(next->phases, [&](const auto& phase) { return !known.contains(phase.first); });
  adopt(std::move(next));
}

void Job::adopt(JobPlanPtr plan) {
  const RunSet known = runs_of(*plan);
  for (const engine::Run* run : runs_of(*state.plan)) {
    if (!known.contains(run)) past += spent_on(*run);
  }
  state.plan = std::move(plan);
}

void Job::read_by(const Readings& readings) {
  if (readings.empty()) return;
  adopt(with_phases(*state.plan, readings));
  record.is_old = true;
}

void Job::begin_run(std::uint32_t num_shards) {
  const pipeline::PhasePtr phase = state.plan->last_phase();
  const source::Sharding epoch = phase->sharding(num_shards);
  const std::uint64_t step = std::min(state.start.step, epoch.end_step());
  adopt(session::new_run(phase, {.epoch = state.start.epoch,
                                 .step = step,
                                 .position = epoch.position_of(step),
                                 .shards = num_shards}));
  membership.clear();
  presence->reset();
  gathering = {};
  ledger.rewind(state.plan->progress_at(first_turn(), {}));
  record.is_old = true;
}

Spent Job::spent() const {
  Spent spent = past;
  for (const engine::Run* run : runs_of(*state.plan)) spent += spent_on(*run);
  return spent;
}

}  // namespace spdld::session
