// SPDX-License-Identifier: Apache-2.0
#include "session/store.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "session/statement.h"
#include "session/stored_json.h"

namespace spdld::session {
namespace {

constexpr int kSchemaVersion = 2;

constexpr const char* kSchema = R"sql(
  CREATE TABLE IF NOT EXISTS pipelines (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, owner INTEGER NOT NULL, request TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS revisions (
    name TEXT NOT NULL, version INTEGER NOT NULL, applied_unix_ms INTEGER NOT NULL,
    applied_by INTEGER NOT NULL, digest TEXT NOT NULL, note TEXT NOT NULL, request TEXT NOT NULL,
    PRIMARY KEY (name, version));
  CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, digest TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS jobs (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, declared INTEGER NOT NULL,
    kept_unix_ms INTEGER NOT NULL, state TEXT NOT NULL, PRIMARY KEY (uid, job, pipeline));
  CREATE TABLE IF NOT EXISTS positions (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, epoch INTEGER NOT NULL,
    step INTEGER NOT NULL, position INTEGER NOT NULL, order_text TEXT NOT NULL,
    kept_unix_ms INTEGER NOT NULL, PRIMARY KEY (uid, job, pipeline)) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS replaced (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, item INTEGER NOT NULL,
    PRIMARY KEY (uid, job, pipeline, item)) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS prepared (
    token TEXT PRIMARY KEY, until_unix_ms INTEGER NOT NULL, committed INTEGER NOT NULL,
    state TEXT NOT NULL);
)sql";

// For so long after its hold a prepared swap that was committed is known to have been.
constexpr std::int64_t kKeepCommittedMs = 3'600'000;

}  // namespace

Result<std::unique_ptr<Store>> Store::open(const std::string& state_dir) {
  std::error_code failed;
  std::filesystem::create_directories(state_dir, failed);
  if (failed)
    return tl::unexpected<Status>(
        errno_status(failed.value(), "state_dir " + state_dir + " cannot be made")
            .with_context("make it for uid " + std::to_string(geteuid()) +
                          ", or name another with --set state_dir=DIR"));
  if (access(state_dir.c_str(), W_OK | X_OK) != 0)
    return tl::unexpected<Status>(
        Status(Code::kPermissionDenied,
               "state_dir " + state_dir + " cannot be written by uid " + std::to_string(geteuid()) +
                   " (" + errno_status(errno, "access").message() +
                   "): chown it to the daemon's user, "
                   "mount it writable, or name another with --set state_dir=DIR"));
  std::unique_ptr<Store> store(new Store(state_dir + "/spdld.sqlite"));
  if (Status status = store->migrate(); !status.ok())
    return tl::unexpected<Status>(std::move(status));
  return store;
}

Status Store::migrate() {
  MutexLock lock(mutex_);
  if (sqlite3_open_v2(path_.c_str(), &db_,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                      nullptr) != SQLITE_OK)
    return failure("opened");
  ::chmod(path_.c_str(), S_IRUSR | S_IWUSR);  // job names and resolved env are nobody else's
  constexpr int kBusyTimeoutMs = 5000;
  sqlite3_busy_timeout(db_, kBusyTimeoutMs);
  std::int64_t known = 0;
  {
    Statement version(db_, "PRAGMA user_version");
    if (version.step() != SQLITE_ROW) return failure("read");
    known = version.number(0);
    if (known > kSchemaVersion)
      return Status(Code::kFailedPrecondition, path_ + " was written by a newer spdld (schema " +
                                                   std::to_string(known) +
                                                   "): upgrade, or name another state_dir");
  }
  // Schema 1 kept jobs in a form that says too little: what they had replaced stays, the jobs are
  // to be declared anew.
  if (known == 1 &&
      sqlite3_exec(db_, "DROP TABLE IF EXISTS jobs", nullptr, nullptr, nullptr) != SQLITE_OK)
    return failure("written");
  // Rollback journal, not WAL: it needs no shared memory, so state_dir may lie on any file system.
  const std::string setup = std::string("PRAGMA synchronous = FULL; BEGIN;") + kSchema +
                            "PRAGMA user_version = " + std::to_string(kSchemaVersion) + "; COMMIT;";
  if (sqlite3_exec(db_, setup.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
    return failure("written");
  return {};
}

Store::~Store() {
  MutexLock lock(mutex_);
  sqlite3_close(db_);
}

Status Store::failure(const char* what) {
  const int code = sqlite3_errcode(db_);
  const std::string message = path_ + " could not be " + what + ": " + sqlite3_errmsg(db_);
  switch (code) {
    case SQLITE_FULL:
      return Status(Code::kResourceExhausted,
                    message + "; free space on the file system of state_dir and try again");
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return Status(Code::kPermissionDenied, message + "; make state_dir writable for uid " +
                                                 std::to_string(geteuid()) + " and try again");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Status(Code::kDataLoss, message + "; move the file away to start without its record");
    case SQLITE_IOERR:
      return Status(Code::kUnavailable,
                    message + "; is the file system of state_dir full or failing?");
    default: return Status(Code::kUnavailable, message);
  }
}

tl::unexpected<Status> Store::unreadable(const std::string& what, const Status& why) const {
  return error(Code::kDataLoss, path_ + ": " + what + " cannot be read: " + why.message());
}

Status Store::begin() {
  Statement statement(db_, "BEGIN");
  return statement.step() == SQLITE_DONE ? Status() : failure("written");
}

Status Store::finish(Status outcome) {
  if (outcome.ok()) {
    Statement commit(db_, "COMMIT");
    if (commit.step() == SQLITE_DONE) return {};
    outcome = failure("written");
  }
  Statement rollback(db_, "ROLLBACK");
  (void)rollback.step();  // a failed COMMIT may have ended it already
  return outcome;
}

Status Store::put_pipeline(const StoredPipeline& pipeline, const StoredRevision& revision,
                           const std::vector<StoredJob>& jobs, const std::string& token) {
  SPDLD_ASSIGN(const std::string request, request_text(pipeline.name, pipeline.request));
  MutexLock lock(mutex_);
  SPDLD_TRY(begin());
  const auto write = [&]() SPDLD_REQUIRES(mutex_) -> Status {
    Statement current(db_, "INSERT OR REPLACE INTO pipelines VALUES (?, ?, ?, ?)");
    current.bind(pipeline.name)
        .bind(static_cast<std::int64_t>(pipeline.version))
        .bind(static_cast<std::int64_t>(pipeline.owner))
        .bind(request);
    if (current.step() != SQLITE_DONE) return failure("written");
    // The same version again keeps its first mention.
    Statement history(db_, "INSERT OR IGNORE INTO revisions VALUES (?, ?, ?, ?, ?, ?, ?)");
    history.bind(pipeline.name)
        .bind(static_cast<std::int64_t>(revision.version))
        .bind(static_cast<std::int64_t>(revision.applied_unix_ms))
        .bind(static_cast<std::int64_t>(revision.applied_by))
        .bind(revision.content_digest)
        .bind(revision.note)
        .bind(request);
    if (history.step() != SQLITE_DONE) return failure("written");
    Statement old(db_, "DELETE FROM revisions WHERE name = ? AND version <= ?");
    old.bind(pipeline.name).bind(static_cast<std::int64_t>(revision.version) - kMaxRevisions);
    if (old.step() != SQLITE_DONE) return failure("written");
    for (const StoredJob& job : jobs) SPDLD_TRY(write_job(job));
    Statement prepared(db_, "UPDATE prepared SET committed = 1 WHERE token = ?");
    return prepared.bind(token).step() == SQLITE_DONE ? Status() : failure("written");
  };
  return finish(write());
}

Status Store::remove_pipeline(const std::string& name) {
  MutexLock lock(mutex_);
  for (const char* sql :
       {"DELETE FROM pipelines WHERE name = ?", "DELETE FROM revisions WHERE name = ?"}) {
    Statement statement(db_, sql);
    statement.bind(name);
    if (statement.step() != SQLITE_DONE) return failure("written");
  }
  return {};
}

Result<std::vector<StoredRevision>> Store::history(const std::string& name) {
  MutexLock lock(mutex_);
  Statement statement(db_,
                      "SELECT version, applied_unix_ms, applied_by, digest, note, request FROM "
                      "revisions WHERE name = ? ORDER BY version");
  statement.bind(name);
  std::vector<StoredRevision> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step()) {
    auto request = parse_request(statement.text(5));
    if (!request)
      return unreadable(
          "version " + std::to_string(statement.number(0)) + " of pipeline '" + name + "'",
          request.error());
    found.push_back({.version = static_cast<std::uint32_t>(statement.number(0)),
                     .applied_unix_ms = static_cast<std::uint64_t>(statement.number(1)),
                     .applied_by = static_cast<uid_t>(statement.number(2)),
                     .content_digest = statement.text(3),
                     .note = statement.text(4),
                     .request = std::move(*request)});
  }
  if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  return found;
}

Result<std::vector<StoredPipeline>> Store::pipelines() {
  MutexLock lock(mutex_);
  Statement statement(db_, "SELECT name, version, owner, request FROM pipelines ORDER BY name");
  std::vector<StoredPipeline> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step()) {
    auto request = parse_request(statement.text(3));
    if (!request) return unreadable("pipeline '" + statement.text(0) + "'", request.error());
    found.push_back({.name = statement.text(0),
                     .version = static_cast<std::uint32_t>(statement.number(1)),
                     .owner = static_cast<uid_t>(statement.number(2)),
                     .request = std::move(*request)});
  }
  if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  return found;
}

Status Store::put_file(const std::string& path, const std::string& digest) {
  MutexLock lock(mutex_);
  Statement statement(db_, "INSERT OR REPLACE INTO files VALUES (?, ?)");
  statement.bind(path).bind(digest);
  return statement.step() == SQLITE_DONE ? Status() : failure("written");
}

Result<std::string> Store::file_digest(const std::string& path) {
  MutexLock lock(mutex_);
  Statement statement(db_, "SELECT digest FROM files WHERE path = ?");
  switch (statement.bind(path).step()) {
    case SQLITE_ROW: return statement.text(0);
    case SQLITE_DONE: return std::string();
    default: return tl::unexpected<Status>(failure("read"));
  }
}

Status Store::write_job(const StoredJob& job) {
  SPDLD_ASSIGN(const std::string state, job_text(job));
  Statement statement(db_, "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?, ?, ?)");
  statement.bind(job.key)
      .bind(static_cast<std::int64_t>(job.declared))
      .bind(static_cast<std::int64_t>(job.kept_unix_ms))
      .bind(state);
  return statement.step() == SQLITE_DONE ? Status() : failure("written");
}

Status Store::put_jobs(const std::vector<StoredJob>& jobs,
                       const std::vector<StoredPosition>& positions) {
  MutexLock lock(mutex_);
  SPDLD_TRY(begin());
  const auto write = [&]() SPDLD_REQUIRES(mutex_) -> Status {
    for (const StoredJob& job : jobs) SPDLD_TRY(write_job(job));
    for (const StoredPosition& position : positions) SPDLD_TRY(write_position(position));
    return {};
  };
  return finish(write());
}

Status Store::write_position(const StoredPosition& position) {
  Statement statement(db_, "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  statement.bind(position.key)
      .bind(static_cast<std::int64_t>(position.at.epoch))
      .bind(static_cast<std::int64_t>(position.at.step))
      .bind(static_cast<std::int64_t>(position.position))
      .bind(position.order)
      .bind(static_cast<std::int64_t>(position.kept_unix_ms));
  return statement.step() == SQLITE_DONE ? Status() : failure("written");
}

Status Store::remove_job(const JobKey& key) {
  MutexLock lock(mutex_);
  SPDLD_TRY(begin());
  Status removed;
  for (const char* sql : {"DELETE FROM jobs WHERE uid = ? AND job = ? AND pipeline = ?",
                          "DELETE FROM positions WHERE uid = ? AND job = ? AND pipeline = ?",
                          "DELETE FROM replaced WHERE uid = ? AND job = ? AND pipeline = ?"}) {
    Statement statement(db_, sql);
    if (removed.ok() && statement.bind(key).step() != SQLITE_DONE) removed = failure("written");
  }
  return finish(std::move(removed));
}

Result<std::vector<JobKey>> Store::jobs_named(const std::string& job) {
  MutexLock lock(mutex_);
  Statement statement(db_,
                      "SELECT uid, job, pipeline FROM jobs WHERE job = ?1 UNION SELECT uid, job, "
                      "pipeline FROM positions WHERE job = ?1");
  statement.bind(job);
  std::vector<JobKey> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step())
    found.push_back({.uid = static_cast<uid_t>(statement.number(0)),
                     .job = statement.text(1),
                     .pipeline = statement.text(2)});
  if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  return found;
}

Result<std::optional<StoredJob>> Store::job(const JobKey& key) {
  MutexLock lock(mutex_);
  Statement statement(
      db_,
      "SELECT declared, kept_unix_ms, state FROM jobs WHERE uid = ? AND job = ? AND "
      "pipeline = ?");
  switch (statement.bind(key).step()) {
    case SQLITE_DONE: return std::optional<StoredJob>();
    case SQLITE_ROW: break;
    default: return tl::unexpected<Status>(failure("read"));
  }
  auto job = parse_job(statement.text(2));
  if (!job) return unreadable("job '" + key.job + "'", job.error());
  job->key = key;
  job->declared = statement.number(0) != 0;
  job->kept_unix_ms = static_cast<std::uint64_t>(statement.number(1));
  return std::optional(std::move(*job));
}

Result<std::vector<StoredJob>> Store::declared_jobs() {
  MutexLock lock(mutex_);
  Statement statement(db_,
                      "SELECT uid, job, pipeline, kept_unix_ms, state FROM jobs WHERE declared = 1 "
                      "ORDER BY uid, job, pipeline");
  std::vector<StoredJob> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step()) {
    auto job = parse_job(statement.text(4));
    if (!job) return unreadable("job '" + statement.text(1) + "'", job.error());
    job->key = {.uid = static_cast<uid_t>(statement.number(0)),
                .job = statement.text(1),
                .pipeline = statement.text(2)};
    job->declared = true;
    job->kept_unix_ms = static_cast<std::uint64_t>(statement.number(3));
    found.push_back(std::move(*job));
  }
  if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  return found;
}

Result<std::vector<JobKey>> Store::running_jobs(std::uint64_t unix_ms) {
  MutexLock lock(mutex_);
  Statement statement(db_,
                      "SELECT uid, job, pipeline, state FROM jobs WHERE declared = 0 AND "
                      "kept_unix_ms >= ?");
  statement.bind(static_cast<std::int64_t>(unix_ms));
  std::vector<JobKey> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step()) {
    const auto job = parse_job(statement.text(3));
    if (!job || job->ended || job->live_shards.empty()) continue;  // told when its ranks ask for it
    found.push_back({.uid = static_cast<uid_t>(statement.number(0)),
                     .job = statement.text(1),
                     .pipeline = statement.text(2)});
  }
  if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  return found;
}

Status Store::remove_position(const JobKey& key) {
  MutexLock lock(mutex_);
  Statement statement(db_, "DELETE FROM positions WHERE uid = ? AND job = ? AND pipeline = ?");
  return statement.bind(key).step() == SQLITE_DONE ? Status() : failure("written");
}

Result<std::optional<StoredPosition>> Store::position(const JobKey& key) {
  MutexLock lock(mutex_);
  Statement statement(db_,
                      "SELECT epoch, step, position, order_text, kept_unix_ms FROM positions WHERE "
                      "uid = ? AND job = ? AND pipeline = ?");
  switch (statement.bind(key).step()) {
    case SQLITE_DONE: return std::optional<StoredPosition>();
    case SQLITE_ROW: break;
    default: return tl::unexpected<Status>(failure("read"));
  }
  return std::optional(
      StoredPosition{.key = key,
                     .at = {static_cast<std::uint64_t>(statement.number(0)),
                            static_cast<std::uint64_t>(statement.number(1))},
                     .position = static_cast<std::uint64_t>(statement.number(2)),
                     .order = statement.text(3),
                     .kept_unix_ms = static_cast<std::uint64_t>(statement.number(4))});
}

Status Store::forget_before(std::uint64_t unix_ms) {
  MutexLock lock(mutex_);
  SPDLD_TRY(begin());
  const auto write = [&]() SPDLD_REQUIRES(mutex_) -> Status {
    for (const char* sql :
         {"DELETE FROM replaced WHERE (uid, job, pipeline) IN (SELECT uid, job, pipeline FROM jobs "
          "WHERE declared = 0 AND kept_unix_ms < ?)",
          "DELETE FROM jobs WHERE declared = 0 AND kept_unix_ms < ?",
          "DELETE FROM positions WHERE kept_unix_ms < ? AND (uid, job, pipeline) NOT IN (SELECT "
          "uid, job, pipeline FROM jobs)"}) {
      Statement statement(db_, sql);
      if (statement.bind(static_cast<std::int64_t>(unix_ms)).step() != SQLITE_DONE)
        return failure("written");
    }
    return {};
  };
  return finish(write());
}

Status Store::put_prepared(const StoredPrepared& prepared, const std::vector<StoredJob>& jobs) {
  SPDLD_ASSIGN(const std::string state, prepared_text(prepared));
  const auto until = static_cast<std::int64_t>(prepared.until_unix_ms);
  MutexLock lock(mutex_);
  SPDLD_TRY(begin());
  const auto write = [&]() SPDLD_REQUIRES(mutex_) -> Status {
    Statement old(db_, "DELETE FROM prepared WHERE until_unix_ms < ?");
    if (old.bind(until - kKeepCommittedMs).step() != SQLITE_DONE) return failure("written");
    Statement statement(db_, "INSERT INTO prepared VALUES (?, ?, ?, ?)");
    statement.bind(prepared.token)
        .bind(until)
        .bind(static_cast<std::int64_t>(prepared.committed))
        .bind(state);
    if (statement.step() != SQLITE_DONE) return failure("written");
    for (const StoredJob& job : jobs) SPDLD_TRY(write_job(job));
    return {};
  };
  return finish(write());
}

Status Store::remove_prepared(const std::string& token) {
  MutexLock lock(mutex_);
  Statement statement(db_, "DELETE FROM prepared WHERE token = ?");
  return statement.bind(token).step() == SQLITE_DONE ? Status() : failure("written");
}

Result<std::vector<StoredPrepared>> Store::prepared() {
  MutexLock lock(mutex_);
  Statement statement(
      db_, "SELECT token, until_unix_ms, committed, state FROM prepared ORDER BY until_unix_ms");
  std::vector<StoredPrepared> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step()) {
    auto prepared = parse_prepared(statement.text(3));
    if (!prepared) return unreadable("a prepared swap", prepared.error());
    prepared->token = statement.text(0);
    prepared->until_unix_ms = static_cast<std::uint64_t>(statement.number(1));
    prepared->committed = statement.number(2) != 0;
    found.push_back(std::move(*prepared));
  }
  if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  return found;
}

Status Store::add_replaced(const JobKey& key, std::uint64_t item) {
  MutexLock lock(mutex_);
  Statement statement(db_, "INSERT OR IGNORE INTO replaced VALUES (?, ?, ?, ?)");
  statement.bind(key).bind(static_cast<std::int64_t>(item));
  return statement.step() == SQLITE_DONE ? Status() : failure("written");
}

Result<std::set<std::uint64_t>> Store::replaced(const JobKey& key) {
  MutexLock lock(mutex_);
  Statement statement(db_, "SELECT item FROM replaced WHERE uid = ? AND job = ? AND pipeline = ?");
  statement.bind(key);
  std::set<std::uint64_t> items;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step())
    items.insert(static_cast<std::uint64_t>(statement.number(0)));
  if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  return items;
}

}  // namespace spdld::session
