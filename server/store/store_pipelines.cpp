// SPDX-License-Identifier: Apache-2.0
// Pipelines, their versions, and the files that they were applied from: a part of Store.
#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "store/statement.h"
#include "store/store.h"
#include "store/stored_json.h"

namespace spdld::store {

Status Store::write_current(const StoredPipeline& pipeline, const std::string& request) {
  Statement current(db_, "INSERT OR REPLACE INTO pipelines VALUES (?, ?, ?, ?)");
  current.bind(pipeline.id)
      .bind(static_cast<std::int64_t>(pipeline.version))
      .bind(static_cast<std::int64_t>(pipeline.owner))
      .bind(request);
  return current.step() == SQLITE_DONE ? Status() : failure("written");
}

Status Store::put_pipeline(const StoredPipeline& pipeline, const StoredRevision& revision,
                           const std::vector<StoredJob>& jobs) {
  SPDLD_ASSIGN(const std::string request, request_text(pipeline.id, pipeline.request));
  MutexLock lock(mutex_);
  SPDLD_TRY(begin());
  const auto write = [&]() SPDLD_REQUIRES(mutex_) -> Status {
    SPDLD_TRY(write_current(pipeline, request));
    // The same version again keeps its first mention.
    Statement history(db_, "INSERT OR IGNORE INTO revisions VALUES (?, ?, ?, ?, ?, ?, ?)");
    history.bind(pipeline.id)
        .bind(static_cast<std::int64_t>(revision.version))
        .bind(static_cast<std::int64_t>(revision.applied_unix_ms))
        .bind(static_cast<std::int64_t>(revision.applied_by))
        .bind(revision.content_digest)
        .bind(revision.note)
        .bind(request);
    if (history.step() != SQLITE_DONE) return failure("written");
    Statement old(db_, "DELETE FROM revisions WHERE name = ? AND version <= ?");
    old.bind(pipeline.id).bind(static_cast<std::int64_t>(revision.version) - kMaxRevisions);
    if (old.step() != SQLITE_DONE) return failure("written");
    for (const StoredJob& job : jobs) SPDLD_TRY(write_job(job));
    return {};
  };
  return finish(write());
}

Status Store::take_back(const StoredPipeline& before, const std::vector<StoredJob>& jobs) {
  SPDLD_ASSIGN(const std::string request, request_text(before.id, before.request));
  MutexLock lock(mutex_);
  SPDLD_TRY(begin());
  const auto write = [&]() SPDLD_REQUIRES(mutex_) -> Status {
    SPDLD_TRY(write_current(before, request));
    Statement later(db_, "DELETE FROM revisions WHERE name = ? AND version > ?");
    later.bind(before.id).bind(static_cast<std::int64_t>(before.version));
    if (later.step() != SQLITE_DONE) return failure("written");
    for (const StoredJob& job : jobs) SPDLD_TRY(write_job(job));
    return {};
  };
  return finish(write());
}

Status Store::remove_pipeline(const std::string& id) {
  MutexLock lock(mutex_);
  SPDLD_TRY(begin());
  Status removed;
  for (const char* sql :
       {"DELETE FROM pipelines WHERE name = ?", "DELETE FROM revisions WHERE name = ?"}) {
    Statement statement(db_, sql);
    if (removed.ok() && statement.bind(id).step() != SQLITE_DONE) removed = failure("written");
  }
  return finish(std::move(removed));
}

Result<std::vector<StoredPipeline>> Store::pipelines() {
  MutexLock lock(mutex_);
  Statement statement(db_, "SELECT name, version, owner, request FROM pipelines ORDER BY name");
  std::vector<StoredPipeline> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step()) {
    auto request = parse_request(statement.text(3));
    if (!request) return unreadable("pipeline '" + statement.text(0) + "'", request.error());
    found.push_back({.id = statement.text(0),
                     .version = static_cast<std::uint32_t>(statement.number(1)),
                     .owner = static_cast<uid_t>(statement.number(2)),
                     .request = std::move(*request)});
  }
  if (state != SQLITE_DONE) return tl::unexpected<Status>(failure("read"));
  return found;
}

Result<std::vector<StoredRevision>> Store::history(const std::string& id) {
  MutexLock lock(mutex_);
  Statement statement(db_,
                      "SELECT version, applied_unix_ms, applied_by, digest, note, request FROM "
                      "revisions WHERE name = ? ORDER BY version");
  statement.bind(id);
  std::vector<StoredRevision> found;
  int state = statement.step();
  for (; state == SQLITE_ROW; state = statement.step()) {
    auto request = parse_request(statement.text(5));
    if (!request)
      return unreadable(
          "version " + std::to_string(statement.number(0)) + " of pipeline '" + id + "'",
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

}  // namespace spdld::store
