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

#include "base/mutex.h"
#include "base/status.h"
#include "engine/failure_log.h"
#include "job/job_key.h"
#include "job/job_view.h"
#include "job/member.h"
#include "job/membership.h"
#include "job/request.h"
#include "job/step_at.h"
#include "store/state_lock.h"

struct sqlite3;

namespace spdld::store {

// A pipeline as it was submitted: enough to build it again.
struct StoredPipeline {
  std::string id;  // job/pipeline_id.h
  std::uint32_t version = 0;
  uid_t owner = 0;
  job::ApplyRequest request = {};
};

// How a version came to be.
struct StoredRevision {
  std::uint32_t version = 0;
  std::uint64_t applied_unix_ms = 0;
  uid_t applied_by = 0;
  std::string content_digest = {};
  std::string note = {};
  job::ApplyRequest request = {};
};

// What a job runs: complete, so that it does not matter what becomes of the pipeline's name.
struct StoredPhase {
  std::uint32_t version = 0;
  uid_t owner = 0;  // of the pipeline
  job::ApplyRequest request = {};
  std::optional<std::uint64_t> batch_size;  // other than the text's
  std::set<std::string> overrides = {};     // variables that are not the job's own
  Credentials reader = {};                  // with whose rights it was read
};

struct StoredCut {
  job::StepAt from;
  std::uint64_t position = 0;
  std::uint32_t num_shards = 1;
  std::uint32_t phase = 0;  // index
  std::uint64_t left_out = 0;
  std::uint32_t anew_from = 0;  // Timeline::Cut's
};

// Where an operator sent a job, and how it was cut before.
struct StoredMove {
  std::uint32_t number = 0;
  std::uint32_t after = 0;
  job::StepAt from;
  job::StepAt to;
  std::vector<StoredCut> before;
};

// What is told of a job that has ended.
struct StoredEnd {
  job::EndView end = {};
  job::JobView view = {};
  std::vector<job::StageView> stages = {};
};

// A job: what it was declared or first attached with, and what was done to it since.
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
  std::map<std::string, std::string> vars;
  std::map<std::string, std::string> first_vars;
  std::optional<std::uint64_t> batch_size;
  job::StepAt start;
  std::vector<StoredPhase> phases;
  std::vector<StoredCut> cuts;
  std::vector<StoredMove> moves = {};
  std::uint32_t move_count = 0;
  std::vector<job::MemberRecord> members = {};
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
  job::StepAt at;
  std::uint64_t position = 0;
  std::string order = {};  // Phase::order_text() there
  std::uint64_t kept_unix_ms = 0;
};

// What must outlive the daemon: one SQLite file in state_dir. Owned by the daemon. Each call is one
// transaction, on disk when it returns. Thread-safe; calls wait for each other.
//
// States, decided when it is opened: on disk; read-only (what was kept is known, every change
// fails); in memory (there is no file that can be read: it is left alone, and what is put here ends
// with the daemon). All but the first are told by warnings().
class Store {
 public:
  static constexpr int kMaxRevisions = 100;

  // Makes state_dir if it is not there. Opens what there is to open: fails only where another
  // daemon has the directory, another program the file, or another build has written it.
  static Result<std::unique_ptr<Store>> open(const std::string& state_dir);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // What operators are to know of how it was opened, and what to do.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Another daemon may have the directory from now on. Safe in a signal handler.
  void release_lock() const noexcept {
    if (lock_) lock_->release();
  }

  // Pipelines and the files they were applied from: store_pipelines.cpp.
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

  // Jobs, and what was replaced in them: store_jobs.cpp.
  // With where they are, how they ended, and what has failed in them since.
  Status put_jobs(const std::vector<StoredJob>& jobs,
                  const std::vector<StoredPosition>& positions = {});
  // Without the position that an earlier one of its key left.
  Status put_new_job(const StoredJob& job);
  // Whether anything may be kept of the job. Returns at once, however slow the disk is; the calls
  // that read what is kept of one job return at once where it is not.
  bool may_know(const job::JobKey& key) const SPDLD_EXCLUDES(keys_mutex_);
  // With all that is kept of it.
  Status remove_job(const job::JobKey& key);
  Result<std::optional<StoredJob>> job(const job::JobKey& key);
  Result<std::vector<StoredJob>> declared_jobs();
  // Undeclared ones that were being read when they were kept last, at `unix_ms` or later.
  Result<std::vector<job::JobKey>> running_jobs(std::uint64_t unix_ms);
  // Of whom anything is kept, by name.
  Result<std::vector<job::JobKey>> jobs_named(const std::string& job);
  // All that is known of undeclared jobs that were kept last before `unix_ms`.
  Status forget_before(std::uint64_t unix_ms);
  // All that is known of this user's jobs that have ended and are not declared, but for the `most`
  // that ended last and those that run, which count as well. How many these were.
  Result<std::size_t> forget_ended(uid_t uid, std::size_t most,
                                   const std::set<job::JobKey>& running);
  Result<std::set<std::uint64_t>> replaced(const job::JobKey& key);

  // How they ended, and what failed in them: store_ends.cpp. Kept for as long as the job is.
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

  // How far they were acknowledged: store_positions.cpp.
  Result<std::optional<StoredPosition>> position(const job::JobKey& key);

  // What was listed for anything that is kept here (ApplyRequest::dataset): store_datasets.cpp.
  Result<std::set<std::string>> datasets();

 private:
  explicit Store(std::string state_dir)
      : state_dir_(std::move(state_dir)), path_(state_dir_ + "/spdld.sqlite") {}
  Status failure(const char* what) SPDLD_REQUIRES(mutex_);
  tl::unexpected<Status> unreadable(const std::string& what, const Status& why) const;
  // Opening: store_open.cpp.
  Status connect(const std::string& path, int flags) SPDLD_REQUIRES(mutex_);
  Status open_file() SPDLD_EXCLUDES(mutex_);
  Status open_empty() SPDLD_EXCLUDES(mutex_);
  Status copy_to_memory() SPDLD_REQUIRES(mutex_);
  // True: nothing was ever written to it. Refuses what another build or program has written.
  Result<bool> is_new() SPDLD_REQUIRES(mutex_);
  Status check_written() SPDLD_REQUIRES(mutex_);   // kNotFound: it is new
  Status prepare_writes() SPDLD_REQUIRES(mutex_);  // makes the tables of a new one
  Status begin() SPDLD_REQUIRES(mutex_);
  Status finish(Status outcome) SPDLD_REQUIRES(mutex_);  // commits, or rolls back
  // `request`: as request_text() has it.
  Status write_current(const StoredPipeline& pipeline, const std::string& request)
      SPDLD_REQUIRES(mutex_);
  Status write_job(const StoredJob& job) SPDLD_REQUIRES(mutex_);
  Status write_end(const StoredJob& job) SPDLD_REQUIRES(mutex_);     // and what failed in it
  Status delete_job(const job::JobKey& key) SPDLD_REQUIRES(mutex_);  // with all that is known of it
  Status write_position(const StoredPosition& position) SPDLD_REQUIRES(mutex_);
  void note_key(const job::JobKey& key) SPDLD_EXCLUDES(keys_mutex_);
  Status read_keys() SPDLD_REQUIRES(mutex_) SPDLD_EXCLUDES(keys_mutex_);

  const std::string state_dir_;
  const std::string path_;
  std::optional<StateLock> lock_;  // these two do not change after open()
  std::vector<std::string> warnings_;
  Mutex mutex_;
  sqlite3* db_ SPDLD_GUARDED_BY(mutex_) = nullptr;
  mutable Mutex keys_mutex_;
  // Of all jobs that are kept, at least; none: they could not be read.
  std::optional<std::set<job::JobKey>> keys_ SPDLD_GUARDED_BY(keys_mutex_);
};

}  // namespace spdld::store
