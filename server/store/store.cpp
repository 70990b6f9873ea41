// SPDX-License-Identifier: Apache-2.0
#include "store/store.h"

#include <algorithm>
#include <span>
#include <utility>

#include "store/database.h"
#include "store/stored_json.h"

namespace spdld::store {
namespace {

// The number that a query takes for a user; -1: all users.
std::int64_t or_all(std::optional<uid_t> uid) { return uid ? std::int64_t{*uid} : -1; }

// A value that was parsed from a column; the error names the record.
template <typename T>
Result<T> readable(const std::string& record, Result<T> value) {
  if (value) return value;
  return error(Code::kDataLoss, record + " cannot be read: " + value.error().message());
}

// The rows of one job, in each table.
const std::string kOfJob = " WHERE uid = ? AND job = ? AND pipeline = ?";

Result<job::JobKey> read_key(const Statement& row) { return row.key(); }

Status write_current(Database& db, const StoredPipeline& pipeline, const std::string& request) {
  return db.run("INSERT OR REPLACE INTO pipelines VALUES (?, ?, ?, ?)", pipeline.id,
                pipeline.version, pipeline.owner, request);
}

Status write_job(Database& db, const StoredJob& job) {
  SPDLD_ASSIGN(const std::string state, job_text(job));
  return db.run("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?)", job.key, job.declared,
                job.kept_unix_ms, state);
}

Status write_jobs(Database& db, const std::vector<StoredJob>& jobs) {
  for (const StoredJob& job : jobs) SPDLD_TRY(write_job(db, job));
  return {};
}

// Its end, failures and replaced items.
Status write_end(Database& db, const StoredJob& job) {
  if (job.end)
    SPDLD_TRY(db.run("INSERT OR REPLACE INTO ended VALUES (?, ?, ?, ?, ?)", job.key,
                     job.end->end.unix_ms, end_text(*job.end)));
  for (const engine::LoggedFailure& kept : job.failures)
    SPDLD_TRY(db.run("INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?)", job.key, kept.number,
                     failure_text(kept.facts)));
  for (const std::uint64_t item : job.replaced)
    SPDLD_TRY(db.run("INSERT OR IGNORE INTO replaced VALUES (?, ?, ?, ?)", job.key, item));
  if (job.failures.empty()) return {};
  return db.run("DELETE FROM failures WHERE uid = ? AND job = ? AND pipeline = ? AND number <= ?",
                job.key,
                static_cast<std::int64_t>(job.failures.back().number) -
                    static_cast<std::int64_t>(engine::FailureLog::kKept));
}

Status write_position(Database& db, const StoredPosition& position) {
  const job::Cursor& cursor = position.cursor;
  return db.run("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                position.key, cursor.at.epoch, cursor.at.step, cursor.position, cursor.order,
                cursor.run, cursor.branch, cursor.turn, position.kept_unix_ms);
}

Status delete_job(Database& db, const job::JobKey& key) {
  for (const char* table : {"jobs", "positions", "replaced", "ended", "failures"})
    SPDLD_TRY(db.run("DELETE FROM " + (table + kOfJob), key));
  return {};
}

const std::string kJobColumns =
    "SELECT uid, job, pipeline, declared, kept_unix_ms, state FROM jobs";
Result<StoredJob> read_job(const Statement& row) {
  SPDLD_ASSIGN(StoredJob job, readable("job '" + row.text(1) + "'", parse_job(row.text(5))));
  job.key = row.key();
  job.declared = row.number(3) != 0;
  job.kept_unix_ms = row.number<std::uint64_t>(4);
  return job;
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(const std::string& state_dir) {
  std::optional<LockFile> lock;
  std::vector<std::string> warnings;
  SPDLD_ASSIGN(auto db, Database::open(state_dir, lock, warnings));
  return std::unique_ptr<Store>(new Store(std::move(lock), std::move(warnings), std::move(db)));
}

Store::Store(std::optional<LockFile> lock, std::vector<std::string> warnings,
             std::unique_ptr<Database> db)
    : lock_(std::move(lock)), warnings_(std::move(warnings)), db_(std::move(db)) {
  MutexLock reads(mutex_);
  (void)read_keys();  // a call that reads a job reports the error
}

Store::~Store() = default;

bool Store::may_know(const job::JobKey& key) const {
  MutexLock lock(keys_mutex_);
  return !keys_ || keys_->contains(key);
}

template <typename Records>
void Store::note_keys(const Records& records) {
  MutexLock lock(keys_mutex_);
  if (!keys_) return;
  for (const auto& record : records) keys_->insert(record.key);
}

Status Store::read_keys() {
  SPDLD_ASSIGN(const auto found,
               db_->all<job::JobKey>(read_key,
                                     "SELECT uid, job, pipeline FROM jobs UNION SELECT uid, job, "
                                     "pipeline FROM positions"));
  MutexLock lock(keys_mutex_);
  keys_.emplace(found.begin(), found.end());
  return {};
}

Status Store::put_pipeline(const StoredPipeline& pipeline, const StoredRevision& revision,
                           const std::vector<StoredJob>& jobs) {
  SPDLD_ASSIGN(const std::string request, request_text(pipeline.id, pipeline.request));
  MutexLock lock(mutex_);
  note_keys(jobs);
  return db_->transact([&](Database& db) -> Status {
    SPDLD_TRY(write_current(db, pipeline, request));
    // The same version again keeps its first mention.
    SPDLD_TRY(db.run("INSERT OR IGNORE INTO revisions VALUES (?, ?, ?, ?, ?, ?, ?)", pipeline.id,
                     revision.version, revision.applied_unix_ms, revision.applied_by,
                     revision.content_digest, revision.note, request));
    SPDLD_TRY(db.run("DELETE FROM revisions WHERE name = ? AND version <= ?", pipeline.id,
                     std::int64_t{revision.version} - kMaxRevisions));
    return write_jobs(db, jobs);
  });
}

Status Store::take_back(const StoredPipeline& before, const std::vector<StoredJob>& jobs) {
  SPDLD_ASSIGN(const std::string request, request_text(before.id, before.request));
  MutexLock lock(mutex_);
  note_keys(jobs);
  return db_->transact([&](Database& db) -> Status {
    SPDLD_TRY(write_current(db, before, request));
    SPDLD_TRY(
        db.run("DELETE FROM revisions WHERE name = ? AND version > ?", before.id, before.version));
    return write_jobs(db, jobs);
  });
}

Status Store::remove_pipeline(const std::string& id) {
  MutexLock lock(mutex_);
  return db_->transact([&](Database& db) -> Status {
    SPDLD_TRY(db.run("DELETE FROM pipelines WHERE name = ?", id));
    return db.run("DELETE FROM revisions WHERE name = ?", id);
  });
}

Result<std::vector<StoredPipeline>> Store::pipelines() {
  MutexLock lock(mutex_);
  const auto read = [&](const Statement& row) -> Result<StoredPipeline> {
    SPDLD_ASSIGN(auto request,
                 readable("pipeline '" + row.text(0) + "'", parse_request(row.text(3))));
    return StoredPipeline{.id = row.text(0),
                          .version = row.number<std::uint32_t>(1),
                          .owner = row.number<uid_t>(2),
                          .request = std::move(request)};
  };
  return db_->all<StoredPipeline>(
      read, "SELECT name, version, owner, request FROM pipelines ORDER BY name");
}

Result<std::vector<StoredRevision>> Store::history(const std::string& id) {
  MutexLock lock(mutex_);
  const auto read = [&](const Statement& row) -> Result<StoredRevision> {
    SPDLD_ASSIGN(auto request, readable("version " + row.text(0) + " of pipeline '" + id + "'",
                                        parse_request(row.text(5))));
    return StoredRevision{.version = row.number<std::uint32_t>(0),
                          .applied_unix_ms = row.number<std::uint64_t>(1),
                          .applied_by = row.number<uid_t>(2),
                          .content_digest = row.text(3),
                          .note = row.text(4),
                          .request = std::move(request)};
  };
  return db_->all<StoredRevision>(read,
                                  "SELECT version, applied_unix_ms, applied_by, digest, note, "
                                  "request FROM revisions WHERE name = ? ORDER BY version",
                                  id);
}

Status Store::put_file(const std::string& path, const std::string& digest) {
  MutexLock lock(mutex_);
  return db_->run("INSERT OR REPLACE INTO files VALUES (?, ?)", path, digest);
}

Result<std::string> Store::file_digest(const std::string& path) {
  MutexLock lock(mutex_);
  const auto read = [](const Statement& row) -> Result<std::string> { return row.text(0); };
  SPDLD_ASSIGN(const auto digest,
               db_->first<std::string>(read, "SELECT digest FROM files WHERE path = ?", path));
  return digest.value_or(std::string());
}

Status Store::put_drain(const std::optional<StoredDrain>& drain) {
  MutexLock lock(mutex_);
  return db_->transact([&](Database& db) -> Status {
    SPDLD_TRY(db.run("DELETE FROM drain"));
    if (!drain) return {};
    return db.run("INSERT INTO drain VALUES (?, ?)", drain->since_unix_ms, drain->by);
  });
}

Result<std::optional<StoredDrain>> Store::drain() {
  MutexLock lock(mutex_);
  const auto read = [](const Statement& row) -> Result<StoredDrain> {
    return StoredDrain{.since_unix_ms = row.number<std::uint64_t>(0), .by = row.number<uid_t>(1)};
  };
  return db_->first<StoredDrain>(read, "SELECT since_unix_ms, uid FROM drain");
}

Status Store::put_tuned(const std::map<std::string, std::string>& values) {
  MutexLock lock(mutex_);
  return db_->transact([&](Database& db) -> Status {
    SPDLD_TRY(db.run("DELETE FROM tuned"));
    for (const auto& [key, value] : values)
      SPDLD_TRY(db.run("INSERT INTO tuned VALUES (?, ?)", key, value));
    return {};
  });
}

Result<std::map<std::string, std::string>> Store::tuned() {
  MutexLock lock(mutex_);
  std::map<std::string, std::string> values;
  const auto read = [&](const Statement& row) -> Status {
    values.emplace(row.text(0), row.text(1));
    return {};
  };
  SPDLD_TRY(db_->each(read, "SELECT key, value FROM tuned"));
  return values;
}

Status Store::put_jobs(const std::vector<StoredJob>& jobs,
                       const std::vector<StoredPosition>& positions) {
  MutexLock lock(mutex_);
  note_keys(jobs);
  note_keys(positions);
  return db_->transact([&](Database& db) -> Status {
    SPDLD_TRY(write_jobs(db, jobs));
    for (const StoredJob& job : jobs) SPDLD_TRY(write_end(db, job));
    for (const StoredPosition& position : positions) SPDLD_TRY(write_position(db, position));
    return {};
  });
}

Status Store::put_new_job(const StoredJob& job) {
  MutexLock lock(mutex_);
  note_keys(std::span(&job, 1));
  return db_->transact([&](Database& db) -> Status {
    SPDLD_TRY(db.run("DELETE FROM positions" + kOfJob, job.key));
    SPDLD_TRY(write_job(db, job));
    return write_end(db, job);
  });
}

Status Store::remove_job(const job::JobKey& key) {
  MutexLock lock(mutex_);
  return db_->transact([&](Database& db) { return delete_job(db, key); });
}

Result<std::optional<StoredJob>> Store::job(const job::JobKey& key) {
  if (!may_know(key)) return std::optional<StoredJob>();
  MutexLock lock(mutex_);
  return db_->first<StoredJob>(read_job, kJobColumns + kOfJob, key);
}

Result<std::vector<StoredJob>> Store::declared_jobs() {
  MutexLock lock(mutex_);
  return db_->all<StoredJob>(read_job,
                             kJobColumns + " WHERE declared = 1 ORDER BY uid, job, pipeline");
}

Result<std::vector<job::JobKey>> Store::running_jobs(std::uint64_t unix_ms) {
  MutexLock lock(mutex_);
  std::vector<job::JobKey> found;
  const auto read = [&](const Statement& row) {
    const auto job = parse_job(row.text(3));
    if (!job || job->ended) return Status();  // told when its ranks ask for it
    const bool is_read = std::any_of(job->members.begin(), job->members.end(), [](const auto& of) {
      using Presence = job::MemberRecord::Presence;
      return of.presence == Presence::kHere || of.presence == Presence::kExpected;
    });
    if (is_read) found.push_back(row.key());
    return Status();
  };
  SPDLD_TRY(db_->each(read,
                      "SELECT uid, job, pipeline, state FROM jobs WHERE declared = 0 AND "
                      "kept_unix_ms >= ?",
                      unix_ms));
  return found;
}

Result<std::vector<job::JobKey>> Store::jobs_named(const std::string& job) {
  MutexLock lock(mutex_);
  return db_->all<job::JobKey>(read_key,
                               "SELECT uid, job, pipeline FROM jobs WHERE job = ?1 UNION SELECT "
                               "uid, job, pipeline FROM positions WHERE job = ?1",
                               job);
}

Status Store::forget_before(std::uint64_t unix_ms) {
  MutexLock lock(mutex_);
  const std::string old = " FROM jobs WHERE declared = 0 AND kept_unix_ms < ?";
  SPDLD_TRY(db_->transact([&](Database& db) -> Status {
    for (const std::string table : {"replaced", "ended", "failures"})
      SPDLD_TRY(db.run("DELETE FROM " + table +
                           " WHERE (uid, job, pipeline) IN (SELECT uid, job, pipeline" + old + ")",
                       unix_ms));
    SPDLD_TRY(db.run("DELETE" + old, unix_ms));
    return db.run(
        "DELETE FROM positions WHERE kept_unix_ms < ? AND (uid, job, pipeline) NOT IN (SELECT "
        "uid, job, pipeline FROM jobs)",
        unix_ms);
  }));
  return read_keys();
}

Result<std::size_t> Store::forget_ended(uid_t uid, std::size_t most,
                                        const std::set<job::JobKey>& running) {
  MutexLock lock(mutex_);
  SPDLD_ASSIGN(std::vector<job::JobKey> old,
               db_->all<job::JobKey>(
                   read_key,
                   "SELECT uid, job, pipeline FROM ended JOIN jobs USING (uid, job, pipeline) "
                   "WHERE uid = ? AND declared = 0 ORDER BY ended_unix_ms DESC LIMIT -1 OFFSET ?",
                   uid, most));
  std::erase_if(old, [&](const job::JobKey& key) { return running.contains(key); });
  if (old.empty()) return 0;
  SPDLD_TRY(db_->transact([&](Database& db) -> Status {
    for (const job::JobKey& key : old) SPDLD_TRY(delete_job(db, key));
    return {};
  }));
  return old.size();
}

Result<std::set<std::uint64_t>> Store::replaced(const job::JobKey& key) {
  std::set<std::uint64_t> items;
  if (!may_know(key)) return items;
  MutexLock lock(mutex_);
  const auto read = [&](const Statement& row) {
    items.insert(row.number<std::uint64_t>(0));
    return Status();
  };
  SPDLD_TRY(db_->each(read, "SELECT item FROM replaced" + kOfJob, key));
  return items;
}

Result<std::vector<StoredEnd>> Store::ended_jobs(std::optional<uid_t> uid) {
  MutexLock lock(mutex_);
  const auto read = [&](const Statement& row) -> Result<StoredEnd> {
    auto end = readable("how job '" + row.text(1) + "' ended", parse_end(row.text(3)));
    if (!end) return end;
    const job::JobKey key = row.key();
    end->view.owner = key.uid;
    end->view.job = key.job;
    end->view.pipeline = key.pipeline;
    for (job::StageView& stage : end->stages) {
      stage.job = key.job;
      stage.pipeline = key.pipeline;
      stage.owner = key.uid;
    }
    return end;
  };
  return db_->all<StoredEnd>(read,
                             "SELECT uid, job, pipeline, state FROM ended WHERE ?1 < 0 OR uid = ?1 "
                             "ORDER BY ended_unix_ms DESC LIMIT ?2",
                             or_all(uid), kMostEnded);
}

Result<std::vector<Store::KeptFailure>> Store::failures(std::optional<uid_t> uid,
                                                        const std::string& job) {
  std::vector<std::string> texts;
  const auto read = [&](const Statement& row) -> Result<KeptFailure> {
    texts.push_back(row.text(4));
    return KeptFailure{row.key(), {.number = row.number<std::uint64_t>(3)}};
  };
  std::vector<KeptFailure> found;
  {
    MutexLock lock(mutex_);
    SPDLD_ASSIGN(found, db_->all<KeptFailure>(
                            read,
                            "SELECT uid, job, pipeline, number, state FROM failures WHERE "
                            "(?1 < 0 OR uid = ?1) AND (?2 = '' OR job = ?2) ORDER BY rowid DESC "
                            "LIMIT ?3",
                            or_all(uid), job, kMostFailures));
  }
  // Without the lock, which all writers need: there may be thousands.
  for (std::size_t i = 0; i < found.size(); ++i) {
    SPDLD_ASSIGN(found[i].failure.facts,
                 readable("a failure of job '" + found[i].key.job + "'", parse_failure(texts[i])));
  }
  return found;
}

Result<std::uint64_t> Store::last_failure(const job::JobKey& key) {
  if (!may_know(key)) return 0;
  MutexLock lock(mutex_);
  const auto read = [](const Statement& row) -> Result<std::uint64_t> {
    return row.number<std::uint64_t>(0);
  };
  SPDLD_ASSIGN(const auto last,
               db_->first<std::uint64_t>(read, "SELECT MAX(number) FROM failures" + kOfJob, key));
  return last.value_or(0);
}

Result<std::optional<StoredPosition>> Store::position(const job::JobKey& key) {
  if (!may_know(key)) return std::optional<StoredPosition>();
  MutexLock lock(mutex_);
  const auto read = [&](const Statement& row) -> Result<StoredPosition> {
    const auto number = [&](int column) { return row.number<std::uint64_t>(column); };
    return StoredPosition{.key = key,
                          .cursor = {.order = row.text(3),
                                     .at = {number(0), number(1)},
                                     .position = number(2),
                                     .run = number(4),
                                     .branch = row.number<std::uint32_t>(5),
                                     .turn = number(6)},
                          .kept_unix_ms = number(7)};
  };
  return db_->first<StoredPosition>(read,
                                    "SELECT epoch, step, position, order_text, run, branch, turn, "
                                    "kept_unix_ms FROM positions" +
                                        kOfJob,
                                    key);
}

Result<std::set<std::string>> Store::datasets() {
  MutexLock lock(mutex_);
  std::set<std::string> found;
  const auto request = [&](const Statement& row) -> Status {
    SPDLD_ASSIGN(const auto read, readable("a record", parse_request(row.text(0))));
    found.insert(read.dataset);
    return {};
  };
  const auto job = [&](const Statement& row) -> Status {
    SPDLD_ASSIGN(const auto read, readable("a record", parse_job(row.text(0))));
    for (const auto& [version, phase] : read.phases) found.insert(phase.request.dataset);
    return {};
  };
  SPDLD_TRY(db_->each(request, "SELECT request FROM pipelines"));
  SPDLD_TRY(db_->each(request, "SELECT request FROM revisions"));
  SPDLD_TRY(db_->each(job, "SELECT state FROM jobs"));
  return found;
}

}  // namespace spdld::store
