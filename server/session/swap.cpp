// SPDX-License-Identifier: Apache-2.0
// Hot swap: what a running job runs from one of its steps on. Planned without a lock, prepared on
// all shards at once, then committed or aborted.
#include <algorithm>
#include <utility>

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

// A training loop that was written for one is not surprised by the other.
Status check_schema(const Phase& now, const Phase& next, const std::string& job) {
  const auto& has = now.pipeline->plan->tensors;
  const auto& gets = next.pipeline->plan->tensors;
  const std::string way_out =
      "; if the training loop can take it, allow it (--allow-schema-change)";
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

// Where a trial is made of what begins there.
StepAt trial_step(const SwapAt& at, StepAt here, const Timeline& timeline) {
  StepAt trial = here;
  if (at.kind == SwapAt::Kind::kNextEpoch) trial = {here.epoch + 1, 0};
  if (at.kind == SwapAt::Kind::kStep) trial = at.step;
  return {trial.epoch, std::min(trial.step, timeline.end_step(trial.epoch) - 1)};
}

}  // namespace

Result<PlannedSwap> Sessions::plan_swap(const JobPtr& job, const PipelinePtr& pipeline,
                                        const std::map<std::string, std::string>& more_vars,
                                        const SwapRequest& request,
                                        const Catalogue::Progress& progress) {
  std::map<std::string, std::string> vars = more_vars;
  std::optional<std::uint64_t> batch_size;
  PhasePtr last;
  std::uint32_t num_shards = 1;
  StepAt here;
  {
    MutexLock lock(mutex_);
    vars.insert(job->vars.begin(), job->vars.end());
    batch_size = job->batch_size;
    last = job->timeline.last_phase();
    num_shards = job->timeline.num_shards();
    here = job->here();
  }
  auto variant = deps_.catalogue.variant(pipeline, vars, batch_size, progress);
  if (!variant)
    return tl::unexpected<Status>(variant.error().with_context("job '" + job->key.job + "'"));
  PlannedSwap swap{.job = job,
                   .phase = nullptr,
                   .vars = vars,
                   .allow_schema_change = request.allow_schema_change,
                   .base = last};
  if ((*variant)->content_digest == last->pipeline->content_digest) {
    swap.known = true;
    swap.phase = last;
    return swap;
  }
  if ((*variant)->work_digest == last->content) {
    // The same work: the run goes on as it is, and by another name.
    auto renamed = std::make_shared<Phase>(*last);
    renamed->pipeline = *variant;
    swap.phase = renamed;
    swap.tuned = true;
    return swap;
  }
  SPDLD_ASSIGN(swap.phase, make_phase(*variant, job->seed));
  const Timeline timeline(swap.phase, num_shards);
  if (timeline.steps_per_epoch({}) == 0)
    return error(Code::kFailedPrecondition,
                 "job '" + job->key.job + "': " + std::to_string(swap.phase->items) +
                     " items make no step of " + std::to_string(num_shards) +
                     " shards with batches of " + std::to_string(swap.phase->batch));
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
      for (const auto& [key, job] : jobs_) {
        if (key.pipeline == pipeline->name() && visible(caller, *job)) jobs.push_back(job);
      }
    }
  }
  std::vector<PlannedSwap> swaps;
  for (const JobPtr& job : jobs) {
    SPDLD_ASSIGN(PlannedSwap swap, plan_swap(job, pipeline, {}, request, progress));
    swaps.push_back(std::move(swap));
  }
  return swaps;
}

// What other nodes have begun is not known here.
Status Sessions::check_feeds_all(const Job& job) {
  if (job.members.empty()) return {};
  for (std::uint32_t shard = 0; shard < job.timeline.num_shards(); ++shard) {
    const Member first{.shard = shard, .replica = 0};
    const auto member = job.members.lower_bound(first);
    const auto was = job.left.lower_bound(first);
    if ((member != job.members.end() && member->first.shard == shard) ||
        (was != job.left.end() && was->first.shard == shard))
      continue;
    return Status(Code::kFailedPrecondition,
                  "job '" + job.key.job + "': shard " + std::to_string(shard) +
                      " is not read from this daemon; if another node feeds it, name a step that "
                      "all of them can change at (--at step:EPOCH/N), and their daemons "
                      "(--address A,B)");
  }
  return {};
}

Result<StepAt> Sessions::asked_step(const Job& job, const SwapAt& at, StepAt frontier) {
  if (at.kind == SwapAt::Kind::kNow) return frontier;
  if (at.kind == SwapAt::Kind::kNextEpoch)
    return frontier.step == 0 ? frontier : StepAt{frontier.epoch + 1, 0};
  SPDLD_TRY(job.timeline.check(at.step, 0));
  const std::uint64_t end = job.timeline.end_step(at.step.epoch);
  if (at.step.step > end)
    return error(Code::kOutOfRange, "job '" + job.key.job + "': epoch " +
                                        std::to_string(at.step.epoch) + " has " +
                                        std::to_string(end) + " steps; there is no step " +
                                        std::to_string(at.step.step));
  return job.timeline.settled(at.step);
}

Status Sessions::check_swap(const PlannedSwap& swap, StepAt from, StepAt frontier) {
  const Job& job = *swap.job;
  const std::string name = "job '" + job.key.job + "'";
  const Phase& before = *job.timeline.phase(from);
  if (from < frontier)
    return Status(Code::kOutOfRange, name + " has passed " + place_text(from) +
                                         ": the first step that can still change is " +
                                         place_text(frontier));
  if (from.step > 0 && !same_order(before, *swap.phase))
    return Status(Code::kFailedPrecondition,
                  name +
                      ": another dataset, shuffle or seed gives another order, and that can "
                      "change at an epoch's start only: apply it with --at next-epoch, or --at "
                      "step:EPOCH/0");
  if (job.max_epochs > 0 && from.epoch >= job.max_epochs)
    return Status(Code::kOutOfRange, name + " ends with epoch " +
                                         std::to_string(job.max_epochs - 1) + ", before " +
                                         place_text(from));
  return swap.allow_schema_change ? Status() : check_schema(before, *swap.phase, job.key.job);
}

// Decides where it is to be. Afterwards it may be known, and then nothing is to be done.
Status Sessions::place_swap(PlannedSwap& swap, const SwapAt& at, StepAt frontier) {
  const Job& job = *swap.job;
  SPDLD_ASSIGN(const StepAt asked, asked_step(job, at, frontier));
  swap.from = asked;
  if (swap.known) {
    const StepAt since = last_change(job.timeline);
    if (asked == since || (asked > since && at.kind != SwapAt::Kind::kStep)) {
      swap.from = since;
      return {};
    }
    if (asked > since)
      return Status(Code::kFailedPrecondition,
                    "job '" + job.key.job + "' " +
                        (since < frontier ? "has run this" : "changes to this already") + " from " +
                        place_text(since) + " on, and not from " + place_text(asked) +
                        ": name that place, or roll it back there first");
    swap.known = false;  // it comes earlier than it was to come
  }
  if (at.kind != SwapAt::Kind::kStep) SPDLD_TRY(check_feeds_all(job));
  return check_swap(swap, swap.from, frontier);
}

Status Sessions::prepare_swap(PlannedSwap& swap, const SwapAt& at) {
  Job& job = *swap.job;
  const auto jumps = [](const auto& member) {
    return member.second->consumer != nullptr && member.second->consumer->jumps();
  };
  if (job.pending || std::any_of(job.members.begin(), job.members.end(), jumps))
    return check_settled(job);
  if (swap.base != job.timeline.last_phase())
    return Status(Code::kAborted, "job '" + job.key.job +
                                      "' was changed by somebody else while this was planned: try "
                                      "again");
  if (swap.tuned) {
    swap.from = job.here();
    return {};
  }
  if (!swap.known) SPDLD_TRY(check_settled(job));
  const StepAt frontier = hold(job);
  Status ready = place_swap(swap, at, frontier);
  if (ready.ok() && !swap.known) {
    job.pending = Job::Pending{.from = swap.from, .phase = swap.phase};
    for (const auto& [member, session] : job.members) {
      if (session->consumer == nullptr || !ready.ok()) continue;
      ready = session->consumer->prepare_swap(swap.from, swap.phase);
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
    if (swap.known || swap.job->is_private || !runs(swap.job)) continue;
    Job& job = *swap.job;
    const Timeline before = job.timeline;
    const auto vars_before = std::exchange(job.vars, swap.vars);
    if (swap.tuned) {
      job.timeline.rename(job.timeline.last_phase(), swap.phase);
    } else {
      job.timeline.swap(swap.from, swap.phase);
    }
    StoredJob& record = records.emplace_back(job.stored());
    record.kept_unix_ms = unix_ms();
    if (job.members.empty() && !job.awaited.empty()) {
      record.ended = false;
      record.live_shards.assign(job.awaited.begin(), job.awaited.end());
    }
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
                      .tuned = swap.tuned});
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
                   .from = kept.from};
  if (kept.known) return swap;
  SPDLD_ASSIGN(const PipelinePtr pipeline,
               deps_.catalogue.rebuild(kept.phase.owner, kept.phase.request, kept.phase.version,
                                       kept.phase.batch_size, nullptr));
  if (kept.tuned) {
    auto renamed = std::make_shared<Phase>(*swap.phase);
    renamed->pipeline = pipeline;
    swap.phase = renamed;
    return swap;
  }
  SPDLD_ASSIGN(swap.phase, make_phase(pipeline, job->seed));
  if (kept.from.step > 0 && !same_order(*job->timeline.phase(kept.from), *swap.phase))
    return error(Code::kFailedPrecondition, "the dataset has changed since it was prepared");
  MutexLock lock(mutex_);
  jobs_[kept.key] = job;
  job->pending = Job::Pending{.from = kept.from, .phase = swap.phase};
  return swap;
}

void Sessions::commit_swaps(const std::vector<PlannedSwap>& swaps) {
  MutexLock lock(mutex_);
  for (const PlannedSwap& swap : swaps) {
    Job& job = *swap.job;
    if (swap.known || !runs(swap.job)) continue;
    if (swap.tuned) {
      job.vars = swap.vars;
      const engine::Plan& plan = *swap.phase->pipeline->plan;
      swap.phase->run->tune(plan.fetch.concurrency, plan.process.concurrency);
      const PhasePtr before = job.timeline.last_phase();
      job.timeline.rename(before, swap.phase);
      for (const auto& [member, session] : job.members) {
        if (session->consumer != nullptr) session->consumer->rename(before, swap.phase);
      }
      continue;
    }
    if (!job.pending || job.pending->phase != swap.phase) continue;
    job.pending.reset();
    job.vars = swap.vars;
    job.timeline.swap(swap.from, swap.phase);
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
