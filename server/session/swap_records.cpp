// SPDX-License-Identifier: Apache-2.0
// Swaps as they are on disk: prepared ones, and jobs before and after.
#include <utility>

#include "session/records.h"
#include "session/sessions.h"

namespace spdld::session {

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
  SPDLD_ASSIGN(
      const PipelinePtr pipeline,
      deps_.catalogue.rebuild(owner_of(kept.key.pipeline, kept.phase.owner), kept.phase.request,
                              kept.phase.version, kept.phase.batch_size,
                              job->timeline.last_phase()->reader(), nullptr));
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
  if (kept.from.step > 0 && !job->timeline.phase(kept.from)->same_order(*swap.phase))
    return error(Code::kFailedPrecondition, "the dataset has changed since it was prepared");
  MutexLock lock(mutex_);
  jobs_[kept.key] = job;
  limits_changed(*job);
  job->pending = Job::Pending{.from = kept.from, .phase = swap.phase, .planned = kept.planned};
  return swap;
}

}  // namespace spdld::session
