// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "base/mutex.h"

namespace spdld {

// A counting semaphore per user: bounds how many expensive operations one user has running at once.
// Further ones of the same user wait. An operation that waits for storage which does not answer can
// set its permit aside, so that the user's others need not wait as well; those that are set aside
// have a bound of their own. Thread-safe; a leaf among the locks. Outlives its permits.
class UserPermits {
 public:
  // Given back when it ends. Movable; one that was moved from is none.
  class Permit {
   public:
    Permit(Permit&& other) noexcept
        : of_(std::exchange(other.of_, nullptr)), uid_(other.uid_), aside_(other.aside_) {}
    Permit& operator=(Permit&&) = delete;
    ~Permit() {
      if (of_ != nullptr) of_->give_back(uid_, aside_);
    }

    // Whether another operation of the user may run beside this one, beyond the bound. Called by
    // one thread at a time.
    void set_aside(bool aside) {
      if (aside != aside_) of_->count_aside(uid_, aside ? 1 : -1);
      aside_ = aside;
    }

   private:
    friend class UserPermits;
    Permit(UserPermits* of, uid_t uid) : of_(of), uid_(uid) {}

    UserPermits* of_;
    const uid_t uid_;
    bool aside_ = false;
  };

  // `most_in_all`: of a user, with those that are set aside.
  explicit UserPermits(int most_per_user, int most_in_all = 0)
      : most_(most_per_user), most_in_all_(std::max(most_per_user, most_in_all)) {}

  // Blocks until the user may. Asks `still_wanted` several times a second while it waits; none: it
  // said no.
  std::optional<Permit> take(uid_t uid, const std::function<bool()>& still_wanted)
      SPDLD_EXCLUDES(mutex_);
  // Permits that are held, by user; those who have none are left out.
  std::map<uid_t, int> users() const SPDLD_EXCLUDES(mutex_);

 private:
  struct Taken {
    int all = 0;
    int aside = 0;
  };
  void give_back(uid_t uid, bool aside) SPDLD_EXCLUDES(mutex_);
  void count_aside(uid_t uid, int change) SPDLD_EXCLUDES(mutex_);
  bool may_take(uid_t uid) SPDLD_REQUIRES(mutex_);

  const int most_;
  const int most_in_all_;
  mutable Mutex mutex_;
  // Signalled, to all, when a permit is given back or set aside: whoever waits may be of another
  // user.
  CondVar given_back_;
  std::map<uid_t, Taken> taken_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld
