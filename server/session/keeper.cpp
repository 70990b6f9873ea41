// SPDX-License-Identifier: Apache-2.0
#include "session/keeper.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/failpoint.h"
#include "base/log.h"
#include "session/about.h"
#include "session/job_records.h"
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

Keeper::Keeper(const SessionsDeps& deps, JobTable& table)
    : deps_(deps), table_(table), closed_unused_at_(deps.clock.now()), thread_("spdld-keep", 1) {}

void Keeper::tick(std::function<void()> first) {
  if (will_tick_.exchange(true)) return;  // the disk is slow: one waits already
  thread_.post([this, first = std::move(first)] {
    will_tick_ = false;
    first();
    keep();
    close_unused();
  });
}

void Keeper::keep_soon() {
  if (will_keep_.exchange(true)) return;
  thread_.post([this] {
    will_keep_ = false;
    keep();
  });
}

std::vector<std::string> Keeper::warnings() const {
  MutexLock lock(table_.mutex());
  if (failed_.ok()) return {};
  return {"where jobs are is not kept: " + failed_.message()};
}

void Keeper::brought(const pipeline::PipelineVersion& pipeline, uid_t by) {
  MutexLock lock(brought_mutex_);
  brought_.push_back({stored_pipeline(pipeline), stored_revision(pipeline, by, "from a loader")});
}

bool Keeper::is_brought(const std::string& pipeline) const {
  MutexLock lock(brought_mutex_);
  return std::any_of(brought_.begin(), brought_.end(),
                     [&](const auto& brought) { return brought.first.id == pipeline; });
}

Status Keeper::keep_brought(JobTable& table) {
  std::vector<std::pair<store::StoredPipeline, store::StoredRevision>> brought;
  {
    MutexLock lock(brought_mutex_);
    brought = brought_;
  }
  if (brought.empty()) return {};
  std::set<std::string> tried;
  std::set<std::string> failed;
  Status status;
  for (const auto& [pipeline, revision] : brought) {
    tried.insert(pipeline.id);
    // It was deleted, or applied anew, before it was written.
    const pipeline::PipelinePtr now = deps_.pipelines.find(pipeline.id);
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
    MutexLock lock(brought_mutex_);
    std::erase_if(brought_, [&](const auto& of) {
      return tried.contains(of.first.id) && !failed.contains(of.first.id);
    });
  }
  {
    MutexLock lock(table.mutex());
    // Also where the write failed: ranks do not stop for a broken disk.
    for (const auto& [key, job] : table.jobs()) {
      if (!job->is_private || !tried.contains(key.pipeline)) continue;
      for (const SessionPtr& session : job->attached()) readers.push_back(session->consumer);
    }
  }
  for (const auto& reader : readers) reader->grant(job::kNoTurn);
  return status;
}

Keeper::Unkept Keeper::unkept(std::uint64_t now) {
  MutexLock lock(table_.mutex());
  // Until they are on disk, a new run of such a job finds them here.
  Unkept due{.records = table_.ended().records(),
             .positions = table_.ended().positions(),
             .ended_jobs = table_.ended().records().size(),
             .ended_positions = table_.ended().positions().size(),
             .ended_users = {},
             .changed = {},
             .moved = {}};
  for (const store::StoredJob& ended : table_.ended().records())
    due.ended_users.insert(ended.key.uid);
  const auto clock = deps_.clock.now();
  const bool paces = clock - paced_at_ >= std::chrono::seconds(1);
  if (paces) paced_at_ = clock;
  for (const auto& [key, job] : table_.jobs()) {
    if (job->is_private) continue;
    if (!table_.awaits(*job) && job->membership.stop_expecting()) job->record.is_old = true;
    job->note_progress();
    if (job->outruns_record(paces)) job->record.is_old = true;
    const bool alive = !job->members.empty() && now > job->record.unix_ms + kMarkAliveMs;
    std::vector<engine::LoggedFailure> failures = job->failures.behind(job->record.last_failure);
    std::vector<std::uint64_t> replaced = job->failures.replaced_behind(job->record.replaced);
    if (std::exchange(job->record.is_old, false) || alive || !failures.empty()) {
      const std::uint64_t last_failure =
          failures.empty() ? job->record.last_failure : failures.back().number;
      due.records.push_back(stored_job(*job));
      due.records.back().failures = std::move(failures);
      due.records.back().replaced = std::move(replaced);
      job->record.unix_ms = now;
      Unkept::Changed& changed = due.changed.emplace_back();
      changed.job = job;
      changed.reserved = due.records.back().reserved;
      changed.last_failure = last_failure;
      changed.replaced = job->record.replaced + due.records.back().replaced.size();
      for (const SessionPtr& session : job->attached())
        changed.consumers.push_back(session->consumer);
      // The ledger on disk is of an earlier run.
      changed.new_run = std::exchange(job->record.may_be_of_other_run, false);
      if (changed.new_run) job->ledger.kept.reset();
    }
    if (job->gathering.began && clock - *job->gathering.began > kGather) job->gathering.over = true;
    if (job->members.empty() && !job->membership.anyone_left()) continue;
    store::StoredPosition position = stored_position(*job, job->acknowledged());
    if (!alive && job->ledger.kept && job->ledger.kept->cursor == position.cursor) continue;
    due.positions.push_back(std::move(position));
    due.moved.push_back({job, job->ledger.rewinds});
  }
  for (store::StoredJob& record : due.records) record.kept_unix_ms = now;
  for (store::StoredPosition& position : due.positions) position.kept_unix_ms = now;
  return due;
}

void Keeper::leave_out_unwritable(std::vector<store::StoredJob>& records) {
  std::erase_if(records, [this](const store::StoredJob& record) SPDLD_REQUIRES(table_.records()) {
    const auto text = job_text(record);
    if (text) return false;
    if (unwritable_.insert(record.key).second)
      log::warn(about(record.key),
                "job '{}' on pipeline '{}' cannot be kept, a restart will not know it: {}",
                record.key.job, record.key.pipeline, text.error().message());
    return true;
  });
}

Status Keeper::forget_ended_beyond_share(const Unkept& kept) {
  std::set<job::JobKey> running = {};
  {
    MutexLock lock(table_.mutex());
    running = table_.expected();
    for (const auto& [key, job] : table_.jobs()) running.insert(key);
  }
  for (const uid_t uid : kept.ended_users) {
    if (deps_.pipelines.trusted().contains(uid)) continue;
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

Status Keeper::forget_old(std::uint64_t now) {
  {
    MutexLock lock(table_.mutex());
    const auto clock = deps_.clock.now();
    if (forgot_at_.count() != 0 && clock - forgot_at_ <= kForgetEvery) return {};
    forgot_at_ = clock;
  }
  const auto retain_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(deps_.retain).count());
  SPDLD_TRY(deps_.store.forget_before(now - std::min(now, retain_ms)));
  return forget_listings();
}

void Keeper::close_unused() {
  {
    MutexLock lock(table_.mutex());
    const auto clock = deps_.clock.now();
    if (clock - closed_unused_at_ <= kCloseEvery) return;
    closed_unused_at_ = clock;
  }
  deps_.catalogue.close_unused();
}

// Asks the owners of a listing in the order in which it passes from one to the next (catalogue,
// ended jobs, store), so that a listing in use is seen at one of them even if it passes on
// meanwhile.
Status Keeper::forget_listings() {
  std::set<std::string> used = deps_.catalogue.listings_in_use();
  {
    MutexLock lock(table_.mutex());
    for (const store::StoredJob& ended : table_.ended().records()) {
      for (const auto& [version, phase] : ended.phases) used.insert(phase.request.dataset);
    }
  }
  SPDLD_ASSIGN(std::set<std::string> stored, deps_.store.datasets());
  used.merge(stored);
  return deps_.catalogue.collect_listings(used);
}

void Keeper::keep() {
  MutexLock writing(table_.records());
  const std::uint64_t now = unix_ms();
  Unkept due = unkept(now);
  SPDLD_FAILPOINT("session.keep");
  const Status brought = keep_brought(table_);
  Status written;
  if (!due.records.empty() || !due.positions.empty())
    written = deps_.store.put_jobs(due.records, due.positions);
  if (written.code() == Code::kInvalidArgument) {
    leave_out_unwritable(due.records);
    written = deps_.store.put_jobs(due.records, due.positions);
  }
  // Also where the write failed: ranks do not stop for a broken disk.
  for (const Unkept::Changed& changed : due.changed) {
    for (const auto& consumer : changed.consumers) consumer->grant(changed.reserved);
  }
  if (written.ok()) written = forget_ended_beyond_share(due);
  if (written.ok()) written = forget_old(now);

  MutexLock lock(table_.mutex());
  const bool failed_before = !failed_.ok();
  failed_ = written.ok() ? brought : written;
  if (!brought.ok() && !failed_before)
    spdlog::warn("{}; a restart will not know it; tried again each second", brought.message());
  if (written.ok()) {
    for (std::size_t i = 0; i < due.moved.size(); ++i) {
      Job& job = *due.moved[i].job;
      if (job.ledger.rewinds != due.moved[i].rewinds) continue;  // it is elsewhere since
      job.ledger.keep(due.positions[due.ended_positions + i]);
    }
    for (const Unkept::Changed& changed : due.changed) {
      changed.job->membership.kept(changed.reserved);
      changed.job->record.last_failure = changed.last_failure;
      changed.job->record.replaced = changed.replaced;
    }
    table_.ended().drop_first(due.ended_jobs, due.ended_positions);
    return;
  }
  table_.ended().limit();
  if (!failed_before)
    spdlog::error(
        "{}; a restart of the daemon will know where jobs were before that, and "
        "consumers go on by their own cursors",
        written.message());
  for (const Unkept::Changed& changed : due.changed) {
    changed.job->record.is_old = true;
    changed.job->record.may_be_of_other_run =
        changed.job->record.may_be_of_other_run || changed.new_run;
  }
}

}  // namespace spdld::session
