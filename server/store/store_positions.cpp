// SPDX-License-Identifier: Apache-2.0
// How far jobs were acknowledged: a part of Store.
#include <sqlite3.h>

#include <cstdint>
#include <optional>

#include "store/statement.h"
#include "store/store.h"

namespace spdld::store {

Status Store::write_position(const StoredPosition& position) {
  note_key(position.key);
  Statement statement(db_, "INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  statement.bind(position.key)
      .bind(static_cast<std::int64_t>(position.at.epoch))
      .bind(static_cast<std::int64_t>(position.at.step))
      .bind(static_cast<std::int64_t>(position.position))
      .bind(position.order)
      .bind(static_cast<std::int64_t>(position.kept_unix_ms));
  return statement.step() == SQLITE_DONE ? Status() : failure("written");
}

Result<std::optional<StoredPosition>> Store::position(const job::JobKey& key) {
  if (!may_know(key)) return std::optional<StoredPosition>();
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

}  // namespace spdld::store
