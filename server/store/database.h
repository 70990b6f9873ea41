// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sqlite3.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/lock_file.h"
#include "base/status.h"
#include "job/job_key.h"

namespace spdld::store {

// A statement of the database, finalised when it goes. A statement that cannot be prepared or bound
// fails at step().
class Statement {
 public:
  template <typename... Values>
  Statement(sqlite3* db, const std::string& sql, const Values&... values) {
    sqlite3_prepare_v2(db, sql.c_str(), -1, &statement_, nullptr);
    (bind(values), ...);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  int step() { return statement_ == nullptr ? SQLITE_ERROR : sqlite3_step(statement_); }
  template <typename T = std::int64_t>
  T number(int column) const {
    return static_cast<T>(sqlite3_column_int64(statement_, column));
  }
  std::string text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return bytes == nullptr
               ? std::string()
               : std::string(bytes,
                             static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
  }
  // Of a row that begins with uid, job and pipeline.
  job::JobKey key() const { return {.uid = number<uid_t>(0), .job = text(1), .pipeline = text(2)}; }

 private:
  void bind(std::integral auto value) {
    sqlite3_bind_int64(statement_, ++bound_, static_cast<std::int64_t>(value));
  }
  void bind(const std::string& value) {
    sqlite3_bind_text(statement_, ++bound_, value.data(), static_cast<int>(value.size()),
                      SQLITE_TRANSIENT);
  }
  void bind(const job::JobKey& key) {
    bind(key.uid);
    bind(key.job);
    bind(key.pipeline);
  }

  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

// The SQLite file of a state directory: how it is opened, made, or done without (Store says in
// which states), and statements on it. Owned by the Store, and guarded by its lock.
class Database {
 public:
  // Takes the lock of the directory, as two daemons would overwrite each other's jobs; where none
  // can be had, a warning says so. `warnings` are for operators. Both belong to the caller, which
  // releases the lock after it has closed the database.
  static Result<std::unique_ptr<Database>> open(const std::string& state_dir,
                                                std::optional<LockFile>& lock,
                                                std::vector<std::string>& warnings);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Runs a statement that changes rows.
  template <typename... Values>
  Status run(const std::string& sql, const Values&... values) {
    return Statement(db_, sql, values...).step() == SQLITE_DONE ? Status() : failure("written");
  }
  // Calls read(row) -> Status for each row of a query; ends with the first error, to
  // which the file's name is added.
  template <typename Read, typename... Values>
  Status each(const Read& read, const std::string& sql, const Values&... values) {
    Statement rows(db_, sql, values...);
    int state = rows.step();
    for (; state == SQLITE_ROW; state = rows.step()) {
      if (Status status = read(std::as_const(rows)); !status.ok())
        return status.with_context(path_);
    }
    return state == SQLITE_DONE ? Status() : failure("read");
  }
  // All rows of a query, each as read(row) -> Result<T> returns it.
  template <typename T, typename Read, typename... Values>
  Result<std::vector<T>> all(const Read& read, const std::string& sql, const Values&... values) {
    std::vector<T> found;
    const auto keep = [&](const Statement& row) -> Status {
      SPDLD_ASSIGN(T value, read(row));
      found.push_back(std::move(value));
      return {};
    };
    SPDLD_TRY(each(keep, sql, values...));
    return found;
  }
  // The first row of a query that has at most one, likewise; none: it has none.
  template <typename T, typename Read, typename... Values>
  Result<std::optional<T>> first(const Read& read, const std::string& sql,
                                 const Values&... values) {
    SPDLD_ASSIGN(std::vector<T> found, all<T>(read, sql, values...));
    return found.empty() ? std::optional<T>() : std::optional<T>(std::move(found.front()));
  }
  // One transaction: changes(*this) -> Status makes all of its changes or, with an error, none.
  template <typename Changes>
  Status transact(const Changes& changes) {
    SPDLD_TRY(run("BEGIN"));
    try {
      return finish(changes(*this));
    } catch (...) {  // no memory, say
      (void)finish(Status(Code::kInternal, "the change was not made"));
      throw;
    }
  }

 private:
  Database(const std::string& state_dir, bool locked)
      : state_dir_(state_dir), path_(state_dir + "/spdld.sqlite"), locked_(locked) {}
  Status failure(const char* done) const;
  Status connect(const std::string& path, int flags);
  Status open_file(std::vector<std::string>& warnings);
  Status copy_to_memory();
  // True: nothing was ever written to it. Refuses the files of other builds and programs.
  Result<bool> is_new();
  Status check_written();         // kNotFound: it is new
  Status prepare_writes();        // makes the tables of a new one
  Status finish(Status outcome);  // commits, or rolls back

  const std::string state_dir_;
  const std::string path_;
  const bool locked_;
  sqlite3* db_ = nullptr;
};

}  // namespace spdld::store
