// SPDX-License-Identifier: Apache-2.0
// Jobs, and the items that were replaced in them: a part of Store.
#include <sqlite3.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "store/statement.h"
#include "store/store.h"
#include "store/stored_json.h"

namespace spdld::store {

bool Store::may_know(const job::JobKey& key) const {
  MutexLock lock(keys_mutex_);
  return !keys_ || keys_->contains(key);
}

void Store::note_key(const job::JobKey& key) {
  MutexLock lock(keys_mutex_);
  if (keys_) keys_->insert(key);
}

Status Store::read_keys() {
  std::set<job::JobKey> keys;
  {
    Statement statement(db_,
                        "SELECT uid, job, pipeline FROM jobs UNION SELECT uid, job, pipeline FROM "
                        "positions");
    int state = statement.step();
    for (; state == SQLITE_ROW; state = statement.step()) keys.insert(statement.key());
    if (state != SQLITE_DONE) return failure("read");
  }
  MutexLock lock(keys_mutex_);
  keys_ = std::move(keys);
  return {};
}

Status Store::write_job(const StoredJob& job) {
  note_key(job.key);
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
    for (const StoredJob& job : jobs) {
      SPDLD_TRY(write_job(job));
      SPDLD_TRY(write_end(job));
    }
    for (const StoredPosition& position : positions) SPDLD_TRY(write_position(position));
    return {};
  };
  return finish(write());
}

Status Store::put_new_job(const StoredJob& job) {
  MutexLock lock(mutex_);
  SPDLD_TRY(begin());
  const auto write = [&]() SPDLD_REQUIRES(mutex_) -> Status {
    Statement old(db_, "DELETE FROM positions WHERE uid = ? AND job = ? AND pipeline = ?");
    if (old.bind(job.key).step() != SQLITE_DONE) return failure("written");
    SPDLD_TRY(write_job(job));
    return write_end(job);
  };
  return finish(write());
}

Status Store::remove_job(const job::JobKey& key) {
  MutexLock lock(mutex_);
  SPDLD_TRY(begin());
  return finish(delete_job(key));
}

Status Store::delete_job(const job::JobKey& key) {
  for (const char* sql : {"DELETE FROM jobs WHERE uid = ? AND job = ? AND pipeline = ?",
                          "DELETE FROM positions WHERE uid = ? AND job = ? AND pipeline = ?",
                          "DELETE FROM replaced WHERE uid = ? AND job = ? AND pipeline = ?",
                          "DELETE FROM ended WHERE uid = ? AND job = ? AND pipeline = ?",
                          "DELETE FROM failures WHERE uid = ? AND job = ? AND pipeline = ?"}) {
    Statement statement(db_, sql);
    if (statement.bind(key).step() != SQLITE_DONE) return failure("written");
  }
  return {};
}

Result<std::size_t> Store::forget_ended(uid_t uid, std::size_t most,
                                        const std::set<job::JobKey>& running) {
  MutexLock lock(mutex_);
  std::vector<job::JobKey> old;
  {
    Statement statement(db_,
                        "SELECT uid, job, pipeline FROM ended JOIN jobs USING (uid, job, pipeline) "
                        "WHERE uid = ? AND declared = 0 ORDER BY ended_unix_ms DESC LIMIT -1 "
                        "OFFSET ?");
    statement.bind(std::int64_t{uid}).bind(static_cast<std::int64_t>(most));
    int state = statement.step();
    for (; state == SQLITE_ROW; state = statement.step()) old.push_back(statement.key());
    if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  }
  std::erase_if(old, [&](const job::JobKey& key) { return running.contains(key); });
  if (old.empty()) return 0;
  SPDLD_TRY(begin());
  const auto write = [&]() SPDLD_REQUIRES(mutex_) -> Status {
    for (const job::JobKey& key : old) SPDLD_TRY(delete_job(key));
    return {};
  };
  SPDLD_TRY(finish(write()));
  return old.size();
}

Result<std::optional<StoredJob>> Store::job(const job::JobKey& key) {
  if (!may_know(key)) return std::optional<StoredJob>();
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
    job->key = statement.key();
    job->declared = true;
    job->kept_unix_ms = static_cast<std::uint64_t>(statement.number(3));
    found.push_back(std::move(*job));
  }
  if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  return found;
}

Result<std::vector<job::JobKey>> Store::running_jobs(std::uint64_t unix_ms) {
  MutexLock lock(mutex_);
  Statement statement(db_,
                      "SELECT uid, job, pipeline, state FROM jobs WHERE declared = 0 AND "
                      "kept_unix_ms >= ?");
  statement.bind(static_cast<std::int64_t>(unix_ms));
  std::vector<job::JobKey> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step()) {
    const auto job = parse_job(statement.text(3));
    if (!job || job->ended) continue;  // told when its ranks ask for it
    const bool is_read = std::any_of(job->members.begin(), job->members.end(), [](const auto& of) {
      using Presence = job::MemberRecord::Presence;
      return of.presence == Presence::kHere || of.presence == Presence::kExpected;
    });
    if (is_read) found.push_back(statement.key());
  }
  if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  return found;
}

Result<std::vector<job::JobKey>> Store::jobs_named(const std::string& job) {
  MutexLock lock(mutex_);
  Statement statement(db_,
                      "SELECT uid, job, pipeline FROM jobs WHERE job = ?1 UNION SELECT uid, job, "
                      "pipeline FROM positions WHERE job = ?1");
  statement.bind(job);
  std::vector<job::JobKey> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step()) found.push_back(statement.key());
  if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  return found;
}

Status Store::forget_before(std::uint64_t unix_ms) {
  MutexLock lock(mutex_);
  SPDLD_TRY(begin());
  const auto write = [&]() SPDLD_REQUIRES(mutex_) -> Status {
    for (const char* sql :
         {"DELETE FROM replaced WHERE (uid, job, pipeline) IN (SELECT uid, job, pipeline FROM jobs "
          "WHERE declared = 0 AND kept_unix_ms < ?)",
          "DELETE FROM ended WHERE (uid, job, pipeline) IN (SELECT uid, job, pipeline FROM jobs "
          "WHERE declared = 0 AND kept_unix_ms < ?)",
          "DELETE FROM failures WHERE (uid, job, pipeline) IN (SELECT uid, job, pipeline FROM jobs "
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
  SPDLD_TRY(finish(write()));
  return read_keys();
}

Result<std::set<std::uint64_t>> Store::replaced(const job::JobKey& key) {
  if (!may_know(key)) return std::set<std::uint64_t>();
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

}  // namespace spdld::store
