// SPDX-License-Identifier: Apache-2.0
#include "base/buffer_memory.h"

#include <algorithm>
#include <utility>

namespace spdld {

BufferMemory::Share::~Share() {
  if (all_ != nullptr) all_->give_back(uid_, bytes_);
}

void BufferMemory::Share::swap(Share& other) noexcept {
  std::swap(all_, other.all_);
  std::swap(uid_, other.uid_);
  std::swap(bytes_, other.bytes_);
}

BufferMemory::Waiter::~Waiter() {
  if (!stands_) return;
  MutexLock lock(all_->mutex_);
  all_->leave(uid_, *this);
}

std::optional<BufferMemory::Share> BufferMemory::Waiter::take(std::uint64_t bytes) {
  MutexLock lock(all_->mutex_);
  User& user = all_->users_[uid_];
  if (!stands_) user.line.push_back(this);
  stands_ = true;
  if (user.line.front() != this || !all_->has_room(user, bytes)) return std::nullopt;
  Share share = all_->share(user, uid_, bytes);
  all_->leave(uid_, *this);
  stands_ = false;
  return share;
}

std::size_t BufferMemory::Waiter::place() const {
  MutexLock lock(all_->mutex_);
  const auto user = all_->users_.find(uid_);
  if (!stands_ || user == all_->users_.end()) return 0;
  const auto& line = user->second.line;
  return static_cast<std::size_t>(std::find(line.begin(), line.end(), this) - line.begin());
}

std::optional<BufferMemory::Share> BufferMemory::take(uid_t uid, std::uint64_t bytes) {
  MutexLock lock(mutex_);
  User& user = users_[uid];
  if (!user.line.empty() || !has_room(user, bytes)) return std::nullopt;
  return share(user, uid, bytes);
}

std::map<uid_t, std::uint64_t> BufferMemory::used() const {
  MutexLock lock(mutex_);
  std::map<uid_t, std::uint64_t> used;
  for (const auto& [uid, user] : users_) {
    if (user.taken_bytes > 0) used[uid] = user.taken_bytes;
  }
  return used;
}

bool BufferMemory::has_room(const User& user, std::uint64_t bytes) const {
  return user.taken_bytes == 0 ||
         (user.taken_bytes <= limit_ && bytes <= limit_ - user.taken_bytes);
}

BufferMemory::Share BufferMemory::share(User& user, uid_t uid, std::uint64_t bytes) {
  user.taken_bytes += bytes;
  return {shared_from_this(), uid, bytes};
}

void BufferMemory::give_back(uid_t uid, std::uint64_t bytes) {
  MutexLock lock(mutex_);
  const auto user = users_.find(uid);
  user->second.taken_bytes -= bytes;
  forget_idle(user);
}

void BufferMemory::leave(uid_t uid, const Waiter& waiter) {
  const auto user = users_.find(uid);
  auto& line = user->second.line;
  line.erase(std::find(line.begin(), line.end(), &waiter));
  forget_idle(user);
}

void BufferMemory::forget_idle(std::map<uid_t, User>::iterator user) {
  if (user->second.taken_bytes == 0 && user->second.line.empty()) users_.erase(user);
}

}  // namespace spdld
