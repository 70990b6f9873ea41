// SPDX-License-Identifier: Apache-2.0
#include "store/database.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "base/descriptors.h"
#include "base/failpoint.h"
#include "posix/unique_fd.h"
#include "posix/zombie.h"
#include "source/bytes/whole_file.h"

namespace spdld::store {
namespace {

namespace fs = std::filesystem;

// Each change of a table, or of a text in one, raises the version.
constexpr int kSchemaVersion = 6;
constexpr int kApplicationId = 0x5350444c;  // "SPDL"

constexpr const char* kSchema = R"sql(
  CREATE TABLE pipelines (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, owner INTEGER NOT NULL, request TEXT NOT NULL);
  CREATE TABLE revisions (
    name TEXT NOT NULL, version INTEGER NOT NULL, applied_unix_ms INTEGER NOT NULL,
    applied_by INTEGER NOT NULL, digest TEXT NOT NULL, note TEXT NOT NULL, request TEXT NOT NULL,
    PRIMARY KEY (name, version));
  CREATE TABLE files (path TEXT PRIMARY KEY, digest TEXT NOT NULL);
  CREATE TABLE jobs (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, declared INTEGER NOT NULL,
    kept_unix_ms INTEGER NOT NULL, state TEXT NOT NULL, PRIMARY KEY (uid, job, pipeline));
  CREATE TABLE positions (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, epoch INTEGER NOT NULL,
    step INTEGER NOT NULL, position INTEGER NOT NULL, order_text TEXT NOT NULL,
    run INTEGER NOT NULL, branch INTEGER NOT NULL, turn INTEGER NOT NULL,
    kept_unix_ms INTEGER NOT NULL, PRIMARY KEY (uid, job, pipeline)) WITHOUT ROWID;
  CREATE TABLE replaced (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, item INTEGER NOT NULL,
    PRIMARY KEY (uid, job, pipeline, item)) WITHOUT ROWID;
  CREATE TABLE ended (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL,
    ended_unix_ms INTEGER NOT NULL, state TEXT NOT NULL, PRIMARY KEY (uid, job, pipeline));
  CREATE TABLE failures (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, number INTEGER NOT NULL,
    state TEXT NOT NULL, PRIMARY KEY (uid, job, pipeline, number));
  CREATE TABLE tuned (key TEXT PRIMARY KEY, value TEXT NOT NULL);
  CREATE TABLE drain (since_unix_ms INTEGER NOT NULL, uid INTEGER NOT NULL);
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

// A disk that is full at the start: running jobs go on, and the first command would be refused.
std::string short_of_room(const std::string& state_dir) {
  constexpr std::uint64_t kFew = 64 << 10;
  struct statvfs found {};
  if (::statvfs(state_dir.c_str(), &found) != 0) return {};
  const std::uint64_t left = found.f_bavail * found.f_frsize;
  if (left >= kFew) return {};
  return "the file system of state_dir " + state_dir + " was full when the daemon started (" +
         std::to_string(left >> 10) + " KiB left): free space there";
}

// A directory of this process's own, removed with its files.
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

// None: the directory cannot be locked, as a warning says. kAlreadyExists names the daemon that has
// it.
Result<std::optional<LockFile>> take_lock(const std::string& state_dir,
                                          std::vector<std::string>& warnings) {
  const std::string path = state_dir + "/spdld.lock";
  auto lock = LockFile::take(path, LockFile::Kind::kOfd);
  if (lock) return std::optional(*std::move(lock));
  // A daemon that cannot write needs no lock, and must not read another one's changes half-way.
  const std::string holder =
      lock.error().code() == Code::kAlreadyExists ? lock.error().message() : LockFile::holder(path);
  if (!holder.empty())
    return error(Code::kAlreadyExists,
                 "state_dir " + state_dir + " belongs to another daemon (" + holder +
                     "), and two would overwrite each other's jobs: stop that one, or give this "
                     "one a directory of its own with --set state_dir=DIR (one for each node, "
                     "where nodes share a file system)");
  warnings.push_back("state_dir " + state_dir + " cannot be locked (" + lock.error().message() +
                     "): nothing keeps another daemon from using it, too; give each a state_dir "
                     "of its own");
  return std::optional<LockFile>();
}

// The process that has SQLite's locks of the file, as far as this PID namespace shows it.
pid_t locked_by(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const bool held = fd && ::fcntl(fd.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  return held ? lock.l_pid : 0;
}

// A killed process keeps its locks of the file while a thread of it hangs in the kernel, and writes
// nothing any more. A copy in its place has no locks; a journal beside it is found by its name.
Status leave_locks_of_the_dead(const std::string& path) {
  if (!is_zombie(locked_by(path))) return {};
  SPDLD_ASSIGN(const std::string bytes, source::read_whole_file(path));
  return source::write_whole_file(path, bytes);
}

}  // namespace

Result<std::unique_ptr<Database>> Database::open(const std::string& state_dir,
                                                 std::optional<LockFile>& lock,
                                                 std::vector<std::string>& warnings) {
  std::error_code failed;
  fs::create_directories(state_dir, failed);
  Status opened;
  if (failed) {
    opened = errno_status(failed.value(), "state_dir " + state_dir + " cannot be made")
                 .with_context("make it for uid " + std::to_string(geteuid()) +
                               ", or name another with --set state_dir=DIR");
  } else {
    SPDLD_ASSIGN(lock, take_lock(state_dir, warnings));
  }
  std::unique_ptr<Database> database(new Database(state_dir, lock.has_value()));
  if (opened.ok()) opened = database->open_file(warnings);
  // Another program has the file open, or another build wrote it: its records must not be
  // forgotten.
  if (opened.code() == Code::kAborted || opened.code() == Code::kFailedPrecondition)
    return tl::unexpected<Status>(std::move(opened));
  if (!opened.ok()) {
    warnings.push_back(without_a_file(opened));
    SPDLD_TRY(database->connect(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
    SPDLD_TRY(database->prepare_writes());
  }
  if (std::string room = short_of_room(state_dir); opened.ok() && !room.empty())
    warnings.push_back(std::move(room));
  return database;
}

Database::~Database() { sqlite3_close(db_); }

Status Database::connect(const std::string& path, int flags) {
  sqlite3_close(std::exchange(db_, nullptr));
  // Where a lock cannot be had, SQLite's own would fail, too.
  const char* const vfs = locked_ ? nullptr : "unix-none";
  if (sqlite3_open_v2(path.c_str(), &db_, flags | SQLITE_OPEN_NOMUTEX, vfs) != SQLITE_OK)
    return failure("opened");
  constexpr int kBusyTimeoutMs = 5000;
  sqlite3_busy_timeout(db_, kBusyTimeoutMs);
  return {};
}

Status Database::open_file(std::vector<std::string>& warnings) {
  const bool writable = ::access(state_dir_.c_str(), W_OK | X_OK) == 0;
  Status trouble = writable ? Status() : cannot_write(state_dir_, errno);
  Status opened = writable ? leave_locks_of_the_dead(path_) : Status();
  if (opened.ok())
    opened = connect(path_,
                     writable ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);
  if (opened.ok() && writable) {
    ::chmod(path_.c_str(), S_IRUSR | S_IWUSR);  // job names and resolved env are nobody else's
    if (sqlite3_db_readonly(db_, "main") == 1) trouble = cannot_write(path_, EACCES);
  }
  if (opened.ok()) opened = trouble.ok() ? prepare_writes() : check_written();
  if (opened.ok() && trouble.ok()) return {};
  if (opened.code() == Code::kFailedPrecondition || opened.code() == Code::kAborted) return opened;
  if (!opened.ok()) {
    // It may be readable all the same, as a daemon left it that died while it wrote.
    if (Status copied = copy_to_memory(); !copied.ok()) return trouble.ok() ? opened : trouble;
  }
  if (sqlite3_exec(db_, "PRAGMA query_only = 1", nullptr, nullptr, nullptr) != SQLITE_OK)
    return failure("read");
  warnings.push_back(read_only(trouble.ok() ? opened : trouble));
  return {};
}

Status Database::copy_to_memory() {
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
  SPDLD_TRY(check_written());
  sqlite3* const from = std::exchange(db_, nullptr);
  Status copied = connect(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  if (copied.ok()) {
    sqlite3_backup* const backup = sqlite3_backup_init(db_, "main", from, "main");
    if (backup != nullptr) sqlite3_backup_step(backup, -1);
    if (backup == nullptr || sqlite3_backup_finish(backup) != SQLITE_OK) copied = failure("read");
  }
  sqlite3_close(from);
  return copied;
}

Status Database::check_written() {
  SPDLD_ASSIGN(const bool empty, is_new());
  return empty ? Status(Code::kNotFound, path_ + " holds nothing yet") : Status();
}

Result<bool> Database::is_new() {
  Statement header(db_,
                   "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) FROM "
                   "pragma_application_id, pragma_user_version");
  if (header.step() != SQLITE_ROW) return tl::unexpected<Status>(failure("read"));
  const std::int64_t application = header.number(0);
  const std::int64_t schema = header.number(1);
  if (application == 0 && schema == 0 && header.number(2) == 0) return true;
  if (application == kApplicationId && schema == kSchemaVersion) return false;
  const std::string writer = application == kApplicationId
                                 ? "another build of spdld (schema " + std::to_string(schema) + ")"
                             : application == 0 ? std::string("an spdld from before schema 1")
                                                : std::string("another program");
  return error(Code::kFailedPrecondition,
               "state_dir " + state_dir_ + " cannot be used: " + path_ + " was written by " +
                   writer + ", and this spdld reads schema " + std::to_string(kSchemaVersion) +
                   " alone; move the directory away, or name another with --set state_dir=DIR. "
                   "Pipelines that were applied, declared jobs and where jobs were are not taken "
                   "over: apply and declare them again; ranks go on by their own cursors");
}

// Rollback journal, not WAL: it needs no shared memory, so state_dir may lie on any file system.
Status Database::prepare_writes() {
  if (sqlite3_exec(db_, "PRAGMA synchronous = FULL", nullptr, nullptr, nullptr) != SQLITE_OK)
    return failure("read");
  SPDLD_ASSIGN(const bool create, is_new());
  if (!create) return {};  // a full disk must not keep the daemon from starting
  const std::string sql = kSchema + ("PRAGMA application_id = " + std::to_string(kApplicationId) +
                                     "; PRAGMA user_version = " + std::to_string(kSchemaVersion));
  return transact([&](Database&) {
    const int done = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
    return done == SQLITE_OK ? Status() : failure("written");
  });
}

Status Database::failure(const char* done) const {
  const int code = sqlite3_errcode(db_);
  note_descriptor_shortage(sqlite3_system_errno(db_));
  const std::string message = path_ + " could not be " + done + ": " + sqlite3_errmsg(db_);
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
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Status(Code::kAborted, message + "; end the program that has it open, and try again");
    case SQLITE_IOERR:
      return Status(Code::kUnavailable,
                    message + "; is the file system of state_dir full or failing?");
    default: return Status(Code::kUnavailable, message);
  }
}

Status Database::finish(Status outcome) {
  if (outcome.ok()) {
    SPDLD_FAILPOINT("store.commit");
    outcome = run("COMMIT");
    if (outcome.ok()) return outcome;
  }
  (void)run("ROLLBACK");  // a failed COMMIT may have ended it already
  return outcome;
}

}  // namespace spdld::store
