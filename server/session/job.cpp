// SPDX-License-Identifier: Apache-2.0
#include "session/job.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text/utf8.h"
#include "session/about.h"
#include "session/records.h"

namespace spdld::session {
namespace {

// How much is kept of each text in which a client describes itself.
constexpr std::size_t kMaxSaidBytes = 512;

using RunSet = std::set<const engine::Run*>;

// A version that only tunes another one has its run.
RunSet runs_of(const stream::Timeline& timeline) {
  RunSet runs;
  for (const stream::Timeline::Cut& cut : timeline.cuts()) runs.insert(cut.phase->run.get());
  return runs;
}

job::Membership::Further further_in(const stream::Timeline& timeline) {
  return [&timeline](job::StepAt at, std::uint64_t steps) { return timeline.further(at, steps); };
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

Job::Job(stream::JobTag job_tag, job::JobKey job_key, stream::Timeline job_timeline,
         std::uint64_t job_seed, std::uint64_t replace_budget, KeptFailures kept_failures)
    : tag(job_tag),
      key(std::move(job_key)),
      seed(job_seed),
      failures(replace_budget, std::move(kept_failures.replaced), kept_failures.last),
      state{.timeline = std::move(job_timeline)},
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

job::StepAt Job::here() const {
  std::optional<job::StepAt> lowest;
  for (const auto& [member, session] : members) {
    if (session->consumer == nullptr) continue;
    const job::StepAt next = session->consumer->view().next;
    lowest = lowest ? std::min(*lowest, next) : next;
  }
  if (lowest) return *lowest;
  for (const auto& [member, of] : membership.entries()) {
    if (of.has_left()) lowest = lowest ? std::min(*lowest, of.progress.next) : of.progress.next;
  }
  return lowest ? *lowest : resumes_at();
}

job::StepAt Job::resumes_at() const {
  return ledger.kept_unix_ms > 0 ? std::max(state.start, ledger.at) : state.start;
}

void Job::note_left(const Session& session, bool done) {
  if (session.consumer == nullptr) return;
  note_progress(session);
  membership.leave(session.member, done || session.consumer->view().resized_away);
}

bool Job::note_progress(const Session& session) {
  const Consumer::View view = session.consumer->view();
  membership.reach(session.member,
                   {.next = view.next,
                    .released = view.acked,
                    .released_position = view.acked_position,
                    .moves = view.moves},
                   {.turn = view.turn, .batches = view.batches}, view.ahead);
  return view.asks;
}

void Job::note_progress() {
  for (const auto& [member, session] : members) {
    if (session->consumer != nullptr && note_progress(*session)) record_is_old = true;
  }
}

bool Job::outruns_record(bool paces) {
  return membership.outruns_record(further_in(state.timeline), paces);
}

// Who is yet to be seen here may hold a state from before it; who comes from another node does not
// count.
bool Job::gone_along(const Move& move, bool goers_too) const {
  if (membership.expected() || (!all_seen() && !gathered)) return false;
  for (const auto& [member, session] : members) {
    if (session->consumer == nullptr || session->consumer->view().moves < move.number) return false;
  }
  for (const auto& [member, of] : membership.entries()) {
    const bool goes = member.shard >= state.timeline.num_shards();
    const bool may_come_back =
        of.presence == job::Membership::Presence::kAway && (of.is_current || !gathered);
    if ((goes ? goers_too && may_come_back : of.has_left()) && of.progress.moves < move.number)
      return false;
  }
  return true;
}

bool Job::settle_moves(bool goers_too) {
  const std::size_t before = state.moves.size();
  std::erase_if(state.moves, [&](const Move& move) { return gone_along(move, goers_too); });
  return state.moves.size() != before;
}

const Move* Job::move_after(std::uint32_t done) const {
  const auto next = std::find_if(state.moves.begin(), state.moves.end(),
                                 [&](const Move& move) { return move.number > done; });
  return next != state.moves.end() ? &*next : nullptr;
}

std::vector<Jump> Job::jumps_after(std::uint32_t done) const {
  std::vector<Jump> jumps;
  for (const Move* move = move_after(done); move != nullptr; move = move_after(move->number))
    jumps.push_back({.from = move->from,
                     .to = move->to,
                     .timeline = timeline_after(move->number),
                     .moves = move->number});
  return jumps;
}

const stream::Timeline& Job::timeline_after(std::uint32_t done) const {
  const Move* const next = move_after(done);
  return next != nullptr ? next->before : state.timeline;
}

bool Job::has_consumer(job::Member member) const {
  const auto held = members.find(member);
  return held != members.end() && held->second->consumer != nullptr;
}

bool Job::all_seen() const {
  std::uint64_t seen = 0;
  for (const auto& [member, session] : members) seen += session->consumer != nullptr ? 1 : 0;
  for (const auto& [member, of] : membership.entries())
    seen += of.has_left() && member.shard < state.timeline.num_shards() ? 1 : 0;
  return seen >= std::uint64_t{state.timeline.num_shards()} * replicas;
}

Job::Acknowledged Job::acknowledged() const {
  std::optional<Acknowledged> lowest;
  const auto count = [&](job::StepAt at, std::uint64_t position) {
    if (!lowest || at < lowest->at) lowest = Acknowledged{.at = at, .position = position};
  };
  for (const auto& [member, session] : members) {
    if (session->consumer == nullptr) continue;
    const Consumer::View view = session->consumer->view();
    count(view.acked, view.acked_position);
  }
  for (const auto& [member, of] : membership.entries()) {
    if (member.shard >= state.timeline.num_shards()) continue;  // nobody is to read on from there
    if (of.has_left()) count(of.progress.released, of.progress.released_position);
  }
  if (!lowest || (!all_seen() && !gathered)) {
    if (ledger.kept_unix_ms > 0) {
      count(ledger.at, ledger.position);
    } else {
      count(state.start, state.timeline.position_of(state.start));
    }
  }
  return *lowest;
}

void Job::forget_old_cuts() {
  const stream::Timeline before = state.timeline;
  state.timeline.forget_before(std::min(here(), acknowledged().at));
  const RunSet known = runs_of(state.timeline);
  for (const engine::Run* run : runs_of(before)) {
    if (!known.contains(run)) past += spent_on(*run);
  }
}

std::vector<pipeline::PhasePtr> Job::phases() const {
  std::vector<pipeline::PhasePtr> phases;
  const auto add = [&phases](const pipeline::PhasePtr& phase) {
    if (phase != nullptr && std::find(phases.begin(), phases.end(), phase) == phases.end())
      phases.push_back(phase);
  };
  const auto add_all = [&add](const stream::Timeline& of) {
    for (const stream::Timeline::Cut& cut : of.cuts()) add(cut.phase);
  };
  add_all(state.timeline);
  for (const Move& move : state.moves) add_all(move.before);
  if (pending) add(pending->phase);
  add(tuning);
  return phases;
}

void Job::read_by(const stream::Readings& readings) {
  const std::vector<pipeline::PhasePtr> known = phases();
  const auto changes = [&](const pipeline::PhasePtr& phase) { return readings.contains(phase); };
  if (std::none_of(known.begin(), known.end(), changes)) return;
  past = spent();
  state.timeline.replace(readings);
  for (Move& move : state.moves) move.before.replace(readings);
  record_is_old = true;
}

void Job::rewind_ledger(Acknowledged to) {
  ledger.at = to.at;
  ledger.position = to.position;
  kept.reset();
  ++rewinds;
}

Spent Job::spent() const {
  Spent spent = past;
  for (const engine::Run* run : runs_of(state.timeline)) spent += spent_on(*run);
  return spent;
}

job::JobView Job::view() const {
  const pipeline::Phase& now = phase();
  const Spent spent = this->spent();
  job::JobView view{
      .job = key.job,
      .pipeline = key.pipeline,
      .owner = key.uid,
      .pipeline_version = now.version(),
      .declared = declared,
      .num_shards = state.timeline.num_shards(),
      .dealt_from = state.timeline.dealt_from(),
      .replicas = replicas,
      .seed = seed,
      .batch_size = now.batch,
      .epochs = epochs,
      .open_epochs = state.open_epochs == kNoEnd ? 0 : state.open_epochs,
      .max_epochs = max_epochs,
      .steps_per_epoch = state.timeline.steps_per_epoch(here()),
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
  for (const Move& move : state.moves) view.seeks.push_back({.from = move.from, .to = move.to});
  const pipeline::Phase* last = nullptr;
  for (const stream::Timeline::Cut& cut : state.timeline.cuts()) {
    if (cut.phase.get() == last) continue;
    last = cut.phase.get();
    view.phases.push_back({.from = cut.from,
                           .pipeline_version = last->version(),
                           .batch_size = last->batch,
                           .vars = last->pipeline->plan->spec.vars});
  }
  for (std::uint32_t shard = 0; shard < state.timeline.num_shards(); ++shard) {
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
      job::ShardView& of = view.shards.emplace_back();
      of.shard = shard;
      of.replica = replica;
      const job::StepAt begin = state.timeline.begin_of(shard, resumes_at(), true);
      of.epoch = begin.epoch;
      of.step = begin.step;
      const job::Member member{shard, replica};
      if (const auto* const known = membership.find(member); known && known->has_left()) {
        of.epoch = known->progress.next.epoch;
        of.step = known->progress.next.step;
      }
      const auto held = members.find(member);
      if (held == members.end()) continue;
      of.session = held->second->id;
      of.pid = held->second->connection->peer().pid;
      if (held->second->consumer == nullptr) continue;
      const job::StepAt next = held->second->consumer->view().next;
      of.epoch = next.epoch;
      of.step = next.step;
    }
  }
  return view;
}

store::StoredPosition Job::stored_position(const Acknowledged& at) const {
  return {.key = key,
          .at = at.at,
          .position = at.position,
          .order = state.timeline.phase(at.at)->order_text(),
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
                       .cuts = {},
                       .moves = {},
                       .move_count = as.move_count,
                       .members = members_as.record(further_in(as.timeline)),
                       .done = roll->done(),
                       .kept_unix_ms = 0};
  std::vector<const pipeline::Phase*> known;
  const auto keep = [&](const stream::Timeline& of, std::vector<store::StoredCut>& cuts) {
    for (const stream::Timeline::Cut& cut : of.cuts()) {
      auto index = std::find(known.begin(), known.end(), cut.phase.get()) - known.begin();
      if (index == static_cast<std::ptrdiff_t>(known.size())) {
        known.push_back(cut.phase.get());
        job.phases.push_back(stored_phase(*cut.phase));
      }
      cuts.push_back({.from = cut.from,
                      .position = cut.position,
                      .num_shards = cut.num_shards,
                      .phase = static_cast<std::uint32_t>(index),
                      .left_out = cut.left_out,
                      .anew_from = cut.anew_from});
    }
  };
  keep(as.timeline, job.cuts);
  for (const Move& move : as.moves) {
    job.moves.push_back({.number = move.number,
                         .after = move.after,
                         .from = move.from,
                         .to = move.to,
                         .before = {}});
    keep(move.before, job.moves.back().before);
  }
  return job;
}

}  // namespace spdld::session
