// SPDX-License-Identifier: Apache-2.0
// Which listings are referred to: a part of Store.
#include <sqlite3.h>

#include <set>
#include <string>

#include "store/statement.h"
#include "store/store.h"
#include "store/stored_json.h"

namespace spdld::store {

Result<std::set<std::string>> Store::datasets() {
  std::set<std::string> found;
  MutexLock lock(mutex_);
  // `take` gets each text of a column.
  const auto each = [&](const char* sql, const auto& take) SPDLD_REQUIRES(mutex_) -> Status {
    Statement statement(db_, sql);
    int state = statement.step();
    for (; state == SQLITE_ROW; state = statement.step()) {
      if (Status taken = take(statement.text(0)); !taken.ok())
        return unreadable("a record", taken).value();
    }
    return state == SQLITE_DONE ? Status() : failure("read");
  };
  const auto request = [&found](const std::string& text) -> Status {
    SPDLD_ASSIGN(const job::ApplyRequest read, parse_request(text));
    found.insert(read.dataset);
    return {};
  };
  const auto job = [&found](const std::string& text) -> Status {
    SPDLD_ASSIGN(const StoredJob read, parse_job(text));
    for (const StoredPhase& phase : read.phases) found.insert(phase.request.dataset);
    return {};
  };
  SPDLD_TRY(each("SELECT request FROM pipelines", request));
  SPDLD_TRY(each("SELECT request FROM revisions", request));
  SPDLD_TRY(each("SELECT state FROM jobs", job));
  return found;
}

}  // namespace spdld::store
