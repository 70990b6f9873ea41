// SPDX-License-Identifier: Apache-2.0
#include "base/users/user_bytes.h"

namespace spdld {

bool UserBytes::Share::add(std::uint64_t bytes) {
  if (bytes == 0) return true;
  if (!all_->add(uid_, bytes)) return false;
  bytes_ += bytes;
  return true;
}

void UserBytes::Share::remove(std::uint64_t bytes) {
  if (bytes == 0) return;
  bytes_ -= bytes;
  all_->remove(uid_, bytes);
}

std::map<uid_t, std::uint64_t> UserBytes::used() const {
  MutexLock lock(mutex_);
  return used_;
}

bool UserBytes::add(uid_t uid, std::uint64_t bytes) {
  MutexLock lock(mutex_);
  const auto found = used_.find(uid);
  const std::uint64_t used = found == used_.end() ? 0 : found->second;
  if (bytes > limit_ - used) return false;  // used is at most the limit
  used_[uid] = used + bytes;
  return true;
}

void UserBytes::remove(uid_t uid, std::uint64_t bytes) {
  MutexLock lock(mutex_);
  const auto found = used_.find(uid);
  found->second -= bytes;
  if (found->second == 0) used_.erase(found);
}

}  // namespace spdld
