// SPDX-License-Identifier: Apache-2.0
#include "base/buffer_memory.h"

namespace spdld {

BufferMemory::Share::~Share() {
  if (all_ != nullptr) all_->give_back(uid_, bytes_);
}

void BufferMemory::Share::swap(Share& other) noexcept {
  std::swap(all_, other.all_);
  std::swap(uid_, other.uid_);
  std::swap(bytes_, other.bytes_);
}

BufferMemory::Request::~Request() {
  if (all_ == nullptr) return;
  Calls calls;
  {
    MutexLock lock(all_->mutex_);
    if (!waits_) return;
    const auto user = all_->users_.find(uid_);
    user->second.line.erase(place_);
    calls = all_->grant(user);
  }
  for (const auto& granted : calls) granted();
}

std::optional<BufferMemory::Share> BufferMemory::Request::take(std::uint64_t bytes,
                                                               std::function<void()> granted) {
  Share other_size;  // given back under no lock
  MutexLock lock(all_->mutex_);
  if (waits_) return std::nullopt;
  if (share_.bytes() == bytes) return std::exchange(share_, Share());
  other_size.swap(share_);
  User& user = all_->users_[uid_];
  if (user.line.empty() && all_->has_room(user, bytes)) return all_->share(user, uid_, bytes);
  waits_ = true;
  wanted_bytes_ = bytes;
  granted_ = std::move(granted);
  place_ = user.line.insert(user.line.end(), this);
  return std::nullopt;
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
  Calls calls;
  {
    MutexLock lock(mutex_);
    const auto user = users_.find(uid);
    user->second.taken_bytes -= bytes;
    calls = grant(user);
  }
  for (const auto& granted : calls) granted();
}

BufferMemory::Calls BufferMemory::grant(std::map<uid_t, User>::iterator at) {
  Calls calls;
  User& user = at->second;
  while (!user.line.empty() && has_room(user, user.line.front()->wanted_bytes_)) {
    Request& first = *user.line.front();
    user.line.pop_front();
    first.waits_ = false;
    first.share_ = share(user, at->first, first.wanted_bytes_);
    calls.push_back(std::move(first.granted_));
  }
  if (user.taken_bytes == 0 && user.line.empty()) users_.erase(at);
  return calls;
}

}  // namespace spdld
