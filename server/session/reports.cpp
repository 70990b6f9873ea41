// SPDX-License-Identifier: Apache-2.0
#include "session/reports.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/cgroup.h"
#include "base/clock.h"

namespace spdld::session {
namespace {

std::uint64_t microseconds(std::chrono::nanoseconds time) {
  return static_cast<std::uint64_t>(time.count() / 1000);
}

// In nanoseconds, in the order of WorkersView.
struct WorkerCounts {
  RateWindow<13>::Counts ns{};
  bool knows_cores = false;
  bool knows_quota = false;
};

WorkerCounts worker_counts(engine::Executor& executor) {
  using engine::Idle;
  const engine::WorkerTime time = executor.worker_time();
  const std::optional<std::chrono::nanoseconds> cores = executor.waited_for_cores();
  const std::optional<std::chrono::nanoseconds> throttled = cpu_throttled();
  const auto ns = [](std::chrono::nanoseconds of) {
    return static_cast<std::uint64_t>(of.count());
  };
  return {.ns = {ns(time.rows), ns(time.batches), ns(time.of(Idle::kBytes)),
                 ns(time.of(Idle::kMemory)), ns(time.of(Idle::kCalls)),
                 ns(time.of(Idle::kStageBound)), ns(time.of(Idle::kJobBound)),
                 ns(time.of(Idle::kSlot)), ns(time.of(Idle::kYield)), ns(time.of(Idle::kLeft)),
                 ns(time.of(Idle::kWork)), ns(cores.value_or(std::chrono::nanoseconds(0))),
                 ns(throttled.value_or(std::chrono::nanoseconds(0)))},
          .knows_cores = cores.has_value(),
          .knows_quota = throttled.has_value()};
}

WorkersView workers_view(std::array<double, 13> ns, bool knows_cores, bool knows_quota) {
  for (double& of : ns) of *= 1e-9;
  return {.rows_s = ns[0],
          .batches_s = ns[1],
          .bytes_s = ns[2],
          .memory_s = ns[3],
          .calls_s = ns[4],
          .stage_bound_s = ns[5],
          .job_bound_s = ns[6],
          .slot_s = ns[7],
          .yield_s = ns[8],
          .left_s = ns[9],
          .work_s = ns[10],
          .core_s = knows_cores ? std::optional(ns[11]) : std::nullopt,
          .throttled_s = knows_quota ? std::optional(ns[12]) : std::nullopt};
}

SessionView view_of(const Session& session) {
  const Consumer::View consumer = session.consumer->view();
  const Peer& peer = session.connection->peer();
  return {.id = session.id,
          .uid = peer.uid,
          .pid = peer.pid,
          .host = session.host,
          .host_pid = session.host_pid.value_or(0),
          .command = session.command,
          .client = session.connection->client(),
          .job = session.job->key.job,
          .pipeline = session.job->key.pipeline,
          .owner = session.job->key.uid,
          .shard = session.member.shard,
          .num_shards = session.job->num_shards(),
          .replica = session.member.replica,
          .pipeline_version = consumer.version,
          .epoch = consumer.progress.next.epoch,
          .step = consumer.progress.next.step,
          .credits = consumer.credits,
          .leases = consumer.leases,
          .ready = consumer.ready,
          .lately = session.rates.lately(),
          .shortages = shortages_view(session.consumer->lacked()),
          .batches = consumer.batches,
          .rows = consumer.rows,
          .arena_bytes = consumer.arena_bytes,
          .gpu = consumer.gpu,
          .waited_s = in_seconds(consumer.waiting.waited),
          .waits = consumer.waiting.waits,
          .steps = consumer.waiting.steps,
          .between_s = in_seconds(consumer.waiting.between),
          .map_s = in_seconds(consumer.waiting.mapped),
          .waits_by_length = consumer.waiting.waits_by_length};
}

}  // namespace

std::vector<job::StageView> stages_of(const Job& job, std::uint32_t threads) {
  std::vector<job::StageView> views;
  const std::shared_ptr<engine::Run> shared = job.phase()->run;
  const engine::Run& run = *shared;
  const auto add = [&](const engine::StagePlan& stage, int concurrency,
                       const engine::StageStats& stats,
                       const std::optional<JobRates::Stage>& rates) {
    const engine::StageSnapshot now = stats.snapshot();
    job::StageView& view = views.emplace_back(job::StageView{
        .job = job.key.job,
        .pipeline = job.key.pipeline,
        .owner = job.key.uid,
        .stage = stage.name,
        .tasks = now.tasks,
        .failures = now.failures,
        .busy_s = in_seconds(now.busy),
        .wait_s = in_seconds(now.wait),
        .in_flight = now.in_flight,
        .concurrency = concurrency > 0 ? static_cast<std::uint32_t>(concurrency) : threads,
        .p50_us = microseconds(now.p50),
        .p99_us = microseconds(now.p99)});
    for (const auto& [code, failures] : now.failures_by_code)
      view.failures_by_code.emplace(code_name(code), failures);
    if (!rates) return;
    view.rows_per_s = rates->rows_per_s;
    view.waiting = rates->waiting;
    view.failures_per_s = rates->failures_per_s;
    if (rates->times) {
      view.p50_lately_us = microseconds(rates->times->p50);
      view.p90_lately_us = microseconds(rates->times->p90);
      view.p99_lately_us = microseconds(rates->times->p99);
    }
    // A task counts when it ends, with all its time, which may reach back beyond the window.
    view.served = std::min<double>(rates->busy, view.concurrency);
    view.busy_share = *view.served / view.concurrency;
  };
  const std::optional<JobRates::Stage> fetching = job.rates.fetch(shared);
  add(run.plan().fetch, run.fetch_concurrency(), run.fetch_stats(), fetching);
  views.back().bytes = run.fetch_stats().bytes();
  if (fetching) views.back().bytes_per_s = fetching->bytes_per_s;
  add(run.plan().process, run.process_concurrency(), run.process_stats(),
      job.rates.process(shared));
  if (run.plan().may_reject()) views.back().rejected = run.judged().rejected;
  views.back().jpeg = run.jpeg_images();
  views.back().ops = run.op_times();
  for (std::size_t i = 0; i < run.plan().calls.size(); ++i) {
    const CallSpec& call = run.plan().calls[i].spec;
    add({.name = "python " + call.call, .concurrency = call.concurrency}, call.concurrency,
        run.call_stats(i), std::nullopt);
  }
  return views;
}

job::JobView view_of(const Job& job) {
  const Job::Standing from = job.standing();
  const JobPlan& plan = *job.state.plan;
  const pipeline::Phase& now = *plan.phase_at(from.turn, from.own);
  const Spent spent = job.spent();
  const job::Turn turn = std::max(from.turn, job.first_turn());
  job::JobView view{
      .job = job.key.job,
      .pipeline = job.key.pipeline,
      .owner = job.key.uid,
      .pipeline_version = now.version(),
      .declared = job.declared,
      .num_shards = job.num_shards(),
      .dealt_from = plan.schedule.record().base.at(),
      .replicas = job.replicas,
      .seed = job.seed,
      .batch_size = now.batch,
      .epochs = job.epochs,
      .open_epochs = job.state.open_epochs == JobState::kNoEnd ? 0 : job.state.open_epochs,
      .max_epochs = job.max_epochs,
      .steps_per_epoch = plan.schedule.steps_per_epoch(plan.schedule.locate(turn, from.own)),
      .items = now.items,
      .replaced = job.failures.replaced(),
      .replace_budget = job.failures.budget(),
      .limits = job.state.limits,
      .arena_bytes = job.meter->used(),
      .cpu_s = spent.cpu_s,
      .shared_rows = job.gain->rows.load(std::memory_order_relaxed),
      .cache_hits = spent.cache_hits,
      .saved_cpu_s =
          static_cast<double>(job.gain->saved_ns.load(std::memory_order_relaxed)) * 1e-9 +
          spent.saved_cpu_s,
      .rows = job.gain->handed_rows.load(std::memory_order_relaxed),
      .rows_per_s = job.rates.rows_per_s(),
      .phases = {},
      .ledger = {.at = job.ledger.place.at,
                 .position = job.ledger.place.position,
                 .kept_unix_ms = job.ledger.kept_unix_ms,
                 .conflict = job.ledger.conflict},
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
    of = std::max(of, job.first_turn());
    return plan.schedule.behind(of, known_at(of, from.own)).at();
  };
  const job::ScheduleRecord& record = plan.schedule.record();
  show(record.base.at(), *plan.phase(record.base.version));
  if (record.base.next_version != record.base.version)
    show({.epoch = record.base.epoch + 1, .step = 0}, *plan.phase(record.base.next_version));
  for (std::size_t number = 0; number < record.edits.size(); ++number) {
    const job::Edit& edit = record.edits[number];
    if (const auto* const swap = std::get_if<job::Edit::Swap>(&edit.change)) {
      show(plan.runs_from(edit, from.own), *plan.phase(swap->version));
    } else if (const auto* const seek = std::get_if<job::Edit::Seek>(&edit.change)) {
      if (edit.turn >= turn) view.seeks.push_back({.from = place_at(edit.turn), .to = seek->to});
    } else {
      view.dealt_from = plan.schedule.before_edit(number, known_at(edit.turn, from.own)).at();
    }
  }
  if (record.planned) {
    const job::Turn due = plan.schedule.planned_turn(turn, from.own);
    const job::StepAt at = due == job::kNoTurn ? record.planned->place.value_or(job::kNever)
                                               : plan.schedule.locate(due, from.own).at();
    show(at, *plan.phase(record.planned->version));
  }
  for (std::uint32_t shard = 0; shard < job.num_shards(); ++shard) {
    for (std::uint32_t replica = 0; replica < job.replicas; ++replica) {
      job::ShardView& of = view.shards.emplace_back();
      of.shard = shard;
      of.replica = replica;
      job::StepAt next = from.at;
      const job::Member member{shard, replica};
      if (const auto* const known = job.membership.find(member)) next = known->progress.next;
      if (const auto held = job.members.find(member); held != job.members.end()) {
        const Session& session = *held->second;
        of.session = session.id;
        of.pid = session.connection->peer().pid;
        if (session.consumer != nullptr) next = session.consumer->view().progress.next;
      }
      of.epoch = next.epoch;
      of.step = next.step;
    }
  }
  return view;
}

job::EndView end_of(const Job& job) {
  job::EndView end{.unix_ms = unix_ms(), .how = "done", .at = job.here()};
  if (const std::string failure = job.failures.last_end(); !failure.empty()) {
    end.how = "failed: " + failure;
  } else if (!job.membership.all_done() && !job.last_parting.empty()) {
    end.how = job.last_parting;
  }
  return end;
}

Result<job::JobView> Reports::job(const job::Caller& caller, const JobName& name) const {
  MutexLock lock(table_.mutex());
  SPDLD_ASSIGN(const JobPtr found, table_.find_job(caller, name));
  return view_of(*found);
}

std::vector<job::JobView> Reports::jobs(const job::Caller& caller) const {
  MutexLock lock(table_.mutex());
  std::vector<job::JobView> views;
  for (const auto& [key, job] : table_.jobs()) {
    if (table_.visible(caller, *job)) views.push_back(view_of(*job));
  }
  return views;
}

std::vector<SessionView> Reports::sessions(const job::Caller& caller) const {
  MutexLock lock(table_.mutex());
  std::vector<SessionView> views;
  for (const auto& [id, session] : table_.sessions()) {
    if (session->closed || session->job == nullptr || session->consumer == nullptr ||
        !table_.visible(caller, *session->job))
      continue;
    views.push_back(view_of(*session));
  }
  return views;
}

JobPtr Reports::maker_of(const JobPtr& job) const {
  for (const SessionPtr& session : job->attached()) {
    const std::shared_ptr<const engine::Run> run = session->consumer->made_by();
    for (const auto& [key, other] : table_.jobs()) {
      if (run != nullptr && other->phase()->run == run) return other;
    }
  }
  return job;
}

Result<std::vector<DiagnosisFacts>> Reports::diagnosis_facts(
    const job::Caller& caller, const std::optional<JobName>& name) const {
  MutexLock lock(table_.mutex());
  std::vector<JobPtr> jobs;
  if (name) {
    SPDLD_ASSIGN(jobs.emplace_back(), table_.find_job(caller, *name));
  } else {
    for (const auto& [key, job] : table_.jobs()) {
      if (table_.visible(caller, *job)) jobs.push_back(job);
    }
  }
  // Jobs may share a run.
  std::map<std::weak_ptr<engine::Run>, double, std::owner_less<>> making;
  double all_making = 0;
  for (const auto& [key, job] : table_.jobs()) {
    const JobRates::Making of = job->rates.making();
    if (making.emplace(of.run, of.rows).second) all_making += of.rows;
  }
  std::vector<DiagnosisFacts> all;
  for (const JobPtr& job : jobs) {
    DiagnosisFacts& facts = all.emplace_back();
    facts.job = view_of(*job);
    const JobPtr maker = maker_of(job);
    const std::vector<job::StageView> stages = stages_of(*maker, deps_.executor.threads());
    facts.fetch = stages.front();
    facts.process = stages[1];
    const std::shared_ptr<engine::Run> run = maker->phase()->run;
    if (const auto rates = maker->rates.process(run); rates && rates->times) {
      facts.slow_rows = rates->times->slow;
      facts.slow_time = rates->times->slow_time;
    }
    facts.lacks_runners = run->waits_for_runners();
    const engine::Run::SlowRow slowest = run->slowest();
    facts.slowest = run->source().uri(slowest.item);
    facts.slowest_s = in_seconds(slowest.took);
    const auto own = making.find(maker->rates.making().run);
    facts.others_served = all_making - (own == making.end() ? 0 : own->second);
    for (const SessionPtr& session : job->attached()) {
      facts.ranks.push_back(view_of(*session));
      const auto headway = session->consumer->starved();
      if (!headway || headway->reads.empty() || in_seconds(headway->held) < facts.oldest_read_s)
        continue;
      facts.oldest_read_s = in_seconds(headway->held);
      facts.oldest_read = headway->reads;
    }
  }
  return all;
}

Result<JobStep> Reports::step(const job::Caller& caller, const JobName& name, job::StepAt at,
                              std::uint32_t shard) const {
  Status absent;
  {
    MutexLock lock(table_.mutex());
    auto found = table_.find_job(caller, name);
    if (found) return step_of(**found, at, shard);
    absent = found.error();
  }
  if (absent.code() != Code::kNotFound) return tl::unexpected<Status>(absent);
  const std::vector<store::StoredEnd> all = ended(caller);
  std::vector<job::JobKey> keys;
  keys.reserve(all.size());
  for (const store::StoredEnd& end : all)
    keys.push_back({.uid = end.view.owner, .job = end.view.job, .pipeline = end.view.pipeline});
  SPDLD_ASSIGN(const std::optional<job::JobKey> key, table_.meant(caller, name, std::move(keys)));
  if (!key) return tl::unexpected<Status>(absent);
  return error(Code::kFailedPrecondition,
               "job '" + key->job +
                   "' has ended, and steps are shown of jobs that run: start its ranks again from "
                   "a saved state or start=\"ledger\", and ask then");
}

std::vector<job::StageView> Reports::stages(const job::Caller& caller) const {
  MutexLock lock(table_.mutex());
  std::vector<job::StageView> views;
  for (const auto& [key, job] : table_.jobs()) {
    if (!table_.visible(caller, *job)) continue;
    for (job::StageView& stage : stages_of(*job, deps_.executor.threads()))
      views.push_back(std::move(stage));
  }
  return views;
}

std::vector<FailureView> Reports::failures(const job::Caller& caller,
                                           const std::string& name) const {
  // By number: the same one may be on disk and here.
  std::map<std::pair<job::JobKey, std::uint64_t>, engine::FailureFacts> known;
  const auto add = [&](const job::JobKey& key, const std::vector<engine::LoggedFailure>& failures) {
    if (!name.empty() && key.job != name) return;
    for (const engine::LoggedFailure& failure : failures)
      known[{key, failure.number}] = failure.facts;
  };
  if (const auto kept = deps_.store.failures(table_.owner_seen_by(caller), name)) {
    for (const store::Store::KeptFailure& failure : *kept) add(failure.key, {failure.failure});
  }
  {
    MutexLock lock(table_.mutex());
    for (const auto& [key, job] : table_.jobs()) {
      if (table_.visible(caller, *job)) add(key, job->failures.recent());
    }
    for (const store::StoredJob& ended : table_.ended().records()) {
      if (table_.visible(caller, ended.key)) add(ended.key, ended.failures);
    }
    for (const EndedJobs::Private& ended : table_.ended().privately()) {
      if (table_.visible(caller, ended.key)) add(ended.key, ended.failures);
    }
  }
  std::vector<FailureView> views;
  views.reserve(known.size());
  for (auto& [number, facts] : known)
    views.push_back(
        {.job = number.first.job, .pipeline = number.first.pipeline, .facts = std::move(facts)});
  std::stable_sort(views.begin(), views.end(), [](const FailureView& a, const FailureView& b) {
    return a.facts.unix_ms < b.facts.unix_ms;
  });
  return views;
}

std::vector<store::StoredEnd> Reports::ended(const job::Caller& caller) const {
  std::map<job::JobKey, store::StoredEnd> last;
  if (auto kept = deps_.store.ended_jobs(table_.owner_seen_by(caller))) {
    for (store::StoredEnd& end : *kept)
      last[{end.view.owner, end.view.job, end.view.pipeline}] = std::move(end);
  }
  {
    MutexLock lock(table_.mutex());
    for (const store::StoredJob& ended : table_.ended().records()) {
      if (ended.end && table_.visible(caller, ended.key)) last[ended.key] = *ended.end;
    }
    for (const EndedJobs::Private& ended : table_.ended().privately()) {
      if (table_.visible(caller, ended.key)) last[ended.key] = ended.end;
    }
  }
  std::vector<store::StoredEnd> ends;
  ends.reserve(last.size());
  for (auto& [key, end] : last) ends.push_back(std::move(end));
  std::stable_sort(ends.begin(), ends.end(),
                   [](const store::StoredEnd& a, const store::StoredEnd& b) {
                     return a.end.unix_ms > b.end.unix_ms;
                   });
  return ends;
}

delivery::SlotTable::Counts Reports::slot_counts() const {
  std::set<std::shared_ptr<stream::SlotPool>> pools;
  {
    MutexLock lock(table_.mutex());
    for (const auto& [id, session] : table_.sessions()) {
      if (session->consumer == nullptr) continue;
      for (const auto& pool : session->consumer->arenas()) pools.insert(pool);
    }
  }
  delivery::SlotTable::Counts sum;
  for (const auto& pool : pools) {
    const delivery::SlotTable::Counts counts = pool->slots().counts();
    sum.free += counts.free;
    sum.loaned += counts.loaned;
    sum.ready += counts.ready;
    sum.leased += counts.leased;
    sum.retired += counts.retired;
    sum.bad_releases += counts.bad_releases;
  }
  return sum;
}

Reports::Totals Reports::totals() const {
  MutexLock lock(table_.mutex());
  Totals totals = totals_so_far();
  if (const auto rates = handed_.per_second()) {
    totals.batches_per_s = (*rates)[0];
    totals.rows_per_s = (*rates)[1];
  }
  return totals;
}

void Reports::count_users(std::map<uid_t, UserView>& users) const {
  MutexLock lock(table_.mutex());
  for (const auto& [key, job] : table_.jobs()) {
    UserView& user = users[key.uid];
    ++user.jobs.used;
    user.cpu_s += job->spent().cpu_s;
  }
  for (const auto& [key, why] : table_.broken()) ++users[key.uid].jobs.used;
}

WorkersView Reports::workers() const {
  const WorkerCounts spent = worker_counts(deps_.executor);
  std::array<double, 13> ns{};
  std::copy(spent.ns.begin(), spent.ns.end(), ns.begin());
  return workers_view(ns, spent.knows_cores, spent.knows_quota);
}

std::optional<WorkersView> Reports::workers_lately() const {
  MutexLock lock(table_.mutex());
  const auto rates = workers_.per_second();
  if (!rates) return std::nullopt;
  return workers_view(*rates, knows_cores_, knows_quota_);
}

void Reports::take_rates() {
  const std::chrono::nanoseconds now = deps_.clock.now();
  {
    MutexLock lock(table_.mutex());
    if (!handed_.is_due(now)) return;  // somebody who leaves may tick, too
  }
  const WorkerCounts workers = worker_counts(deps_.executor);  // reads files
  MutexLock lock(table_.mutex());
  const Totals totals = totals_so_far();
  handed_.add(now, {totals.batches, totals.rows});
  if (workers.knows_cores != knows_cores_ || workers.knows_quota != knows_quota_)
    workers_.clear();  // a 0 there is no count
  knows_cores_ = workers.knows_cores;
  knows_quota_ = workers.knows_quota;
  workers_.add(now, workers.ns);
  for (const auto& [id, session] : table_.sessions()) {
    if (session->consumer != nullptr) session->rates.add(now, *session->consumer);
  }
  for (const auto& [key, job] : table_.jobs()) {
    const std::shared_ptr<engine::Run> run = job->phase()->run;
    job->rates.add(now, job->gain->handed_rows.load(std::memory_order_relaxed), run);
    job->warn_of_rejections(*run);
  }
}

Reports::Totals Reports::totals_so_far() const {
  Totals totals{.batches = table_.gone().batches, .rows = table_.gone().rows};
  totals.jobs = static_cast<std::uint32_t>(table_.jobs().size());
  for (const auto& [id, session] : table_.sessions()) {
    if (session->consumer == nullptr) continue;
    const Consumer::View view = session->consumer->view();
    totals.batches += view.batches;
    totals.rows += view.rows;
    if (!session->closed) ++totals.sessions;
  }
  return totals;
}

}  // namespace spdld::session
