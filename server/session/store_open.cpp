// SPDX-License-Identifier: Apache-2.0
// How the store's file is opened, brought up to date, or done without: a part of Store.
#include <spdlog/spdlog.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "session/pipeline_id.h"
#include "session/statement.h"
#include "session/store.h"
#include "session/stored_json.h"

namespace spdld::session {
namespace {

namespace fs = std::filesystem;

constexpr int kSchemaVersion = 4;
// From this one on, pipelines are kept by id: session/pipeline_id.h.
constexpr int kFirstWithIds = 4;

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
  CREATE TABLE IF NOT EXISTS ended (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL,
    ended_unix_ms INTEGER NOT NULL, state TEXT NOT NULL, PRIMARY KEY (uid, job, pipeline));
  CREATE TABLE IF NOT EXISTS failures (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, number INTEGER NOT NULL,
    state TEXT NOT NULL, PRIMARY KEY (uid, job, pipeline, number));
)sql";

Status cannot_write(const std::string& state_dir, int err) {
  return Status(Code::kPermissionDenied,
                "state_dir " + state_dir + " cannot be written by uid " +
                    std::to_string(geteuid()) + " (" + errno_status(err, "access").message() +
                    "): chown it to the daemon's user, mount it writable, or name another with "
                    "--set state_dir=DIR");
}

std::string without_a_file(const Status& why) {
  return why.message() +
         "; until that is mended and the daemon restarted, nothing that was kept is known, and "
         "what is applied and where jobs are is forgotten when the daemon ends";
}

std::string read_only(const Status& why) {
  return why.message() +
         "; until that is mended and the daemon restarted, what was kept is known, and what would "
         "change it is refused";
}

// A disk that is full at the start: what runs goes on, and the first command would be refused.
std::string short_of_room(const std::string& state_dir) {
  constexpr std::uint64_t kFew = 64 << 10;
  struct statvfs found {};
  if (::statvfs(state_dir.c_str(), &found) != 0) return {};
  const std::uint64_t left = found.f_bavail * found.f_frsize;
  if (left >= kFew) return {};
  return "the file system of state_dir " + state_dir + " was full when the daemon started (" +
         std::to_string(left >> 10) + " KiB left): free space there";
}

// A directory of this process's own, removed with what is in it.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::error_code failed;
    std::string path = (fs::temp_directory_path(failed) / "spdld-state.XXXXXX").string();
    if (!failed && ::mkdtemp(path.data()) != nullptr) path_ = path;
  }
  ~ScratchDirectory() {
    std::error_code failed;
    if (!path_.empty()) fs::remove_all(path_, failed);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }  // empty: there is none

 private:
  std::string path_;
};

}  // namespace

Result<std::unique_ptr<Store>> Store::open(const std::string& state_dir,
                                           std::vector<uid_t> admins) {
  std::unique_ptr<Store> store(new Store(state_dir, std::move(admins)));
  std::error_code failed;
  fs::create_directories(state_dir, failed);
  Status opened;
  if (failed) {
    opened = errno_status(failed.value(), "state_dir " + state_dir + " cannot be made")
                 .with_context("make it for uid " + std::to_string(geteuid()) +
                               ", or name another with --set state_dir=DIR");
  } else {
    auto lock = StateLock::take(state_dir);
    if (!lock) return tl::unexpected<Status>(std::move(lock).error());
    store->lock_.emplace(std::move(*lock));
    if (!store->lock_->warning().empty()) store->warnings_.push_back(store->lock_->warning());
    opened = store->open_file();
  }
  // Another program that has the file open, or another version's file: no reason to forget what is
  // in it.
  if (opened.code() == Code::kAborted || opened.code() == Code::kFailedPrecondition)
    return tl::unexpected<Status>(std::move(opened));
  if (!opened.ok()) {
    store->warnings_.push_back(without_a_file(opened));
    SPDLD_TRY(store->open_empty());
  }
  if (std::string room = short_of_room(state_dir); opened.ok() && !room.empty())
    store->warnings_.push_back(std::move(room));
  return store;
}

Status Store::connect(const std::string& path, int flags) {
  sqlite3_close(std::exchange(db_, nullptr));
  // Where a lock cannot be had, SQLite's own would fail, too.
  const char* const vfs = lock_ && lock_->held() ? nullptr : "unix-none";
  if (sqlite3_open_v2(path.c_str(), &db_, flags | SQLITE_OPEN_NOMUTEX, vfs) != SQLITE_OK)
    return failure("opened");
  constexpr int kBusyTimeoutMs = 5000;
  sqlite3_busy_timeout(db_, kBusyTimeoutMs);
  return {};
}

Status Store::open_file() {
  MutexLock lock(mutex_);
  const bool writable = ::access(state_dir_.c_str(), W_OK | X_OK) == 0;
  Status trouble = writable ? Status() : cannot_write(state_dir_, errno);
  Status opened =
      connect(path_, writable ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);
  if (opened.ok() && writable) {
    ::chmod(path_.c_str(), S_IRUSR | S_IWUSR);  // job names and resolved env are nobody else's
    if (sqlite3_db_readonly(db_, "main") == 1) trouble = cannot_write(path_, EACCES);
  }
  if (opened.ok()) opened = trouble.ok() ? migrate() : check_current();
  if (opened.ok() && trouble.ok()) return {};
  if (opened.code() == Code::kFailedPrecondition || opened.code() == Code::kAborted) return opened;
  if (!opened.ok()) {
    // It may be readable all the same: as an earlier version wrote it, or as a daemon left it that
    // died while it wrote.
    if (Status copied = copy_to_memory(); !copied.ok()) return trouble.ok() ? opened : trouble;
  }
  if (sqlite3_exec(db_, "PRAGMA query_only = 1", nullptr, nullptr, nullptr) != SQLITE_OK)
    return failure("read");
  warnings_.push_back(read_only(trouble.ok() ? opened : trouble));
  return {};
}

Status Store::open_empty() {
  MutexLock lock(mutex_);
  SPDLD_TRY(connect(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  return migrate();
}

Status Store::copy_to_memory() {
  const ScratchDirectory scratch;
  if (scratch.path().empty()) return Status(Code::kUnavailable, "there is no room for a copy");
  const std::string copy = scratch.path() + "/spdld.sqlite";
  std::error_code failed;
  fs::copy_file(path_, copy, failed);
  if (failed) return errno_status(failed.value(), "reading " + path_);
  if (fs::exists(path_ + "-journal", failed))
    fs::copy_file(path_ + "-journal", copy + "-journal", failed);
  if (failed) return errno_status(failed.value(), "reading " + path_ + "-journal");
  for (const std::string& name : {copy, copy + "-journal"})
    fs::permissions(name, fs::perms::owner_read | fs::perms::owner_write, failed);
  SPDLD_TRY(connect(copy, SQLITE_OPEN_READWRITE));
  SPDLD_ASSIGN(const std::int64_t known, schema_version());
  if (known == 0) return Status(Code::kNotFound, path_ + " holds nothing yet");
  sqlite3* const from = std::exchange(db_, nullptr);
  Status copied = connect(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  if (copied.ok()) {
    sqlite3_backup* const backup = sqlite3_backup_init(db_, "main", from, "main");
    if (backup != nullptr) sqlite3_backup_step(backup, -1);
    if (backup == nullptr || sqlite3_backup_finish(backup) != SQLITE_OK) copied = failure("read");
  }
  sqlite3_close(from);
  SPDLD_TRY(std::move(copied));
  return migrate();
}

Result<std::int64_t> Store::schema_version() {
  Statement version(db_, "PRAGMA user_version");
  if (version.step() != SQLITE_ROW) return tl::unexpected<Status>(failure("read"));
  const std::int64_t known = version.number(0);
  if (known > kSchemaVersion)
    return error(Code::kFailedPrecondition, path_ + " was written by a newer spdld (schema " +
                                                std::to_string(known) +
                                                "): upgrade, or name another state_dir");
  return known;
}

Status Store::check_current() {
  SPDLD_ASSIGN(const std::int64_t known, schema_version());
  if (known == kSchemaVersion) return {};
  return Status(Code::kUnavailable,
                path_ + " was written by an earlier spdld (schema " + std::to_string(known) + ")");
}

Status Store::name_by_owner() {
  // Until now, root was an admin whatever the configuration said.
  const auto shares = [this](uid_t uid) {
    return uid == 0 || uid == ::geteuid() ||
           std::find(admins_.begin(), admins_.end(), uid) != admins_.end();
  };
  std::map<std::string, std::string> ids;  // by the name until now
  std::set<uid_t> others;                  // users whose names are their own
  {
    Statement own(db_,
                  "SELECT name, owner FROM pipelines AS p WHERE NOT EXISTS (SELECT 1 FROM (SELECT "
                  "uid, pipeline FROM jobs UNION SELECT uid, pipeline FROM positions) WHERE "
                  "pipeline = p.name AND uid <> p.owner)");
    int state = own.step();
    for (; state == SQLITE_ROW; state = own.step()) {
      const auto owner = static_cast<uid_t>(own.number(1));
      if (shares(owner)) continue;
      ids[own.text(0)] = pipeline_id({.uid = owner, .shared = false}, own.text(0));
    }
    if (state != SQLITE_DONE) return failure("read");
  }
  const auto change = [this](const std::string& sql, const auto& bind)
                          SPDLD_REQUIRES(mutex_) -> Status {
    Statement statement(db_, sql.c_str());
    bind(statement);
    return statement.step() == SQLITE_DONE ? Status() : failure("written");
  };
  for (const auto& [name, id] : ids) {
    for (const char* table : {"pipelines", "revisions"})
      SPDLD_TRY(
          change(std::string("UPDATE ") + table + " SET name = ? WHERE name = ?",
                 [&id = id, &name = name](Statement& rename) { rename.bind(id).bind(name); }));
    spdlog::info("pipeline '{}' is called '{}' from now on: every user has names of its own", name,
                 id);
  }
  // What is kept of jobs, of which the pipeline may be gone.
  for (const std::string table : {"jobs", "positions", "replaced", "ended", "failures"}) {
    {
      Statement users(db_, ("SELECT DISTINCT uid FROM " + table).c_str());
      int state = users.step();
      for (; state == SQLITE_ROW; state = users.step()) {
        const auto uid = static_cast<uid_t>(users.number(0));
        if (!shares(uid)) others.insert(uid);
      }
      if (state != SQLITE_DONE) return failure("read");
    }
    for (const uid_t uid : others)
      SPDLD_TRY(change("UPDATE " + table +
                           " SET pipeline = uid || '/' || pipeline WHERE uid = ? AND pipeline NOT "
                           "IN (SELECT name FROM pipelines)",
                       [&](Statement& rename) { rename.bind(static_cast<std::int64_t>(uid)); }));
  }
  return {};
}

Status Store::migrate() {
  SPDLD_ASSIGN(const std::int64_t known, schema_version());
  // Rollback journal, not WAL: it needs no shared memory, so state_dir may lie on any file system.
  if (sqlite3_exec(db_, "PRAGMA synchronous = FULL", nullptr, nullptr, nullptr) != SQLITE_OK)
    return failure("read");
  if (known == kSchemaVersion) return {};  // a full disk must not keep the daemon from starting
  SPDLD_TRY(begin());
  const auto run = [&](const std::string& sql) SPDLD_REQUIRES(mutex_) -> Status {
    const int done = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
    return done == SQLITE_OK ? Status() : failure("written");
  };
  const auto change = [&]() SPDLD_REQUIRES(mutex_) -> Status {
    // Schema 1 kept jobs in a form that says too little: what they had replaced stays, the jobs are
    // to be declared anew.
    if (known == 1) SPDLD_TRY(run("DROP TABLE IF EXISTS jobs"));
    SPDLD_TRY(run(kSchema));
    if (known < kFirstWithIds) SPDLD_TRY(name_by_owner());
    return run("PRAGMA user_version = " + std::to_string(kSchemaVersion));
  };
  return finish(change());
}

}  // namespace spdld::session
