// SPDX-License-Identifier: Apache-2.0
// How jobs ended, and what failed in them: a part of Store.
#include <sqlite3.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/failure_log.h"
#include "store/ended_json.h"
#include "store/statement.h"
#include "store/store.h"

namespace spdld::store {

Status Store::write_end(const StoredJob& job) {
  if (job.end) {
    Statement statement(db_, "INSERT OR REPLACE INTO ended VALUES (?, ?, ?, ?, ?)");
    statement.bind(job.key)
        .bind(static_cast<std::int64_t>(job.end->end.unix_ms))
        .bind(end_text(*job.end));
    if (statement.step() != SQLITE_DONE) return failure("written");
  }
  for (const engine::LoggedFailure& kept : job.failures) {
    Statement statement(db_, "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?)");
    statement.bind(job.key)
        .bind(static_cast<std::int64_t>(kept.number))
        .bind(failure_text(kept.facts));
    if (statement.step() != SQLITE_DONE) return failure("written");
  }
  for (const std::uint64_t item : job.replaced) {
    Statement statement(db_, "INSERT OR IGNORE INTO replaced VALUES (?, ?, ?, ?)");
    statement.bind(job.key).bind(static_cast<std::int64_t>(item));
    if (statement.step() != SQLITE_DONE) return failure("written");
  }
  if (job.failures.empty()) return {};
  const auto last = static_cast<std::int64_t>(job.failures.back().number);
  Statement statement(db_,
                      "DELETE FROM failures WHERE uid = ? AND job = ? AND pipeline = ? AND "
                      "number <= ?");
  statement.bind(job.key).bind(last - static_cast<std::int64_t>(engine::FailureLog::kKept));
  return statement.step() == SQLITE_DONE ? Status() : failure("written");
}

Result<std::vector<StoredEnd>> Store::ended_jobs(std::optional<uid_t> uid) {
  MutexLock lock(mutex_);
  Statement statement(db_,
                      "SELECT uid, job, pipeline, state FROM ended WHERE ?1 < 0 OR uid = ?1 "
                      "ORDER BY ended_unix_ms DESC LIMIT ?2");
  statement.bind(uid ? std::int64_t{*uid} : -1).bind(static_cast<std::int64_t>(kMostEnded));
  std::vector<StoredEnd> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step()) {
    auto end = parse_end(statement.text(3));
    if (!end) return unreadable("how job '" + statement.text(1) + "' ended", end.error());
    const job::JobKey key = statement.key();
    end->view.owner = key.uid;
    end->view.job = key.job;
    end->view.pipeline = key.pipeline;
    for (job::StageView& stage : end->stages) {
      stage.job = key.job;
      stage.pipeline = key.pipeline;
    }
    found.push_back(std::move(*end));
  }
  if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  return found;
}

Result<std::vector<Store::KeptFailure>> Store::failures(std::optional<uid_t> uid,
                                                        const std::string& job) {
  std::vector<KeptFailure> found;
  std::vector<std::string> texts;
  {
    MutexLock lock(mutex_);
    Statement statement(db_,
                        "SELECT uid, job, pipeline, number, state FROM failures WHERE "
                        "(?1 < 0 OR uid = ?1) AND (?2 = '' OR job = ?2) ORDER BY rowid DESC "
                        "LIMIT ?3");
    statement.bind(uid ? std::int64_t{*uid} : -1)
        .bind(job)
        .bind(static_cast<std::int64_t>(kMostFailures));
    int state = statement.step();
    for (; state == SQLITE_ROW; state = statement.step()) {
      found.push_back({statement.key(),
                       {.number = static_cast<std::uint64_t>(statement.number(3)), .facts = {}}});
      texts.push_back(statement.text(4));
    }
    if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    auto facts = parse_failure(texts[i]);
    if (!facts) return unreadable("a failure of job '" + found[i].key.job + "'", facts.error());
    found[i].failure.facts = std::move(*facts);
  }
  return found;
}

Result<std::uint64_t> Store::last_failure(const job::JobKey& key) {
  if (!may_know(key)) return 0;
  MutexLock lock(mutex_);
  Statement statement(db_,
                      "SELECT MAX(number) FROM failures WHERE uid = ? AND job = ? AND "
                      "pipeline = ?");
  if (statement.bind(key).step() != SQLITE_ROW) return tl::unexpected<Status>(failure("read"));
  return static_cast<std::uint64_t>(statement.number(0));
}

}  // namespace spdld::store
