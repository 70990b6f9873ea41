// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/lock_file.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/failure_log.h"
#include "job/job_key.h"
#include "job/job_view.h"
#include "job/member.h"
#include "job/membership.h"
#include "job/request.h"
#include "job/schedule.h"
#include "job/step_at.h"

namespace spdld::store {

class Database;

// A pipeline as it was submitted: enough to build it again.
struct StoredPipeline {
  std::string id;  // job/pipeline_id.h
  std::uint32_t version = 0;
  uid_t owner = 0;
  job::ApplyRequest request = {};
};

// An entry of a pipeline's history.
struct StoredRevision {
  std::uint32_t version = 0;
  std::uint64_t applied_unix_ms = 0;
  uid_t applied_by = 0;
  std::string content_digest = {};
  std::string note = {};
  job::ApplyRequest request = {};
};

// A version that a job runs: complete, so that it outlives the pipeline's name.
struct StoredPhase {
  std::uint32_t version = 0;
  uid_t owner = 0;  // of the pipeline
  job::ApplyRequest request = {};
  std::optional<std::uint64_t> batch_size;  // other than the text's
  std::set<std::string> overrides = {};     // variables that are not the job's own
  Credentials reader = {};                  // the rights that it was read with
};

// The report of a job that has ended.
struct StoredEnd {
  job::EndView end = {};
  job::JobView view = {};
  std::vector<job::StageView> stages = {};
};

// A job: its declaration or first attachment, and its changes since.
struct StoredJob {
  job::JobKey key = {};
  bool declared = false;
  bool ended = false;  // nobody was attached when it was kept last, and nobody had declared it
  std::uint32_t incarnation = 0;
  std::uint64_t seed = 0;
  std::uint32_t replicas = 1;
  job::EpochMode epochs = job::EpochMode::kAuto;
  std::uint64_t open_epochs = 0;
  std::uint64_t max_epochs = 0;
  job::JobLimits limits;
  job::JobLimits first_limits;  // as it was created
  std::map<std::string, std::string> vars;
  std::map<std::string, std::string> first_vars;
  std::optional<std::uint64_t> batch_size;
  job::StepAt start;
  std::map<std::uint32_t, StoredPhase> phases;  // by version of the schedule
  job::ScheduleRecord schedule = {};
  std::vector<job::MemberRecord> members = {};
  job::Turn reserved = 0;                       // no member was sent a turn from here on
  job::Turn reached = 0;                        // nor any other of the run beyond this or that
  std::vector<job::Member> done = {};           // replicas that have said good-bye
  std::optional<StoredEnd> end = std::nullopt;  // if it has ended
  // To be added to those that are kept already; reading a job brings none of them.
  std::vector<engine::LoggedFailure> failures = {};
  std::vector<std::uint64_t> replaced = {};  // items, which count against its budget for good
  std::uint64_t kept_unix_ms = 0;
};

// Up to where a job was acknowledged.
struct StoredPosition {
  job::JobKey key = {};
  job::Cursor cursor = {};
  std::uint64_t kept_unix_ms = 0;
};

// No new jobs are taken.
struct StoredDrain {
  std::uint64_t since_unix_ms = 0;
  uid_t by = 0;
};

// The records that outlive the daemon: one SQLite file in state_dir. Owned by the daemon. Each call
// is one transaction, on disk when it returns. Thread-safe; calls wait for each other.
//
// States, decided when it is opened: on disk; read-only (records are known, every change fails); in
// memory (no file can be read: it is left alone, and the records here end with the daemon). All but
// the first are told by warnings().
class Store {
 public:
  static constexpr int kMaxRevisions = 100;

  // Makes state_dir if it is not there. Fails only where another daemon has the directory, another
  // program has the file open, or another build has written it.
  static Result<std::unique_ptr<Store>> open(const std::string& state_dir);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // The trouble at its opening and the cure, for operators.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Another daemon may have the directory from now on. Safe in a signal handler.
  void release_lock() const noexcept {
    if (lock_) lock_->release();
  }

  // Pipelines, and the files that they were applied from.
  // A version of a pipeline, its place in the history, and the jobs that change to it: all or none.
  Status put_pipeline(const StoredPipeline& pipeline, const StoredRevision& revision,
                      const std::vector<StoredJob>& jobs = {});
  // The versions behind `before`, which is current again, and the jobs that were to change to them:
  // all or none.
  Status take_back(const StoredPipeline& before, const std::vector<StoredJob>& jobs);
  // With its history.
  Status remove_pipeline(const std::string& id);
  Result<std::vector<StoredPipeline>> pipelines();
  // Oldest first; the last kMaxRevisions.
  Result<std::vector<StoredRevision>> history(const std::string& id);

  // The content digest of a pipeline file when it was last applied at start; empty: never.
  Status put_file(const std::string& path, const std::string& digest);
  Result<std::string> file_digest(const std::string& path);

  // Jobs, their ends, and the failures and replaced items in them.
  Status put_jobs(const std::vector<StoredJob>& jobs,
                  const std::vector<StoredPosition>& positions = {});
  // Without the position that an earlier one of its key left.
  Status put_new_job(const StoredJob& job);
  // Whether anything may be kept of the job. Returns at once, however slow the disk is; the calls
  // that read one job's records return at once where there are none.
  bool may_know(const job::JobKey& key) const SPDLD_EXCLUDES(keys_mutex_);
  // With all that is kept of it.
  Status remove_job(const job::JobKey& key);
  Result<std::optional<StoredJob>> job(const job::JobKey& key);
  Result<std::vector<StoredJob>> declared_jobs();
  // Undeclared ones that were being read when they were kept last, at `unix_ms` or later.
  Result<std::vector<job::JobKey>> running_jobs(std::uint64_t unix_ms);
  // The jobs of this name that have any record.
  Result<std::vector<job::JobKey>> jobs_named(const std::string& job);
  // All that is known of undeclared jobs that were kept last before `unix_ms`.
  Status forget_before(std::uint64_t unix_ms);
  // Removes the records of this user's jobs that have ended and are not declared, but for the
  // `most` that ended last and those that run, which count as well. Returns how many these were.
  Result<std::size_t> forget_ended(uid_t uid, std::size_t most,
                                   const std::set<job::JobKey>& running);
  Result<std::set<std::uint64_t>> replaced(const job::JobKey& key);

  // The last end of each job, the latest first; of this user, or of all.
  static constexpr std::size_t kMostEnded = 1000;
  Result<std::vector<StoredEnd>> ended_jobs(std::optional<uid_t> uid);
  struct KeptFailure {
    job::JobKey key;
    engine::LoggedFailure failure;
  };
  // The latest that were kept; of this user or of all, of the jobs of this name or of all.
  static constexpr std::size_t kMostFailures = 10'000;
  Result<std::vector<KeptFailure>> failures(std::optional<uid_t> uid, const std::string& job = {});
  Result<std::uint64_t> last_failure(const job::JobKey& key);  // its number; 0: there is none

  Result<std::optional<StoredPosition>> position(const job::JobKey& key);

  // None: new jobs are taken.
  Status put_drain(const std::optional<StoredDrain>& drain);
  Result<std::optional<StoredDrain>> drain();

  // The live values of the daemon that an admin has changed, by key.
  Status put_tuned(const std::map<std::string, std::string>& values);
  Result<std::map<std::string, std::string>> tuned();

  // The listings that records refer to (ApplyRequest::dataset).
  Result<std::set<std::string>> datasets();

 private:
  Store(std::optional<LockFile> lock, std::vector<std::string> warnings,
        std::unique_ptr<Database> db);
  // `records` have a key each.
  template <typename Records>
  void note_keys(const Records& records) SPDLD_EXCLUDES(keys_mutex_);
  Status read_keys() SPDLD_REQUIRES(mutex_) SPDLD_EXCLUDES(keys_mutex_);

  const std::optional<LockFile> lock_;  // released after the database is closed
  const std::vector<std::string> warnings_;
  Mutex mutex_;
  const std::unique_ptr<Database> db_ SPDLD_PT_GUARDED_BY(mutex_);
  mutable Mutex keys_mutex_;
  // At least all jobs that are kept; none: they could not be read.
  std::optional<std::set<job::JobKey>> keys_ SPDLD_GUARDED_BY(keys_mutex_);
};

}  // namespace spdld::store
