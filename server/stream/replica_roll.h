// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "delivery/slots.h"
#include "job/member.h"
#include "job/step_at.h"

namespace spdld::stream {

// A passage is what lies between two moves of a job, counted by the one that it begins with.
inline constexpr std::uint32_t kEveryPassage = std::numeric_limits<std::uint32_t>::max();

// A replica that batches are kept for, from a step on.
struct AwaitedReplica {
  std::uint32_t replica = 0;
  job::StepAt from;

  friend bool operator==(const AwaitedReplica&, const AwaitedReplica&) = default;
};

// Which replicas of a job are here, which are expected, and which have said good-bye: so that a
// shard waits for who was killed or has yet to come, and for nobody else. Who is in an earlier
// passage is yet to come. Shared by a job and its consumers. Thread-safe; calls nobody.
//
//   unknown ---came---> here ---went(away)---> away ---came---> here
//                        |---went------------> done ---came---> here
class ReplicaRoll {
 public:
  // Where all `replicas` of its shard had said good-bye, a new round begins: the others are
  // expected again.
  void came(job::Member member, std::uint32_t replicas, delivery::HolderId holder,
            std::uint32_t passage) SPDLD_EXCLUDES(mutex_);
  // It has gone along with a move.
  void goes_on(job::Member member, delivery::HolderId holder, std::uint32_t passage)
      SPDLD_EXCLUDES(mutex_);
  // False, and nothing is done, if the place has been taken by another one, or `holder` went
  // before.
  bool went(job::Member member, delivery::HolderId holder, bool away, job::StepAt next)
      SPDLD_EXCLUDES(mutex_);
  bool here(job::Member member) const SPDLD_EXCLUDES(mutex_);
  // Who else is to read what `member` begins to read in [from, until) of a passage.
  std::vector<AwaitedReplica> awaited(job::Member member, std::uint32_t replicas,
                                      std::uint32_t passage, job::StepAt from,
                                      job::StepAt until) const SPDLD_EXCLUDES(mutex_);

  std::vector<job::Member> done() const SPDLD_EXCLUDES(mutex_);
  // Everybody is expected but these.
  void reset(const std::vector<job::Member>& done = {}) SPDLD_EXCLUDES(mutex_);

 private:
  struct Entry {
    delivery::HolderId holder = 0;  // 0: not here
    bool done = false;
    std::uint32_t passage = 0;
    job::StepAt next;
  };

  mutable Mutex mutex_;
  std::map<job::Member, Entry> entries_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::stream
