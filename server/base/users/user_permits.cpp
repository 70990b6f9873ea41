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
      if (taken_[uid] >= most_) given_back_.wait_for(mutex_, kAskAgain);
      int& taken = taken_[uid];
      if (taken < most_) {
        ++taken;
        return Permit(this, uid);
      }
    }
    if (!still_wanted()) return std::nullopt;
  }
}

std::map<uid_t, int> UserPermits::users() const {
  MutexLock lock(mutex_);
  return taken_;
}

void UserPermits::give_back(uid_t uid) {
  MutexLock lock(mutex_);
  const auto found = taken_.find(uid);
  if (--found->second == 0) taken_.erase(found);
  given_back_.notify_all();
}

}  // namespace spdld
