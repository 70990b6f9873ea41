// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "base/mutex.h"

namespace spdld {

// A counting semaphore per user: bounds how many expensive operations one user has running at once.
// Further ones of the same user wait.
// Thread-safe; a leaf among the locks. Outlives its permits.
class UserPermits {
 public:
  // Given back when it ends. Movable; one that was moved from is none.
  class Permit {
   public:
    Permit(Permit&& other) noexcept : of_(std::exchange(other.of_, nullptr)), uid_(other.uid_) {}
    Permit& operator=(Permit&&) = delete;
    ~Permit() {
      if (of_ != nullptr) of_->give_back(uid_);
    }

   private:
    friend class UserPermits;
    Permit(UserPermits* of, uid_t uid) : of_(of), uid_(uid) {}

    UserPermits* of_;
    const uid_t uid_;
  };

  explicit UserPermits(int most_per_user) : most_(most_per_user) {}

  // Blocks until the user may. Asks `still_wanted` several times a second while it waits; none: it
  // said no.
  std::optional<Permit> take(uid_t uid, const std::function<bool()>& still_wanted)
      SPDLD_EXCLUDES(mutex_);
  // Permits that are held, by user; those who have none are left out.
  std::map<uid_t, int> users() const SPDLD_EXCLUDES(mutex_);
  int most_per_user() const { return most_; }

 private:
  void give_back(uid_t uid) SPDLD_EXCLUDES(mutex_);

  const int most_;
  mutable Mutex mutex_;
  // Signalled, to all, when a permit is given back: whoever waits may be of another user.
  CondVar given_back_;
  std::map<uid_t, int> taken_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld
