// SPDX-License-Identifier: Apache-2.0
// Hot swap: what a running job runs from one of its steps on. Planned without a lock, prepared on
// all shards at once, then committed or aborted.
#include <algorithm>
#include <utility>

#include "base/counted.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "session/preview.h"
#include "session/records.h"
#include "session/sessions.h"

namespace spdld::session {
namespace {

std::string place_text(StepAt at) {
  return "epoch " + std::to_string(at.epoch) + ", step " + std::to_string(at.step);
}

std::string tensor_text(const TensorSpec& tensor, std::uint64_t batch) {
  std::string shape = std::to_string(batch);
  for (const std::int64_t extent : tensor.shape)
    shape += ", " + (extent < 0 ? "*" : std::to_string(extent));
  return tensor.name + " " + std::string(dtype_name(tensor.dtype)) + " (" + shape + ")";
}

// How who asks says where.
std::string at_text(const PlannedSwap& swap, const std::string& where) {
  return swap.by_consumer ? "at=\"" + where + "\"" : "--at " + where;
}

// A training loop that was written for one is not surprised by the other.
Status check_schema(const Phase& now, const PlannedSwap& swap) {
  const Phase& next = *swap.phase;
  const std::string& job = swap.job->key.job;
  const auto& has = now.pipeline->plan->tensors;
  const auto& gets = next.pipeline->plan->tensors;
  const std::string way_out =
      std::string("; if the training loop can take it, allow it (") +
      (swap.by_consumer ? "allow_schema_change=True" : "--allow-schema-change") + ")";
  for (std::size_t i = 0; i < std::max(has.size(), gets.size()); ++i) {
    if (i < has.size() && i < gets.size() && has[i] == gets[i] && now.batch == next.batch) continue;
    const std::string before = i < has.size() ? tensor_text(has[i], now.batch) : "nothing";
    const std::string after = i < gets.size() ? tensor_text(gets[i], next.batch) : "nothing";
    return Status(Code::kFailedPrecondition, "job '" + job + "' is given " + before +
                                                 ", and would be given " + after + way_out);
  }
  return {};
}

bool same_order(const Phase& a, const Phase& b) { return a.order_text() == b.order_text(); }

// From where on `timeline` has what it has last.
StepAt last_change(const Timeline& timeline) {
  const auto& cuts = timeline.cuts();
  auto cut = cuts.rbegin();
  while (std::next(cut) != cuts.rend() && std::next(cut)->phase == cut->phase) ++cut;
  return cut->from;
}

// What of `timeline` does not come if it changes at `first`.
std::vector<PlannedChange> changes_from(const Timeline& timeline, StepAt first) {
  const auto& cuts = timeline.cuts();
  std::vector<PlannedChange> changes;
  for (std::size_t i = 1; i < cuts.size(); ++i) {
    if (cuts[i].from >= first && cuts[i].phase != cuts[i - 1].phase)
      changes.push_back({.version = cuts[i].phase->version(), .from = cuts[i].from});
  }
  return changes;
}

// The variables that an operator gave for a job when it changed to `version`, if it did.
std::set<std::string> overrides_under(const Timeline& timeline, std::uint32_t version) {
  std::set<std::string> overrides;
  for (const Timeline::Cut& cut : timeline.cuts()) {
    if (cut.phase->version() == version) overrides = cut.phase->overrides;
  }
  return overrides;
}

// Where a trial is made of what begins there.
StepAt trial_step(const SwapAt& at, StepAt here, const Timeline& timeline) {
  StepAt trial = here;
  if (at.kind == SwapAt::Kind::kNextEpoch) trial = {here.epoch + 1, 0};
  if (at.kind == SwapAt::Kind::kStep) trial = at.step;
  return {trial.epoch, std::min(trial.step, timeline.end_step(trial.epoch) - 1)};
}

}  // namespace

std::vector<JobPtr> Sessions::jobs_of(const Caller& caller, const std::string& pipeline) const {
  std::vector<JobPtr> jobs;
  for (const auto& [key, job] : jobs_) {
    if (key.pipeline == pipeline && visible(caller, *job)) jobs.push_back(job);
  }
  return jobs;
}

SwapVars Sessions::vars_for(const Job& job, const SwapRequest& request) const {
  return {
      .own = job.vars,
      .overrides = request.again ? overrides_under(job.timeline, *request.again) : request.vars};
}

Result<PipelinePtr> Sessions::variant_for(const PipelinePtr& pipeline, const SwapVars& vars,
                                          std::optional<std::uint64_t> batch_size,
                                          const Catalogue::Progress& progress) {
  // The others are in the pipeline's own request.
  std::map<std::string, std::string> counting = vars.own;
  for (const std::string& name : vars.overrides) counting.erase(name);
  return deps_.catalogue.variant(pipeline, counting, batch_size, progress);
}

std::vector<StayingJob> Sessions::staying(const Caller& caller, const PipelinePtr& pipeline,
                                          const SwapRequest& request,
                                          const Catalogue::Progress& progress) {
  struct Seen {
    std::string job;
    PhasePtr last;
    SwapVars vars;
    std::optional<std::uint64_t> batch_size;
  };
  std::vector<Seen> seen;
  {
    MutexLock lock(mutex_);
    for (const JobPtr& job : jobs_of(caller, pipeline->name()))
      seen.push_back({.job = job->key.job,
                      .last = job->timeline.last_phase(),
                      .vars = vars_for(*job, request),
                      .batch_size = job->batch_size});
  }
  std::vector<StayingJob> staying;
  for (const Seen& of : seen) {
    const auto variant = variant_for(pipeline, of.vars, of.batch_size, progress);
    // Of one that it does not fit, the change would say so.
    if (variant && (*variant)->content_digest == of.last->pipeline->content_digest) continue;
    staying.push_back({.job = of.job, .version = of.last->version()});
  }
  return staying;
}

Result<PlannedSwap> Sessions::plan_swap(const JobPtr& job, const PipelinePtr& pipeline,
                                        const SwapVars& vars, const SwapRequest& request,
                                        const Catalogue::Progress& progress) {
  std::optional<std::uint64_t> batch_size;
  PhasePtr last;
  std::uint32_t num_shards = 1;
  StepAt here;
  {
    MutexLock lock(mutex_);
    batch_size = job->batch_size;
    last = job->timeline.last_phase();
    num_shards = job->timeline.num_shards();
    here = job->here();
  }
  auto variant = variant_for(pipeline, vars, batch_size, progress);
  if (!variant)
    return tl::unexpected<Status>(variant.error().with_context("job '" + job->key.job + "'"));
  PlannedSwap swap{.job = job,
                   .phase = nullptr,
                   .vars = vars.own,
                   .allow_schema_change = request.allow_schema_change,
                   .base = last};
  if ((*variant)->content_digest == last->pipeline->content_digest) {
    swap.known = true;
    swap.phase = last;
    if (last->overrides == vars.overrides) return swap;
    // The same bytes, and from now on it is another's values that make them.
    auto said = std::make_shared<Phase>(*last);
    said->overrides = vars.overrides;
    swap.phase = said;
    return swap;
  }
  if ((*variant)->work_digest == last->content) {
    // The same work: the run goes on as it is, and by another name.
    auto renamed = std::make_shared<Phase>(*last);
    renamed->pipeline = *variant;
    renamed->overrides = vars.overrides;
    swap.phase = renamed;
    swap.tuned = true;
    return swap;
  }
  SPDLD_ASSIGN(swap.phase, make_phase(*variant, job->seed, vars.overrides));
  const Timeline timeline(swap.phase, num_shards);
  if (timeline.steps_per_epoch({}) == 0)
    return error(Code::kFailedPrecondition,
                 "job '" + job->key.job + "': " + counted(swap.phase->items, "item") +
                     " make no step of " + counted(num_shards, "shard") + " with batches of " +
                     std::to_string(swap.phase->batch) +
                     "; lower batch.size, resize the job, or say 'batch: {last: pad}'");
  // What does not work is found out while the old one still runs.
  SPDLD_TRY(timeline.check(request.at.kind == SwapAt::Kind::kStep ? request.at.step : here, 0));
  const StepAt at = trial_step(request.at, here, timeline);
  if (Status made =
          make_trial(swap.phase->run, at, timeline.sharding(at).rows(at.step, 0), deps_.executor);
      !made.ok())
    return tl::unexpected<Status>(made.with_context("job '" + job->key.job +
                                                    "' goes on with what it has: a first batch of "
                                                    "the new version could not be made"));
  return swap;
}

Result<std::vector<PlannedSwap>> Sessions::plan_swaps(const Caller& caller,
                                                      const PipelinePtr& pipeline,
                                                      const SwapRequest& request,
                                                      const Catalogue::Progress& progress) {
  std::vector<JobPtr> jobs;
  {
    MutexLock lock(mutex_);
    if (!request.job.empty()) {
      SPDLD_ASSIGN(JobPtr job, find_job(caller, request.job, pipeline->name()));
      jobs.push_back(std::move(job));
    } else {
      jobs = jobs_of(caller, pipeline->name());
    }
  }
  std::vector<PlannedSwap> swaps;
  for (const JobPtr& job : jobs) {
    SwapVars vars;
    {
      MutexLock lock(mutex_);
      vars = vars_for(*job, request);
    }
    SPDLD_ASSIGN(PlannedSwap swap, plan_swap(job, pipeline, vars, request, progress));
    swaps.push_back(std::move(swap));
  }
  return swaps;
}

// Whether nothing about it changes when that is committed.
bool Sessions::says_nothing_new(const PlannedSwap& swap) {
  const Job& job = *swap.job;
  const PhasePtr& last = job.timeline.last_phase();
  return swap.known && (last != swap.base || (last == swap.phase && job.vars == swap.vars));
}

// What other nodes have begun is not known here.
Status Sessions::check_feeds_all(const PlannedSwap& swap) {
  const Job& job = *swap.job;
  const std::string step = at_text(swap, "step:EPOCH/N");
  if (job.members.empty()) return {};
  for (std::uint32_t shard = 0; shard < job.timeline.num_shards(); ++shard) {
    const Member first{.shard = shard, .replica = 0};
    const auto member = job.members.lower_bound(first);
    const auto was = job.left.lower_bound(first);
    if ((member != job.members.end() && member->first.shard == shard) ||
        (was != job.left.end() && was->first.shard == shard))
      continue;
    return Status(
        Code::kFailedPrecondition,
        "job '" + job.key.job + "': shard " + std::to_string(shard) +
            " is not read from this daemon; if another node feeds it, name a step that "
            "all of them can change at (" +
            step + ")" +
            (swap.by_consumer ? ", on each of them" : ", and their daemons (--address A,B)"));
  }
  return {};
}

Result<StepAt> Sessions::asked_step(const Job& job, const Timeline& timeline, const SwapAt& at,
                                    StepAt frontier) {
  if (at.kind == SwapAt::Kind::kNow) return frontier;
  if (at.kind == SwapAt::Kind::kNextEpoch)
    return frontier.step == 0 ? frontier : StepAt{frontier.epoch + 1, 0};
  SPDLD_TRY(timeline.check(at.step, 0));
  const std::uint64_t end = timeline.end_step(at.step.epoch);
  if (at.step.step > end)
    return error(Code::kOutOfRange,
                 "job '" + job.key.job + "': epoch " + std::to_string(at.step.epoch) + " has " +
                     counted(end, "step") + "; there is no step " + std::to_string(at.step.step));
  return timeline.settled(at.step);
}

Status Sessions::check_swap(const PlannedSwap& swap, const Timeline& timeline, StepAt frontier) {
  const Job& job = *swap.job;
  const StepAt from = swap.from;
  const std::string name = "job '" + job.key.job + "'";
  const Phase& before = *timeline.phase(from);
  if (from < frontier)
    return Status(Code::kOutOfRange, name + " has passed " + place_text(from) +
                                         ": the first step that can still change is " +
                                         place_text(frontier));
  if (from.step > 0 && !same_order(before, *swap.phase))
    return Status(Code::kFailedPrecondition,
                  name +
                      ": another dataset, shuffle or seed gives another order, and that can "
                      "change at an epoch's start only: apply it with " +
                      at_text(swap, "next-epoch") + ", or " + at_text(swap, "step:EPOCH/0"));
  if (job.max_epochs > 0 && from.epoch >= job.max_epochs)
    return Status(Code::kOutOfRange, name + " ends with epoch " +
                                         std::to_string(job.max_epochs - 1) + ", before " +
                                         place_text(from) + ": name an earlier place");
  return swap.allow_schema_change ? Status() : check_schema(before, swap);
}

// Decides where it is to be. Afterwards it may be known, and then nothing is to be done.
Status Sessions::place_swap(PlannedSwap& swap, const SwapAt& at, StepAt frontier) {
  const Job& job = *swap.job;
  Timeline timeline = job.timeline;
  const StepAt since = last_change(timeline);
  swap.runs = swap.known && (since < frontier || since == timeline.cuts().front().from);
  if (swap.known && !swap.runs) {
    // As it is without what was to come: that may come at any step now.
    timeline.swap(since, timeline.phase_before(since));
  }
  SPDLD_ASSIGN(swap.from, asked_step(job, timeline, at, frontier));
  if (swap.runs && swap.from > since && at.kind == SwapAt::Kind::kStep)
    return Status(Code::kFailedPrecondition, "job '" + job.key.job + "' has run this from " +
                                                 place_text(since) + " on, and not from " +
                                                 place_text(swap.from) +
                                                 ": name that place, or roll it back there first");
  if (swap.known && (swap.from == since || (swap.from > since && swap.runs))) {
    swap.from = since;
    return {};
  }
  if (swap.known && swap.from > since) swap.planned = since;
  swap.known = swap.runs = false;
  swap.replaces = changes_from(job.timeline, swap.planned.value_or(swap.from));
  if (at.kind != SwapAt::Kind::kStep) SPDLD_TRY(check_feeds_all(swap));
  return check_swap(swap, timeline, frontier);
}

Status Sessions::prepare_swap(PlannedSwap& swap, const SwapAt& at) {
  Job& job = *swap.job;
  if (job.changes() || yet_to_jump(job) != nullptr) return check_settled(job);
  if (swap.base != job.timeline.last_phase())
    return Status(Code::kAborted, "job '" + job.key.job +
                                      "' was changed by somebody else while this was planned: try "
                                      "again");
  if (swap.tuned) {
    swap.from = job.here();
    job.tuning = swap.phase;
    return {};
  }
  if (!swap.known) SPDLD_TRY(check_settled(job));
  const StepAt frontier = hold(job);
  Status ready = place_swap(swap, at, frontier);
  if (ready.ok() && !swap.known) ready = check_settled(job);  // also of one that is moved
  if (ready.ok() && !swap.known) {
    job.pending = Job::Pending{.from = swap.from, .phase = swap.phase, .planned = swap.planned};
    for (const auto& [member, session] : job.members) {
      if (session->consumer == nullptr || !ready.ok()) continue;
      ready = session->consumer->prepare_swap(swap.from, swap.phase, swap.planned);
    }
    if (!ready.ok()) abort_swap(swap);
  }
  go_on(job);
  return ready;
}

Status Sessions::prepare_swaps(std::vector<PlannedSwap>& swaps, const SwapAt& at) {
  MutexLock lock(mutex_);
  for (auto swap = swaps.begin(); swap != swaps.end(); ++swap) {
    Status ready = runs(swap->job)
                       ? prepare_swap(*swap, at)
                       : Status(Code::kAborted, "job '" + swap->job->key.job +
                                                    "' has ended while its swap was prepared");
    if (ready.ok()) continue;
    for (auto done = swaps.begin(); done != swap; ++done) abort_swap(*done);
    return ready;
  }
  return {};
}

bool Sessions::runs(const JobPtr& job) const {
  const auto running = jobs_.find(job->key);
  return running != jobs_.end() && running->second == job;
}

std::vector<StoredJob> Sessions::stored_before(const std::vector<PlannedSwap>& swaps) const {
  MutexLock lock(mutex_);
  std::vector<StoredJob> records;
  for (const PlannedSwap& swap : swaps) {
    if (swap.job->is_private || !runs(swap.job)) continue;
    records.push_back(swap.job->stored());
    records.back().kept_unix_ms = unix_ms();
  }
  return records;
}

std::vector<StoredJob> Sessions::stored_after(const std::vector<PlannedSwap>& swaps) const {
  MutexLock lock(mutex_);
  std::vector<StoredJob> records;
  for (const PlannedSwap& swap : swaps) {
    if (says_nothing_new(swap) || swap.job->is_private || !runs(swap.job)) continue;
    Job& job = *swap.job;
    if (swap.tuned && job.tuning != swap.phase) continue;
    const Timeline before = job.timeline;
    const auto vars_before = std::exchange(job.vars, swap.vars);
    if (swap.tuned || swap.known) {
      job.timeline.rename(job.timeline.last_phase(), swap.phase);
    } else {
      job.timeline.swap(swap.from, swap.phase, swap.planned);
    }
    StoredJob& record = records.emplace_back(job.stored());
    record.kept_unix_ms = unix_ms();
    job.timeline = before;
    job.vars = vars_before;
  }
  return records;
}

std::vector<StoredSwap> Sessions::stored_swaps(const std::vector<PlannedSwap>& swaps) {
  std::vector<StoredSwap> stored;
  for (const PlannedSwap& swap : swaps) {
    if (swap.job->is_private) continue;
    stored.push_back({.key = swap.job->key,
                      .from = swap.from,
                      .phase = stored_phase(*swap.phase),
                      .vars = swap.vars,
                      .known = swap.known,
                      .tuned = swap.tuned,
                      .runs = swap.runs,
                      .planned = swap.planned,
                      .replaces = swap.replaces});
  }
  return stored;
}

Result<PlannedSwap> Sessions::restore_swap(const StoredSwap& kept) {
  JobPtr job;
  {
    MutexLock lock(mutex_);
    if (const auto found = jobs_.find(kept.key); found != jobs_.end()) job = found->second;
  }
  if (job == nullptr) {
    SPDLD_ASSIGN(const std::optional<StoredJob> stored, deps_.store.job(kept.key));
    if (!stored) return error(Code::kNotFound, "nothing is known of it any more");
    SPDLD_ASSIGN(job, rebuild(*stored));
  }
  PlannedSwap swap{.job = job,
                   .phase = job->timeline.last_phase(),
                   .vars = kept.vars,
                   .known = kept.known,
                   .tuned = kept.tuned,
                   .runs = kept.runs,
                   .from = kept.from,
                   .planned = kept.planned,
                   .replaces = kept.replaces};
  if (kept.known) return swap;
  SPDLD_ASSIGN(const PipelinePtr pipeline,
               deps_.catalogue.rebuild(kept.phase.owner, kept.phase.request, kept.phase.version,
                                       kept.phase.batch_size, nullptr));
  if (kept.tuned) {
    auto renamed = std::make_shared<Phase>(*swap.phase);
    renamed->pipeline = pipeline;
    renamed->overrides = kept.phase.overrides;
    swap.phase = renamed;
    MutexLock lock(mutex_);
    jobs_[kept.key] = job;
    limits_changed(*job);
    job->tuning = swap.phase;
    return swap;
  }
  SPDLD_ASSIGN(swap.phase, make_phase(pipeline, job->seed, kept.phase.overrides));
  if (kept.from.step > 0 && !same_order(*job->timeline.phase(kept.from), *swap.phase))
    return error(Code::kFailedPrecondition, "the dataset has changed since it was prepared");
  MutexLock lock(mutex_);
  jobs_[kept.key] = job;
  limits_changed(*job);
  job->pending = Job::Pending{.from = kept.from, .phase = swap.phase, .planned = kept.planned};
  return swap;
}

Status Sessions::check_prepared(const std::vector<PlannedSwap>& swaps) const {
  MutexLock lock(mutex_);
  for (const PlannedSwap& swap : swaps) {
    for (const auto& [member, session] : swap.job->members) {
      if (session->consumer == nullptr) continue;
      SPDLD_TRY(session->consumer->prepared().with_context(
          "job '" + swap.job->key.job +
          "' goes on with what it has: the new version failed behind " + place_text(swap.from)));
    }
  }
  return {};
}

void Sessions::commit_swaps(const std::vector<PlannedSwap>& swaps) {
  MutexLock lock(mutex_);
  for (const PlannedSwap& swap : swaps) {
    Job& job = *swap.job;
    if (says_nothing_new(swap) || !runs(swap.job)) continue;
    if (swap.tuned && job.tuning != swap.phase) continue;
    if (swap.tuned) job.tuning.reset();
    if (swap.tuned || swap.known) {
      job.vars = swap.vars;
      const engine::Plan& plan = *swap.phase->pipeline->plan;
      swap.phase->run->tune(plan.fetch.concurrency, plan.process.concurrency);
      const PhasePtr before = job.timeline.last_phase();
      job.timeline.rename(before, swap.phase);
      for (const auto& [member, session] : job.members) {
        if (session->consumer != nullptr) session->consumer->rename(before, swap.phase);
      }
      if (job.members.empty() && swap.tuned) end_job(swap.job);
      continue;
    }
    if (!job.pending || job.pending->phase != swap.phase) continue;
    job.pending.reset();
    job.vars = swap.vars;
    job.timeline.swap(swap.from, swap.phase, swap.planned);
    job.forget_old_cuts();
    for (const auto& [member, session] : job.members) {
      if (session->consumer == nullptr) continue;
      session->consumer->commit_swap();
      SPDLD_FAILPOINT("session.swap.told");
    }
    spdlog::info("job '{}' runs version {} of pipeline '{}' from epoch {}, step {} on", job.key.job,
                 swap.phase->version(), job.key.pipeline, swap.from.epoch, swap.from.step);
    if (job.members.empty()) end_job(swap.job);
  }
}

void Sessions::abort_swap(const PlannedSwap& swap) {
  Job& job = *swap.job;
  if (swap.tuned && job.tuning == swap.phase) {
    job.tuning.reset();
    if (job.members.empty()) end_job(swap.job);
    return;
  }
  if (!job.pending || job.pending->phase != swap.phase) return;
  job.pending.reset();
  for (const auto& [member, session] : job.members) {
    if (session->consumer == nullptr) continue;
    if (Status back = session->consumer->abort_swap(); !back.ok()) session->connection->fail(back);
  }
  if (job.members.empty()) end_job(swap.job);
}

void Sessions::abort_swaps(const std::vector<PlannedSwap>& swaps) {
  MutexLock lock(mutex_);
  for (const PlannedSwap& swap : swaps) abort_swap(swap);
}

}  // namespace spdld::session
