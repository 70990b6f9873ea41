// SPDX-License-Identifier: Apache-2.0
// When jobs are written to the disk, and what is forgotten there.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/failpoint.h"
#include "base/log.h"
#include "session/records.h"
#include "session/sessions.h"
#include "session/stored_json.h"

namespace spdld::session {
namespace {

// How often the record of a job that does not change is marked as alive.
constexpr std::uint64_t kMarkAliveMs = 30'000;
constexpr std::chrono::hours kForgetEvery{1};
// All ranks that a node has attach within it.
constexpr std::chrono::seconds kGather{60};
constexpr std::size_t kMostEnded = 1000;

}  // namespace

void Sessions::keep_new_run(const SessionPtr& session) {
  JobPtr job;
  {
    MutexLock lock(mutex_);
    job = session->job;
    if (!job->new_run) return;
  }
  MutexLock writing(records_);
  StoredJob record;
  StoredPosition position;
  {
    MutexLock lock(mutex_);
    if (!job->new_run || session->closed || !runs(job)) return;
    forget_ended(job->key);  // it is older
    job->kept.reset();
    job->record_is_old = false;
    record = job->stored();
    position = job->stored_position(job->acknowledged());
  }
  record.kept_unix_ms = position.kept_unix_ms = unix_ms();
  const Status kept = deps_.store.put_jobs({record}, {position});
  MutexLock lock(mutex_);
  job->new_run = false;
  if (kept.ok()) {
    job->recorded_unix_ms = record.kept_unix_ms;
  } else {
    job->record_is_old = true;  // keep() tries again, and says why
  }
}

Status Sessions::forget_run(const JobKey& key) {
  MutexLock writing(records_);
  SPDLD_TRY(deps_.store.remove_position(key));
  MutexLock lock(mutex_);
  forget_ended(key);
  if (const auto job = jobs_.find(key); job != jobs_.end()) job->second->kept.reset();
  return {};
}

void Sessions::forget_ended(const JobKey& key) {
  const auto same = [&](const auto& ended) { return ended.key == key; };
  std::erase_if(ended_jobs_, same);
  std::erase_if(ended_positions_, same);
}

Status Sessions::keep_now(Job& job, std::optional<Job::Acknowledged> at) {
  if (job.is_private) return {};
  StoredJob stored = job.stored();
  stored.kept_unix_ms = unix_ms();
  std::vector<StoredPosition> positions;
  if (at) {
    positions.push_back(job.stored_position(*at));
    positions.back().kept_unix_ms = stored.kept_unix_ms;
  }
  SPDLD_TRY(deps_.store.put_jobs({stored}, positions));
  std::erase_if(ended_jobs_, [&](const StoredJob& ended) { return ended.key == job.key; });
  if (at) forget_ended(job.key);
  job.record_is_old = false;
  job.recorded_unix_ms = stored.kept_unix_ms;
  return {};
}

Sessions::Unkept Sessions::unkept(std::uint64_t now) {
  MutexLock lock(mutex_);
  // Until they are on disk, a new run of such a job finds them here.
  Unkept due{.records = ended_jobs_,
             .positions = ended_positions_,
             .ended_jobs = ended_jobs_.size(),
             .ended_positions = ended_positions_.size(),
             .changed = {},
             .moved = {}};
  const auto clock = deps_.clock.now();
  for (const auto& [key, job] : jobs_) {
    if (job->is_private) continue;
    if (!awaits(*job) && !std::exchange(job->awaited, {}).empty()) job->record_is_old = true;
    if (job->settle_moves()) job->record_is_old = true;
    const bool alive = !job->members.empty() && now > job->recorded_unix_ms + kMarkAliveMs;
    if (std::exchange(job->record_is_old, false) || alive) {
      due.records.push_back(job->stored());
      job->recorded_unix_ms = now;
      due.changed.push_back(job);
    }
    if (job->began && clock - *job->began > kGather) job->gathered = true;
    if (job->members.empty() && job->left.empty()) continue;
    StoredPosition position = job->stored_position(job->acknowledged());
    if (!alive && job->kept && job->kept->at == position.at &&
        job->kept->position == position.position)
      continue;
    due.positions.push_back(std::move(position));
    due.moved.push_back({job, job->rewinds});
  }
  for (StoredJob& record : due.records) record.kept_unix_ms = now;
  for (StoredPosition& position : due.positions) position.kept_unix_ms = now;
  return due;
}

void Sessions::leave_out_unwritable(std::vector<StoredJob>& records) {
  std::erase_if(records, [this](const StoredJob& record) SPDLD_REQUIRES(records_) {
    const auto text = job_text(record);
    if (text) return false;
    if (unwritable_.insert(record.key).second)
      spdlog::warn("job '{}' on pipeline '{}' cannot be kept, a restart will not know it: {}",
                   record.key.job, record.key.pipeline, text.error().message());
    return true;
  });
}

Status Sessions::forget_old(std::uint64_t now) {
  {
    MutexLock lock(mutex_);
    const auto clock = deps_.clock.now();
    if (forgot_at_.count() != 0 && clock - forgot_at_ <= kForgetEvery) return {};
    forgot_at_ = clock;
  }
  const auto retain_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(deps_.retain).count());
  return deps_.store.forget_before(now - std::min(now, retain_ms));
}

// What has changed since the last time, in one go; without holding anybody up meanwhile.
void Sessions::keep() {
  MutexLock writing(records_);
  const std::uint64_t now = unix_ms();
  Unkept due = unkept(now);
  SPDLD_FAILPOINT("session.keep");
  Status written;
  if (!due.records.empty() || !due.positions.empty())
    written = deps_.store.put_jobs(due.records, due.positions);
  if (written.code() == Code::kInvalidArgument) {
    leave_out_unwritable(due.records);
    written = deps_.store.put_jobs(due.records, due.positions);
  }
  if (written.ok()) written = forget_old(now);

  MutexLock lock(mutex_);
  const bool failed_before = !keep_failed_.ok();
  keep_failed_ = written;
  const auto drop_first = [](auto& ended, std::size_t count) {
    ended.erase(ended.begin(), ended.begin() + static_cast<std::ptrdiff_t>(count));
  };
  if (written.ok()) {
    for (std::size_t i = 0; i < due.moved.size(); ++i) {
      Job& job = *due.moved[i].job;
      if (job.rewinds != due.moved[i].rewinds) continue;  // it is elsewhere since
      job.kept = due.positions[due.ended_positions + i];
      job.ledger.at = job.kept->at;
      job.ledger.position = job.kept->position;
      job.ledger.kept_unix_ms = now;
    }
    drop_first(ended_jobs_, std::min(due.ended_jobs, ended_jobs_.size()));
    drop_first(ended_positions_, std::min(due.ended_positions, ended_positions_.size()));
    return;
  }
  drop_first(ended_jobs_, std::max(ended_jobs_.size(), kMostEnded) - kMostEnded);
  drop_first(ended_positions_, std::max(ended_positions_.size(), kMostEnded) - kMostEnded);
  if (!failed_before)
    spdlog::error(
        "{}; a restart of the daemon will know where jobs were before that, and "
        "consumers go on by their own cursors",
        written.message());
  for (const JobPtr& job : due.changed) job->record_is_old = true;
}

}  // namespace spdld::session
