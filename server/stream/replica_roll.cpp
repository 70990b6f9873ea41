// SPDX-License-Identifier: Apache-2.0
#include "stream/replica_roll.h"

#include <algorithm>

namespace spdld::stream {

void ReplicaRoll::came(job::Member member, std::uint32_t replicas, delivery::HolderId holder,
                       std::uint32_t passage) {
  MutexLock lock(mutex_);
  const auto first = entries_.lower_bound({member.shard, 0});
  const auto last = entries_.lower_bound({member.shard + 1, 0});
  const auto done = std::count_if(first, last, [](const auto& entry) { return entry.second.done; });
  if (done == static_cast<std::ptrdiff_t>(replicas)) entries_.erase(first, last);
  entries_[member] = {.holder = holder, .done = false, .passage = passage, .next = {}};
}

void ReplicaRoll::goes_on(job::Member member, delivery::HolderId holder, std::uint32_t passage) {
  MutexLock lock(mutex_);
  const auto known = entries_.find(member);
  if (known != entries_.end() && known->second.holder == holder) known->second.passage = passage;
}

bool ReplicaRoll::went(job::Member member, delivery::HolderId holder, bool away, job::StepAt next) {
  MutexLock lock(mutex_);
  const auto known = entries_.find(member);
  if (known == entries_.end() || known->second.holder != holder) return false;
  known->second = {.holder = 0, .done = !away, .passage = known->second.passage, .next = next};
  return true;
}

bool ReplicaRoll::here(job::Member member) const {
  MutexLock lock(mutex_);
  const auto known = entries_.find(member);
  return known != entries_.end() && known->second.holder != 0;
}

std::vector<AwaitedReplica> ReplicaRoll::awaited(job::Member member, std::uint32_t replicas,
                                                 std::uint32_t passage, job::StepAt from,
                                                 job::StepAt until) const {
  MutexLock lock(mutex_);
  std::vector<AwaitedReplica> awaited;
  for (std::uint32_t replica = 0; replica < replicas; ++replica) {
    if (replica == member.replica) continue;
    const auto known = entries_.find({member.shard, replica});
    const bool yet_to_come =
        known == entries_.end() || (!known->second.done && known->second.passage < passage);
    if (yet_to_come) {
      awaited.push_back({replica, from});
      continue;
    }
    // Who is here has joined all that it reads of this passage.
    const Entry& entry = known->second;
    if (entry.holder != 0 || entry.done || entry.passage > passage || entry.next >= until) continue;
    awaited.push_back({replica, std::max(from, entry.next)});
  }
  return awaited;
}

std::vector<job::Member> ReplicaRoll::done() const {
  MutexLock lock(mutex_);
  std::vector<job::Member> done;
  for (const auto& [member, entry] : entries_) {
    if (entry.done) done.push_back(member);
  }
  return done;
}

void ReplicaRoll::reset(const std::vector<job::Member>& done) {
  MutexLock lock(mutex_);
  entries_.clear();
  for (const job::Member& member : done)
    entries_[member] = {.holder = 0, .done = true, .passage = 0, .next = {}};
}

}  // namespace spdld::stream
