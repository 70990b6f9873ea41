// SPDX-License-Identifier: Apache-2.0
#include "store/store.h"

#include <sqlite3.h>
#include <unistd.h>

#include <utility>

#include "base/descriptors.h"
#include "base/failpoint.h"
#include "store/statement.h"

namespace spdld::store {

Store::~Store() {
  MutexLock lock(mutex_);
  sqlite3_close(db_);
}

Status Store::failure(const char* what) {
  const int code = sqlite3_errcode(db_);
  note_descriptor_shortage(sqlite3_system_errno(db_));
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
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Status(Code::kAborted, message + "; end the program that has it open, and try again");
    case SQLITE_IOERR:
      return Status(Code::kUnavailable,
                    message + "; is the file system of state_dir full or failing?");
    default: return Status(Code::kUnavailable, message);
  }
}

tl::unexpected<Status> Store::unreadable(const std::string& what, const Status& why) const {
  return error(Code::kDataLoss, path_ + ": " + what + " cannot be read: " + why.message());
}

Status Store::begin() {
  Statement statement(db_, "BEGIN");
  return statement.step() == SQLITE_DONE ? Status() : failure("written");
}

Status Store::finish(Status outcome) {
  if (outcome.ok()) {
    SPDLD_FAILPOINT("store.commit");
    Statement commit(db_, "COMMIT");
    if (commit.step() == SQLITE_DONE) return {};
    outcome = failure("written");
  }
  Statement rollback(db_, "ROLLBACK");
  (void)rollback.step();  // a failed COMMIT may have ended it already
  return outcome;
}

}  // namespace spdld::store
