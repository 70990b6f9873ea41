// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "base/users/trusted_users.h"

namespace spdld::delivery {

// How many connections there may be.
struct AdmissionBounds {
  std::size_t in_all = 1024;
  std::size_t reserved = 128;  // of these, for `trusted` alone
  std::size_t per_user = 512;
  TrustedUsers trusted{};
};

// Counts the connections of each user and lets in whoever there is room for. Owned by DataServer.
// Thread-safe; a leaf among the locks.
class Admission {
 public:
  explicit Admission(AdmissionBounds bounds) : bounds_(std::move(bounds)) {}

  // Counts another connection of this user; kResourceExhausted: there is no room, it is not
  // counted.
  Status enter(uid_t uid) SPDLD_EXCLUDES(mutex_);
  // One that entered is gone, with all that the daemon kept for it.
  void leave(uid_t uid) SPDLD_EXCLUDES(mutex_);
  // By user; those who have none are left out.
  std::map<uid_t, std::size_t> users() const SPDLD_EXCLUDES(mutex_);
  const AdmissionBounds& bounds() const { return bounds_; }

 private:
  const AdmissionBounds bounds_;
  mutable Mutex mutex_;
  std::map<uid_t, std::size_t> users_ SPDLD_GUARDED_BY(mutex_);
  std::size_t in_all_ SPDLD_GUARDED_BY(mutex_) = 0;
  std::size_t of_others_ SPDLD_GUARDED_BY(mutex_) = 0;  // than the trusted
};

}  // namespace spdld::delivery
