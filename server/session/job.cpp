// SPDX-License-Identifier: Apache-2.0
#include "session/job.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text/utf8.h"
#include "session/about.h"
#include "session/job_records.h"

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
  Spent spent{.cpu_s = std::chrono::duration<double>(run.process_stats().snapshot().busy).count(),
              .cache_hits = run.cache_hits()};
  if (spent.cache_hits == 0) return spent;
  const engine::SampleCache::Snapshot cache = run.cache()->snapshot();
  spent.saved_cpu_s = std::chrono::duration<double>(cache.saved).count() *
                      static_cast<double>(spent.cache_hits) /
                      static_cast<double>(std::max<std::uint64_t>(cache.hits, 1));
  return spent;
}

// A rank's own seeks as far as they tell its place at a turn; none where all of them come later.
job::OwnSeeks known_at(job::Turn turn, const job::OwnSeeks& own) {
  return own.empty() || own.front().turn > turn ? job::OwnSeeks() : own;
}

}  // namespace

Session::Session(delivery::ConnectionPtr attaches, const delivery::AttachRequest& request)
    : id(attaches->id()),
      connection(std::move(attaches)),
      command(cut(request.command, kMaxSaidBytes)),
      host(cut(request.host, kMaxSaidBytes)),
      host_pid(request.host_pid),
      device(request.device) {}

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

Job::Job(stream::JobTag job_tag, job::JobKey job_key, JobPlanPtr job_plan, std::uint64_t job_seed,
         std::uint64_t replace_budget, KeptFailures kept_failures)
    : tag(job_tag),
      key(std::move(job_key)),
      seed(job_seed),
      failures(replace_budget, std::move(kept_failures.replaced), kept_failures.last),
      state{.plan = std::move(job_plan)},
      failures_kept(kept_failures.last) {}

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

Job::Standing Job::standing() const {
  std::optional<Standing> least;
  for (const auto& [member, session] : members) {
    if (session->consumer == nullptr) continue;
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
  if (ledger.kept_unix_ms > 0) return {.turn = ledger_place.released, .own = {}, .at = ledger.at};
  return {.turn = first_turn(), .own = {}, .at = schedule().locate(first_turn(), {}).at()};
}

Job::Standing Job::furthest() const {
  std::optional<Standing> most;
  for (const auto& [member, session] : members) {
    if (session->consumer == nullptr) continue;
    Consumer::View view = session->consumer->view();
    if (most && most->turn >= view.progress.sent) continue;
    most = {.turn = view.progress.sent, .own = std::move(view.own), .at = view.progress.next};
  }
  return most ? *std::move(most) : standing();
}

const pipeline::PhasePtr& Job::phase_at(const Standing& at) const {
  const job::Turn turn = std::max(at.turn, first_turn());
  return state.plan->phase(schedule().locate(turn, at.own).version);
}

job::Progress Job::progress_at(job::Turn turn, const job::OwnSeeks& own) const {
  const job::State back = schedule().behind(turn, own);
  return {.sent = turn,
          .next = schedule().locate(turn, own).at(),
          .released = turn,
          .at = back.at(),
          .position = back.position,
          .order = state.plan->phase(back.version)->order_text()};
}

void Job::note_left(const Session& session, bool done) {
  if (session.consumer == nullptr) return;
  note_progress(session);
  membership.leave(session.member, done || session.consumer->view().resized_away);
}

bool Job::note_progress(const Session& session) {
  const Consumer::View view = session.consumer->view();
  membership.reach(session.member, view.progress);
  return view.asks;
}

void Job::note_progress() {
  for (const auto& [member, session] : members) {
    if (session->consumer != nullptr && note_progress(*session)) record_is_old = true;
  }
}

bool Job::outruns_record(bool paces) {
  std::optional<job::Turn> due;
  for (const auto& [member, session] : members) {
    if (session->consumer == nullptr) continue;
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
    for (const auto& [member, session] : members) {
      if (session->consumer == nullptr) continue;
      const Consumer::View view = session->consumer->view();
      // A rank of a shard that itself enters here does not know the place.
      const auto entered = schedule().entry(member.shard);
      if (view.handed < edit.turn || (entered && entered->turn >= edit.turn)) continue;
      if (next.schedule.set_entry(edit.turn, view.own)) found = true;
    }
  }
  if (!found) return false;
  state.plan = std::make_shared<JobPlan>(std::move(next));
  record_is_old = true;
  return true;
}

void Job::forget_entries() {
  JobPlan next = *state.plan;
  next.schedule.forget_entries(membership.frontier());
  if (next.schedule.record() == schedule().record()) return;
  state.plan = std::make_shared<JobPlan>(std::move(next));
  record_is_old = true;
}

bool Job::has_been_read() const {
  return !membership.entries().empty() || membership.reached() > 0;
}

bool Job::has_consumer(job::Member member) const {
  const auto held = members.find(member);
  return held != members.end() && held->second->consumer != nullptr;
}

bool Job::all_seen() const {
  std::uint64_t seen = 0;
  for (const auto& [member, session] : members) seen += session->consumer != nullptr ? 1 : 0;
  for (const auto& [member, of] : membership.entries())
    seen += of.has_left() && member.shard < num_shards() ? 1 : 0;
  return seen >= std::uint64_t{num_shards()} * replicas;
}

job::Progress Job::acknowledged() const {
  std::optional<job::Progress> lowest;
  const auto count = [&](const job::Progress& progress) {
    if (!lowest || progress.released < lowest->released) lowest = progress;
  };
  for (const auto& [member, session] : members) {
    if (session->consumer != nullptr) count(session->consumer->view().progress);
  }
  for (const auto& [member, of] : membership.entries()) {
    if (member.shard >= num_shards()) continue;  // nobody is to read on from there
    if (of.has_left()) count(of.progress);
  }
  if (!lowest || (!all_seen() && !gathered))
    count(ledger.kept_unix_ms > 0 ? ledger_place : progress_at(first_turn(), {}));
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
  for (const auto& [member, session] : members) {
    if (session->consumer == nullptr) continue;
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
  record_is_old = true;
}

void Job::begin_run(std::uint32_t num_shards) {
  const pipeline::PhasePtr phase = state.plan->last_phase();
  const source::Sharding epoch(phase->items, phase->tail,
                               {.num_shards = num_shards, .batch = phase->batch});
  const std::uint64_t step = std::min(state.start.step, epoch.end_step());
  adopt(session::new_run(phase, {.epoch = state.start.epoch,
                                 .step = step,
                                 .position = epoch.position_of(step),
                                 .shards = num_shards}));
  membership.clear();
  presence->reset();
  ledger_start.reset();
  began.reset();
  gathered = false;
  rewind_ledger(progress_at(first_turn(), {}));
  record_is_old = true;
}

void Job::set_ledger(const job::Progress& at) {
  ledger_place = at;
  ledger.at = at.at;
  ledger.position = at.position;
}

void Job::ledger_kept(const store::StoredPosition& position) {
  const job::Cursor& at = position.cursor;
  set_ledger({.sent = at.turn,
              .next = at.at,
              .released = at.turn,
              .at = at.at,
              .position = at.position,
              .order = at.order});
  ledger.kept_unix_ms = position.kept_unix_ms;
  kept = position;
}

void Job::rewind_ledger(const job::Progress& to) {
  set_ledger(to);
  kept.reset();
  ++rewinds;
}

job::StepAt Job::runs_from(const job::Edit& swap, const job::OwnSeeks& own) const {
  const job::Turn turn = std::max(swap.turn, first_turn());
  const job::State state_there = schedule().locate(turn, known_at(turn, own));
  const std::uint32_t version = std::get<job::Edit::Swap>(swap.change).version;
  if (state_there.version == version || state_there.next_version != version)
    return state_there.at();
  return {.epoch = state_there.epoch + 1, .step = 0};
}

Spent Job::spent() const {
  Spent spent = past;
  for (const engine::Run* run : runs_of(*state.plan)) spent += spent_on(*run);
  return spent;
}

job::JobView Job::view() const {
  const Standing from = standing();
  const pipeline::PhasePtr running = phase_at(from);
  const pipeline::Phase& now = *running;
  const Spent spent = this->spent();
  const job::Turn turn = std::max(from.turn, first_turn());
  job::JobView view{
      .job = key.job,
      .pipeline = key.pipeline,
      .owner = key.uid,
      .pipeline_version = now.version(),
      .declared = declared,
      .num_shards = num_shards(),
      .dealt_from = schedule().record().base.at(),
      .replicas = replicas,
      .seed = seed,
      .batch_size = now.batch,
      .epochs = epochs,
      .open_epochs = state.open_epochs == kNoEnd ? 0 : state.open_epochs,
      .max_epochs = max_epochs,
      .steps_per_epoch = schedule().steps_per_epoch(schedule().locate(turn, from.own)),
      .items = now.items,
      .replaced = failures.replaced(),
      .replace_budget = failures.budget(),
      .limits = state.limits,
      .arena_bytes = meter->used(),
      .cpu_s = spent.cpu_s,
      .shared_rows = gain->rows.load(std::memory_order_relaxed),
      .cache_hits = spent.cache_hits,
      .saved_cpu_s = static_cast<double>(gain->saved_ns.load(std::memory_order_relaxed)) * 1e-9 +
                     spent.saved_cpu_s,
      .rows = gain->handed_rows.load(std::memory_order_relaxed),
      .rows_per_s = rates.rows_per_s(),
      .phases = {},
      .ledger = ledger,
      .seeks = {},
      .shards = {}};
  const auto show = [&](const job::StepAt& at, const pipeline::Phase& phase) {
    // No step ran the earlier phase where two begin at the same place.
    if (!view.phases.empty() && view.phases.back().from == at) view.phases.pop_back();
    view.phases.push_back({.from = at,
                           .pipeline_version = phase.version(),
                           .batch_size = phase.batch,
                           .vars = phase.pipeline->plan->spec.vars});
  };
  // As a rank that is here sees it.
  const auto place_at = [&](job::Turn of) {
    of = std::max(of, first_turn());
    return schedule().behind(of, known_at(of, from.own)).at();
  };
  const job::ScheduleRecord& record = schedule().record();
  show(record.base.at(), *state.plan->phase(record.base.version));
  if (record.base.next_version != record.base.version)
    show({.epoch = record.base.epoch + 1, .step = 0}, *state.plan->phase(record.base.next_version));
  for (std::size_t number = 0; number < record.edits.size(); ++number) {
    const job::Edit& edit = record.edits[number];
    if (const auto* const swap = std::get_if<job::Edit::Swap>(&edit.change)) {
      show(runs_from(edit, from.own), *state.plan->phase(swap->version));
    } else if (const auto* const seek = std::get_if<job::Edit::Seek>(&edit.change)) {
      if (edit.turn >= turn) view.seeks.push_back({.from = place_at(edit.turn), .to = seek->to});
    } else {
      view.dealt_from = schedule().before_edit(number, known_at(edit.turn, from.own)).at();
    }
  }
  if (record.planned) {
    const job::Turn due = schedule().planned_turn(turn, from.own);
    const job::StepAt at = due == job::kNoTurn ? record.planned->place.value_or(job::kNever)
                                               : schedule().locate(due, from.own).at();
    show(at, *state.plan->phase(record.planned->version));
  }
  for (std::uint32_t shard = 0; shard < num_shards(); ++shard) {
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
      job::ShardView& of = view.shards.emplace_back();
      of.shard = shard;
      of.replica = replica;
      job::StepAt next = from.at;
      const job::Member member{shard, replica};
      if (const auto* const known = membership.find(member)) next = known->progress.next;
      of.epoch = next.epoch;
      of.step = next.step;
      const auto held = members.find(member);
      if (held == members.end()) continue;
      of.session = held->second->id;
      of.pid = held->second->connection->peer().pid;
      if (held->second->consumer == nullptr) continue;
      next = held->second->consumer->view().progress.next;
      of.epoch = next.epoch;
      of.step = next.step;
    }
  }
  return view;
}

store::StoredPosition Job::stored_position(const job::Progress& at) const {
  return {.key = key,
          .cursor = {.order = at.order,
                     .at = at.at,
                     .position = at.position,
                     .run = schedule().run(),
                     .branch = schedule().branch(),
                     .turn = at.released},
          .kept_unix_ms = 0};
}

job::EndView Job::end() const {
  job::EndView end{.unix_ms = unix_ms(), .how = "done", .at = here()};
  if (const std::string failure = failures.last_end(); !failure.empty()) {
    end.how = "failed: " + failure;
  } else if (!membership.all_done() && !last_parting.empty()) {
    end.how = last_parting;
  }
  return end;
}

store::StoredJob Job::stored(const JobState& as, const job::Membership& members_as) const {
  job::Turn granted = 0;
  std::optional<job::Turn> due;
  for (const auto& [member, session] : members) {
    if (session->consumer == nullptr) continue;
    const Grant::Bound bound = session->consumer->bound_grant(as.plan->schedule);
    granted = std::max(granted, bound.granted);
    due = std::max(due.value_or(0), bound.due);
  }
  store::StoredJob job{.key = key,
                       .declared = declared,
                       .ended = !declared && members.empty() && !members_as.expected(),
                       .incarnation = incarnation,
                       .seed = seed,
                       .replicas = replicas,
                       .epochs = epochs,
                       .open_epochs = as.open_epochs,
                       .max_epochs = max_epochs,
                       .limits = as.limits,
                       .vars = as.vars,
                       .first_vars = first_vars,
                       .batch_size = batch_size,
                       .start = as.start,
                       .phases = {},
                       .schedule = as.plan->schedule.record(),
                       .members = members_as.record(),
                       .reserved = members_as.to_reserve(granted, due.value_or(job::kNoTurn)),
                       .reached = members_as.reached(),
                       .done = presence->done(),
                       .kept_unix_ms = 0};
  for (const auto& [version, phase] : as.plan->phases)
    job.phases.emplace(version, stored_phase(*phase));
  return job;
}

}  // namespace spdld::session
