// SPDX-License-Identifier: Apache-2.0
// When jobs are written to the disk, and what is forgotten there.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/failpoint.h"
#include "base/log.h"
#include "session/about.h"
#include "session/records.h"
#include "session/sessions.h"
#include "store/stored_json.h"

namespace spdld::session {
namespace {

// How often the record of a job that does not change is marked as alive.
constexpr std::uint64_t kMarkAliveMs = 30'000;
constexpr std::chrono::hours kForgetEvery{1};
// A pipeline that nobody uses is closed the second time that this has passed.
constexpr std::chrono::minutes kCloseEvery{5};
// All ranks that a node has attach within it.
constexpr std::chrono::seconds kGather{60};

}  // namespace

void Sessions::forget_ended(const job::JobKey& key) {
  const auto same = [&](const auto& ended) { return ended.key == key; };
  std::erase_if(ended_jobs_, same);
  std::erase_if(ended_positions_, same);
}

Sessions::Change Sessions::begin_change(const JobPtr& job) {
  job->being_written = true;
  return {.job = job, .next = job->state};
}

void Sessions::Change::apply_to(job::Membership& members) const {
  if (begins) members.raise(*begins);
  if (goes_to) members.go_to(goes_to->at, goes_to->position);
}

Status Sessions::write(const Change& change) {
  const Job& job = *change.job;
  if (job.is_private) return {};
  std::vector<store::StoredJob> records;
  std::vector<store::StoredPosition> positions;
  {
    MutexLock lock(mutex_);
    // How it ended before is told for as long as it is kept.
    std::copy_if(ended_jobs_.begin(), ended_jobs_.end(), std::back_inserter(records),
                 [&](const store::StoredJob& ended) { return ended.key == job.key; });
    job::Membership members = job.membership;
    change.apply_to(members);
    records.push_back(job.stored(change.next, members));
    change.job->record_is_old = false;  // unless somebody comes or leaves meanwhile
    if (change.goes_to) positions.push_back(job.stored_position(*change.goes_to));
  }
  const std::uint64_t now = unix_ms();
  for (store::StoredJob& record : records) record.kept_unix_ms = now;
  for (store::StoredPosition& position : positions) position.kept_unix_ms = now;
  const Status written = deps_.store.put_jobs(records, positions);
  MutexLock lock(mutex_);
  if (!written.ok()) {
    change.job->record_is_old = true;
    return written;
  }
  std::erase_if(ended_jobs_, [&](const store::StoredJob& ended) { return ended.key == job.key; });
  if (change.goes_to) forget_ended(job.key);
  change.job->membership.kept(records.back().members);
  change.job->recorded_unix_ms = now;
  return {};
}

void Sessions::end_write(Job& job) {
  job.being_written = false;
  written_.notify_all();
  attach_again_waiting(job);
}

void Sessions::end_change(Change& change, const Status& written) {
  Job& job = *change.job;
  end_write(job);
  if (written.ok()) {
    job.state = std::move(change.next);
    change.apply_to(job.membership);
  }
  if (job.members.empty()) end_job(change.job);
}

void Sessions::await_written(const job::JobKey& key) {
  for (auto job = jobs_.find(key); job != jobs_.end() && job->second->being_written;
       job = jobs_.find(key))
    written_.wait(mutex_);
}

Status Sessions::keep_brought() {
  std::vector<std::pair<store::StoredPipeline, store::StoredRevision>> brought;
  {
    MutexLock lock(mutex_);
    brought = brought_;
  }
  if (brought.empty()) return {};
  std::set<std::string> tried;
  std::set<std::string> failed;
  Status status;
  for (const auto& [pipeline, revision] : brought) {
    tried.insert(pipeline.id);
    // It was deleted, or applied anew, before it was written.
    const pipeline::PipelinePtr now = deps_.catalogue.find(pipeline.id);
    if (now == nullptr || now->version != pipeline.version) continue;
    Status kept = deps_.store.put_pipeline(pipeline, revision);
    if (kept.ok()) continue;
    if (kept.code() == Code::kInvalidArgument) {
      spdlog::warn("{}; a restart will not know pipeline '{}'", kept.message(), pipeline.id);
      continue;
    }
    failed.insert(pipeline.id);
    status = kept.with_context("pipeline '" + pipeline.id + "'");
  }
  std::vector<std::shared_ptr<Consumer>> readers;
  {
    MutexLock lock(mutex_);
    std::erase_if(brought_, [&](const auto& of) {
      return tried.contains(of.first.id) && !failed.contains(of.first.id);
    });
    // Also where the write failed: ranks do not stop for a broken disk.
    for (const auto& [key, job] : jobs_) {
      if (!job->is_private || !tried.contains(key.pipeline)) continue;
      for (const auto& [member, session] : job->members) {
        if (session->consumer != nullptr) readers.push_back(session->consumer);
      }
    }
  }
  for (const auto& reader : readers) reader->grant_all();
  return status;
}

Sessions::Unkept Sessions::unkept(std::uint64_t now) {
  MutexLock lock(mutex_);
  // Until they are on disk, a new run of such a job finds them here.
  Unkept due{.records = ended_jobs_,
             .positions = ended_positions_,
             .ended_jobs = ended_jobs_.size(),
             .ended_positions = ended_positions_.size(),
             .ended_users = {},
             .changed = {},
             .moved = {}};
  for (const store::StoredJob& ended : ended_jobs_) due.ended_users.insert(ended.key.uid);
  const auto clock = deps_.clock.now();
  const bool paces = clock - paced_at_ >= std::chrono::seconds(1);
  if (paces) paced_at_ = clock;
  for (const auto& [key, job] : jobs_) {
    if (job->is_private) continue;
    if (!awaits(*job) && job->membership.stop_expecting()) job->record_is_old = true;
    if (job->settle_moves()) job->record_is_old = true;
    job->note_progress();
    if (job->outruns_record(paces)) job->record_is_old = true;
    const bool alive = !job->members.empty() && now > job->recorded_unix_ms + kMarkAliveMs;
    std::vector<engine::LoggedFailure> failures = job->failures.behind(job->failures_kept);
    std::vector<std::uint64_t> replaced = job->failures.replaced_behind(job->replaced_kept);
    if (std::exchange(job->record_is_old, false) || alive || !failures.empty()) {
      const std::uint64_t last_failure =
          failures.empty() ? job->failures_kept : failures.back().number;
      due.records.push_back(job->stored());
      due.records.back().failures = std::move(failures);
      due.records.back().replaced = std::move(replaced);
      job->recorded_unix_ms = now;
      Unkept::Changed& changed = due.changed.emplace_back();
      changed.job = job;
      changed.members = due.records.back().members;
      changed.last_failure = last_failure;
      changed.replaced = job->replaced_kept + due.records.back().replaced.size();
      for (const auto& [member, session] : job->members) {
        if (session->consumer == nullptr) continue;
        const job::Sent& sent = job->membership.find(member)->sent;
        changed.grants.push_back({.consumer = session->consumer,
                                  .turn = sent.turn,
                                  .sent = sent.batches,
                                  .ahead = job->membership.lead()});
      }
      // What its ledger says is of an earlier run.
      changed.new_run = std::exchange(job->new_run, false);
      if (changed.new_run) job->kept.reset();
    }
    if (job->began && clock - *job->began > kGather) job->gathered = true;
    if (job->members.empty() && !job->membership.anyone_left()) continue;
    store::StoredPosition position = job->stored_position(job->acknowledged());
    if (!alive && job->kept && job->kept->at == position.at &&
        job->kept->position == position.position)
      continue;
    due.positions.push_back(std::move(position));
    due.moved.push_back({job, job->rewinds});
  }
  for (store::StoredJob& record : due.records) record.kept_unix_ms = now;
  for (store::StoredPosition& position : due.positions) position.kept_unix_ms = now;
  return due;
}

void Sessions::leave_out_unwritable(std::vector<store::StoredJob>& records) {
  std::erase_if(records, [this](const store::StoredJob& record) SPDLD_REQUIRES(records_) {
    const auto text = job_text(record);
    if (text) return false;
    if (unwritable_.insert(record.key).second)
      log::warn(about(record.key),
                "job '{}' on pipeline '{}' cannot be kept, a restart will not know it: {}",
                record.key.job, record.key.pipeline, text.error().message());
    return true;
  });
}

Status Sessions::forget_ended_beyond_share(const Unkept& kept) {
  std::set<job::JobKey> running = {};
  {
    MutexLock lock(mutex_);
    running = expected_;
    for (const auto& [key, job] : jobs_) running.insert(key);
  }
  for (const uid_t uid : kept.ended_users) {
    if (deps_.catalogue.trusted().contains(uid)) continue;
    SPDLD_ASSIGN(const std::size_t forgotten,
                 deps_.store.forget_ended(uid, deps_.jobs_per_user, running));
    if (forgotten > 0)
      spdlog::debug(
          "user {} has had more jobs than limits.jobs allows: {} that ended first are "
          "forgotten",
          uid, forgotten);
  }
  return {};
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
  SPDLD_TRY(deps_.store.forget_before(now - std::min(now, retain_ms)));
  return forget_listings();
}

void Sessions::close_unused() {
  {
    MutexLock lock(mutex_);
    const auto clock = deps_.clock.now();
    if (clock - closed_unused_at_ <= kCloseEvery) return;
    closed_unused_at_ = clock;
  }
  deps_.catalogue.close_unused();
}

// In the order in which a listing goes from hand to hand: whatever is done meanwhile, it is seen in
// one of them.
Status Sessions::forget_listings() {
  std::set<std::string> used = deps_.catalogue.listings_in_use();
  {
    MutexLock lock(mutex_);
    for (const store::StoredJob& ended : ended_jobs_) {
      for (const store::StoredPhase& phase : ended.phases) used.insert(phase.request.dataset);
    }
  }
  SPDLD_ASSIGN(std::set<std::string> stored, deps_.store.datasets());
  used.merge(stored);
  return deps_.catalogue.collect_listings(used);
}

// What has changed since the last time, in one go; without holding anybody up meanwhile.
void Sessions::keep() {
  MutexLock writing(records_);
  const std::uint64_t now = unix_ms();
  Unkept due = unkept(now);
  SPDLD_FAILPOINT("session.keep");
  const Status brought = keep_brought();
  Status written;
  if (!due.records.empty() || !due.positions.empty())
    written = deps_.store.put_jobs(due.records, due.positions);
  if (written.code() == Code::kInvalidArgument) {
    leave_out_unwritable(due.records);
    written = deps_.store.put_jobs(due.records, due.positions);
  }
  // Also where the write failed: ranks do not stop for a broken disk.
  for (const Unkept::Changed& changed : due.changed) {
    for (const auto& [consumer, turn, sent, ahead] : changed.grants)
      consumer->grant(turn, sent, ahead);
  }
  if (written.ok()) written = forget_ended_beyond_share(due);
  if (written.ok()) written = forget_old(now);

  MutexLock lock(mutex_);
  const bool failed_before = !keep_failed_.ok();
  keep_failed_ = written.ok() ? brought : written;
  if (!brought.ok() && !failed_before)
    spdlog::warn("{}; a restart will not know it; tried again each second", brought.message());
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
    for (const Unkept::Changed& changed : due.changed) {
      changed.job->membership.kept(changed.members);
      changed.job->failures_kept = changed.last_failure;
      changed.job->replaced_kept = changed.replaced;
    }
    drop_first(ended_jobs_, std::min(due.ended_jobs, ended_jobs_.size()));
    drop_first(ended_positions_, std::min(due.ended_positions, ended_positions_.size()));
    return;
  }
  const auto drop_all_but = [&](auto& ended, std::size_t most) {
    drop_first(ended, std::max(ended.size(), most) - most);
  };
  drop_all_but(ended_jobs_, store::Store::kMostEnded);
  drop_all_but(ended_positions_, store::Store::kMostEnded);
  if (!failed_before)
    spdlog::error(
        "{}; a restart of the daemon will know where jobs were before that, and "
        "consumers go on by their own cursors",
        written.message());
  for (const Unkept::Changed& changed : due.changed) {
    changed.job->record_is_old = true;
    changed.job->new_run = changed.job->new_run || changed.new_run;
  }
}

}  // namespace spdld::session
