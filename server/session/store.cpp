// SPDX-License-Identifier: Apache-2.0
#include "session/store.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

namespace spdld::session {
namespace {

using nlohmann::json;

constexpr int kSchemaVersion = 1;

constexpr const char* kSchema = R"sql(
  CREATE TABLE IF NOT EXISTS pipelines (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, owner INTEGER NOT NULL, request TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, digest TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS jobs (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, state TEXT NOT NULL,
    PRIMARY KEY (uid, job, pipeline));
  CREATE TABLE IF NOT EXISTS replaced (
    uid INTEGER NOT NULL, job TEXT NOT NULL, pipeline TEXT NOT NULL, item INTEGER NOT NULL,
    PRIMARY KEY (uid, job, pipeline, item)) WITHOUT ROWID;
)sql";

// What is not UTF-8 cannot be kept, and would not be the same when it came back.
Result<std::string> text_of(const json& value, const std::string& what) {
  try {
    return value.dump();
  } catch (const json::exception&) {
    return error(Code::kInvalidArgument, what +
                                             " cannot be kept: its name, text or one of its "
                                             "variables is not UTF-8; write it in UTF-8");
  }
}

Result<std::string> request_text(const StoredPipeline& pipeline) {
  const ApplyRequest& request = pipeline.request;
  return text_of(json{{"yaml", request.yaml},
                      {"file", request.file},
                      {"vars", request.vars},
                      {"env", request.env}},
                 "pipeline '" + pipeline.name + "'");
}

ApplyRequest parse_request(const std::string& text) {
  const json value = json::parse(text);
  ApplyRequest request;
  value.at("yaml").get_to(request.yaml);
  value.at("file").get_to(request.file);
  value.at("vars").get_to(request.vars);
  value.at("env").get_to(request.env);
  return request;
}

Result<std::string> job_text(const StoredJob& job) {
  json cuts = json::array();
  for (const Timeline::Cut& cut : job.cuts)
    cuts.push_back({cut.from.epoch, cut.from.step, cut.position, cut.num_shards});
  json value{{"num_shards", job.request.num_shards},
             {"replicas", job.request.replicas},
             {"vars", job.request.vars},
             {"manual", job.request.epochs == EpochMode::kManual},
             {"max_epochs", job.request.max_epochs},
             {"seed", job.seed},
             {"open_epochs", job.open_epochs},
             {"start", {job.start.epoch, job.start.step}},
             {"cuts", cuts}};
  if (job.request.batch_size) value["batch_size"] = *job.request.batch_size;
  return text_of(value, "job '" + job.key.job + "'");
}

StoredJob parse_job(JobKey key, const std::string& text) {
  const json value = json::parse(text);
  StoredJob job;
  job.request.job = key.job;
  job.request.pipeline = key.pipeline;
  job.key = std::move(key);
  value.at("num_shards").get_to(job.request.num_shards);
  value.at("replicas").get_to(job.request.replicas);
  value.at("vars").get_to(job.request.vars);
  job.request.epochs = value.at("manual").get<bool>() ? EpochMode::kManual : EpochMode::kAuto;
  value.at("max_epochs").get_to(job.request.max_epochs);
  value.at("seed").get_to(job.seed);
  job.request.seed = job.seed;
  value.at("open_epochs").get_to(job.open_epochs);
  job.start = {value.at("start").at(0).get<std::uint64_t>(),
               value.at("start").at(1).get<std::uint64_t>()};
  for (const json& cut : value.at("cuts"))
    job.cuts.push_back({.from = {cut.at(0).get<std::uint64_t>(), cut.at(1).get<std::uint64_t>()},
                        .position = cut.at(2).get<std::uint64_t>(),
                        .num_shards = cut.at(3).get<std::uint32_t>()});
  if (value.contains("batch_size"))
    job.request.batch_size = value["batch_size"].get<std::uint64_t>();
  return job;
}

}  // namespace

// A prepared statement, finalised when it goes.
class Store::Statement {
 public:
  Statement(sqlite3* db, const char* sql) { sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr); }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(std::int64_t value) {
    sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  Statement& bind(const std::string& value) {
    sqlite3_bind_text(statement_, ++bound_, value.data(), static_cast<int>(value.size()),
                      SQLITE_TRANSIENT);
    return *this;
  }
  Statement& bind(const JobKey& key) {
    return bind(static_cast<std::int64_t>(key.uid)).bind(key.job).bind(key.pipeline);
  }
  int step() { return statement_ == nullptr ? SQLITE_ERROR : sqlite3_step(statement_); }
  std::int64_t number(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return bytes == nullptr
               ? std::string()
               : std::string(bytes,
                             static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

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
  {
    Statement version(db_, "PRAGMA user_version");
    if (version.step() != SQLITE_ROW) return failure("read");
    if (version.number(0) > kSchemaVersion)
      return Status(Code::kFailedPrecondition, path_ + " was written by a newer spdld (schema " +
                                                   std::to_string(version.number(0)) +
                                                   "): upgrade, or name another state_dir");
  }
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

Status Store::put_pipeline(const StoredPipeline& pipeline) {
  SPDLD_ASSIGN(const std::string request, request_text(pipeline));
  MutexLock lock(mutex_);
  Statement statement(db_, "INSERT OR REPLACE INTO pipelines VALUES (?, ?, ?, ?)");
  statement.bind(pipeline.name)
      .bind(static_cast<std::int64_t>(pipeline.version))
      .bind(static_cast<std::int64_t>(pipeline.owner))
      .bind(request);
  return statement.step() == SQLITE_DONE ? Status() : failure("written");
}

Status Store::remove_pipeline(const std::string& name) {
  MutexLock lock(mutex_);
  Statement statement(db_, "DELETE FROM pipelines WHERE name = ?");
  statement.bind(name);
  return statement.step() == SQLITE_DONE ? Status() : failure("written");
}

Result<std::vector<StoredPipeline>> Store::pipelines() {
  MutexLock lock(mutex_);
  Statement statement(db_, "SELECT name, version, owner, request FROM pipelines ORDER BY name");
  std::vector<StoredPipeline> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step()) {
    try {
      found.push_back({.name = statement.text(0),
                       .version = static_cast<std::uint32_t>(statement.number(1)),
                       .owner = static_cast<uid_t>(statement.number(2)),
                       .request = parse_request(statement.text(3))});
    } catch (const json::exception& broken) {
      return error(Code::kDataLoss, path_ + ": pipeline '" + statement.text(0) +
                                        "' cannot be read: " + broken.what());
    }
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

Status Store::put_job(const StoredJob& job) {
  SPDLD_ASSIGN(const std::string state, job_text(job));
  MutexLock lock(mutex_);
  Statement statement(db_, "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?)");
  statement.bind(job.key).bind(state);
  return statement.step() == SQLITE_DONE ? Status() : failure("written");
}

Status Store::remove_job(const JobKey& key) {
  MutexLock lock(mutex_);
  for (const char* sql : {"DELETE FROM jobs WHERE uid = ? AND job = ? AND pipeline = ?",
                          "DELETE FROM replaced WHERE uid = ? AND job = ? AND pipeline = ?"}) {
    Statement statement(db_, sql);
    if (statement.bind(key).step() != SQLITE_DONE) return failure("written");
  }
  return {};
}

Result<std::vector<StoredJob>> Store::jobs() {
  MutexLock lock(mutex_);
  Statement statement(db_,
                      "SELECT uid, job, pipeline, state FROM jobs ORDER BY uid, job, pipeline");
  std::vector<StoredJob> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step()) {
    try {
      found.push_back(parse_job({.uid = static_cast<uid_t>(statement.number(0)),
                                 .job = statement.text(1),
                                 .pipeline = statement.text(2)},
                                statement.text(3)));
    } catch (const json::exception& broken) {
      return error(Code::kDataLoss,
                   path_ + ": job '" + statement.text(1) + "' cannot be read: " + broken.what());
    }
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
