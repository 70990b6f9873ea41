// SPDX-License-Identifier: Apache-2.0
#include "base/memory/buffer_memory.h"

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
    Half& half = all_->half_of(user->second, wanted_bytes_);
    half.line.erase(place_);
    calls = all_->grant(user, half);
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
  Half& half = all_->half_of(all_->users_[uid_], bytes);
  if (half.line.empty() && all_->has_room(half, bytes)) return all_->share(half, uid_, bytes);
  waits_ = true;
  wanted_bytes_ = bytes;
  granted_ = std::move(granted);
  place_ = half.line.insert(half.line.end(), this);
  return std::nullopt;
}

std::optional<BufferMemory::Share> BufferMemory::take(uid_t uid, std::uint64_t bytes) {
  MutexLock lock(mutex_);
  Half& half = half_of(users_[uid], bytes);
  if (!half.line.empty() || !has_room(half, bytes)) return std::nullopt;
  return share(half, uid, bytes);
}

std::map<uid_t, std::uint64_t> BufferMemory::used() const {
  MutexLock lock(mutex_);
  std::map<uid_t, std::uint64_t> used;
  for (const auto& [uid, user] : users_) {
    if (user.taken_bytes() > 0) used[uid] = user.taken_bytes();
  }
  return used;
}

BufferMemory::Half& BufferMemory::half_of(User& user, std::uint64_t bytes) const {
  return bytes <= limit_ / 8 ? user.small : user.large;
}

bool BufferMemory::has_room(const Half& half, std::uint64_t bytes) const {
  const std::uint64_t limit = limit_ / 2;
  return half.taken_bytes == 0 || (half.taken_bytes <= limit && bytes <= limit - half.taken_bytes);
}

BufferMemory::Share BufferMemory::share(Half& half, uid_t uid, std::uint64_t bytes) {
  half.taken_bytes += bytes;
  return {shared_from_this(), uid, bytes};
}

void BufferMemory::give_back(uid_t uid, std::uint64_t bytes) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    const auto user = users_.find(uid);
    Half& half = half_of(user->second, bytes);
    half.taken_bytes -= bytes;
    calls = grant(user, half);
  }
  for (const auto& granted : calls) granted();
}

BufferMemory::Calls BufferMemory::grant(std::map<uid_t, User>::iterator at, Half& half) {
  Calls calls;
  while (!half.line.empty() && has_room(half, half.line.front()->wanted_bytes_)) {
    Request& first = *half.line.front();
    half.line.pop_front();
    first.waits_ = false;
    first.share_ = share(half, at->first, first.wanted_bytes_);
    calls.push_back(std::move(first.granted_));
  }
  const User& user = at->second;
  if (user.taken_bytes() == 0 && user.small.line.empty() && user.large.line.empty())
    users_.erase(at);
  return calls;
}

}  // namespace spdld
