// SPDX-License-Identifier: Apache-2.0
// Swaps that are prepared and not committed yet: a part of Store.
#include <sqlite3.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "session/statement.h"
#include "session/store.h"
#include "session/stored_json.h"

namespace spdld::session {
namespace {

// For so long after its hold a prepared swap that was committed is known to have been.
constexpr std::int64_t kKeepCommittedMs = 3'600'000;

}  // namespace

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

}  // namespace spdld::session
