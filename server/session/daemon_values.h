// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/users/trusted_users.h"
#include "job/request.h"
#include "session/live_values.h"
#include "store/store.h"

namespace spdld::session {

// A value of the daemon's configuration that may be changed while the daemon runs. The functions
// are thread-safe.
struct DaemonValue {
  std::string key;  // as in the configuration
  std::string range;
  std::string means;
  std::function<std::string()> now;
  // Takes effect before it returns; kInvalidArgument: not in range.
  std::function<Status(const std::string& text)> set;
};

// The daemon's live values: what its configuration says, and what an admin has said instead, which
// is kept in the store and outlives a restart. Owned by SessionService. Thread-safe.
class DaemonValues {
 public:
  DaemonValues(std::vector<DaemonValue> values, store::Store& store)
      : values_(std::move(values)), store_(store) {}

  // What the configuration says, by key, at the start and whenever it was read again. Takes effect
  // but for values that an admin has changed. Returns what is worth a line in the log.
  std::vector<std::string> configure(std::map<std::string, std::string> configured)
      SPDLD_EXCLUDES(mutex_);
  // Takes over what an earlier daemon was told. A value that does not fit is told, and left out.
  std::vector<std::string> restore() SPDLD_EXCLUDES(mutex_);
  // kPermissionDenied for all but admins. All of it is kept and takes effect, or nothing.
  Result<std::vector<LiveValue>> tune(const job::Caller& caller, const TrustedUsers& trusted,
                                      const TuneRequest& request) SPDLD_EXCLUDES(mutex_);

 private:
  using Texts = std::map<std::string, std::string>;

  const DaemonValue* find(const std::string& key) const;
  // Sets what differs between two states; on failure everything is as before.
  Status change(const Texts& from, const Texts& to) SPDLD_REQUIRES(mutex_);
  Texts in_force(const Texts& tuned) const SPDLD_REQUIRES(mutex_);

  const std::vector<DaemonValue> values_;
  store::Store& store_;
  mutable Mutex mutex_;
  Texts configured_ SPDLD_GUARDED_BY(mutex_);
  Texts tuned_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::session
