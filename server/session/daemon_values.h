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
  // Has a text take effect, which was read before; an error says what has not.
  using Setting = std::function<Status()>;
  // Changes nothing; kInvalidArgument: not in range.
  std::function<Result<Setting>(const std::string& text)> read;
};

// The daemon's live values: what its configuration says, and what an admin has said instead, which
// is kept in the store and outlives a restart. Owned by SessionService. Thread-safe.
class DaemonValues {
 public:
  DaemonValues(std::vector<DaemonValue> values, store::Store& store)
      : values_(std::move(values)), store_(store) {}

  // What the configuration says, by key, at the start and whenever it was read again. Takes effect
  // but for values that an admin has changed, and those that are refused: they stay as they were.
  struct Configured {
    std::vector<std::string> changed = {};  // for the log, as the next one
    std::vector<std::string> refused = {};
  };
  Configured configure(const std::map<std::string, std::string>& configured) SPDLD_EXCLUDES(mutex_);
  // Takes over what an earlier daemon was told. A value that does not fit is told, and left out.
  std::vector<std::string> restore() SPDLD_EXCLUDES(mutex_);
  // kPermissionDenied for all but admins. All of it is kept, or nothing is and nothing changes. An
  // error that comes later says what has not taken effect.
  Result<std::vector<LiveValue>> tune(const job::Caller& caller, const TrustedUsers& trusted,
                                      const TuneRequest& request) SPDLD_EXCLUDES(mutex_);

 private:
  using Texts = std::map<std::string, std::string>;

  const DaemonValue* find(const std::string& key) const;
  Status set(const std::string& key, const std::string& text) const;
  // The tuned values as a request would have them; kInvalidArgument: it names something else.
  Result<Texts> with(const TuneRequest& request) const SPDLD_REQUIRES(mutex_);
  // What is to be set on the way from the tuned values to these. Each text is looked at.
  Result<std::vector<DaemonValue::Setting>> settings(const Texts& next) const
      SPDLD_REQUIRES(mutex_);

  const std::vector<DaemonValue> values_;
  store::Store& store_;
  mutable Mutex mutex_;
  Texts configured_ SPDLD_GUARDED_BY(mutex_);
  Texts tuned_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::session
