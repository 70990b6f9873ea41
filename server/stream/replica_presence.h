// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "delivery/slots.h"
#include "job/member.h"
#include "job/state.h"

namespace spdld::stream {

// A replica that a stream keeps batches for, from this turn on.
struct AwaitedReplica {
  std::uint32_t replica = 0;
  job::Turn from = 0;

  friend bool operator==(const AwaitedReplica&, const AwaitedReplica&) = default;
};

// The presence of each replica of a job: here, away or done. A shard waits for a replica that was
// killed or has not come, and for no other. Shared by a job and its consumers. Thread-safe.
//
//   unknown ---came---> here ---went(away)---> away ---came---> here
//                        |---went------------> done ---came---> here
class ReplicaPresence {
 public:
  // Where all `replicas` of its shard were done, the others are expected again.
  void came(job::Member member, std::uint32_t replicas, delivery::HolderId holder)
      SPDLD_EXCLUDES(mutex_);
  // `next`: the turn that it would have been sent. False, and nothing is done, if another process
  // has taken the place, or `holder` went before.
  bool went(job::Member member, delivery::HolderId holder, bool away, job::Turn next)
      SPDLD_EXCLUDES(mutex_);
  bool here(job::Member member) const SPDLD_EXCLUDES(mutex_);
  // The other replicas that are away, or have not come, and are to read turns of [from, until),
  // which `member` begins to read.
  std::vector<AwaitedReplica> awaited(job::Member member, std::uint32_t replicas, job::Turn from,
                                      job::Turn until) const SPDLD_EXCLUDES(mutex_);

  std::vector<job::Member> done() const SPDLD_EXCLUDES(mutex_);
  // Everybody is expected but these.
  void reset(const std::vector<job::Member>& done = {}) SPDLD_EXCLUDES(mutex_);

 private:
  struct Entry {
    delivery::HolderId holder = 0;  // 0: not here
    bool done = false;
    job::Turn next = 0;
  };

  mutable Mutex mutex_;
  std::map<job::Member, Entry> entries_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::stream
