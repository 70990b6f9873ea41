// SPDX-License-Identifier: Apache-2.0
#include "base/users/user_permits.h"

#include <chrono>

namespace spdld {
namespace {

constexpr std::chrono::milliseconds kAskAgain{200};

}  // namespace

std::optional<UserPermits::Permit> UserPermits::take(uid_t uid,
                                                     const std::function<bool()>& still_wanted) {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (!may_take(uid)) given_back_.wait_for(mutex_, kAskAgain);
      if (may_take(uid)) {
        ++taken_[uid].all;
        return Permit(this, uid);
      }
    }
    if (!still_wanted()) return std::nullopt;
  }
}

std::map<uid_t, int> UserPermits::users() const {
  MutexLock lock(mutex_);
  std::map<uid_t, int> users;
  for (const auto& [uid, taken] : taken_) users[uid] = taken.all;
  return users;
}

bool UserPermits::may_take(uid_t uid) {
  const auto found = taken_.find(uid);
  if (found == taken_.end()) return true;
  const Taken& taken = found->second;
  return taken.all - taken.aside < most_ && taken.all < most_in_all_;
}

void UserPermits::give_back(uid_t uid, bool aside) {
  MutexLock lock(mutex_);
  const auto found = taken_.find(uid);
  if (aside) --found->second.aside;
  if (--found->second.all == 0) taken_.erase(found);
  given_back_.notify_all();
}

void UserPermits::count_aside(uid_t uid, int change) {
  MutexLock lock(mutex_);
  taken_.at(uid).aside += change;
  given_back_.notify_all();
}

}  // namespace spdld
