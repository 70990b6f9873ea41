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

}  // namespace spdld::session
