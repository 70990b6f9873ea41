// SPDX-License-Identifier: Apache-2.0
#include "stream/replica_presence.h"

#include <algorithm>

namespace spdld::stream {

void ReplicaPresence::came(job::Member member, std::uint32_t replicas, delivery::HolderId holder) {
  MutexLock lock(mutex_);
  const auto first = entries_.lower_bound({member.shard, 0});
  const auto last = entries_.lower_bound({member.shard + 1, 0});
  const auto done = std::count_if(first, last, [](const auto& entry) { return entry.second.done; });
  if (done == static_cast<std::ptrdiff_t>(replicas)) entries_.erase(first, last);
  entries_[member] = {.holder = holder, .done = false, .next = 0};
}

bool ReplicaPresence::went(job::Member member, delivery::HolderId holder, bool away,
                           job::Turn next) {
  MutexLock lock(mutex_);
  const auto known = entries_.find(member);
  if (known == entries_.end() || known->second.holder != holder) return false;
  known->second = {.holder = 0, .done = !away, .next = next};
  return true;
}

bool ReplicaPresence::here(job::Member member) const {
  MutexLock lock(mutex_);
  const auto known = entries_.find(member);
  return known != entries_.end() && known->second.holder != 0;
}

std::vector<AwaitedReplica> ReplicaPresence::awaited(job::Member member, std::uint32_t replicas,
                                                     job::Turn from, job::Turn until) const {
  MutexLock lock(mutex_);
  std::vector<AwaitedReplica> awaited;
  for (std::uint32_t replica = 0; replica < replicas; ++replica) {
    if (replica == member.replica) continue;
    const auto known = entries_.find({member.shard, replica});
    if (known == entries_.end()) {
      awaited.push_back({replica, from});
      continue;
    }
    // A replica that is here joins all that it reads by itself.
    const Entry& entry = known->second;
    if (entry.holder != 0 || entry.done || entry.next >= until) continue;
    awaited.push_back({replica, std::max(from, entry.next)});
  }
  return awaited;
}

std::vector<job::Member> ReplicaPresence::done() const {
  MutexLock lock(mutex_);
  std::vector<job::Member> done;
  for (const auto& [member, entry] : entries_) {
    if (entry.done) done.push_back(member);
  }
  return done;
}

void ReplicaPresence::reset(const std::vector<job::Member>& done) {
  MutexLock lock(mutex_);
  entries_.clear();
  for (const job::Member& member : done) entries_[member] = {.holder = 0, .done = true, .next = 0};
}

}  // namespace spdld::stream
