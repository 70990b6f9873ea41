// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "job/step_at.h"
#include "store/store.h"
#include "stream/replica_roll.h"
#include "stream/timeline.h"

namespace spdld::session {

// How far each consumer of one run of a job was given steps: a change of the job that began before
// the furthest of them would deal out rows twice, or give one step two versions. A consumer that
// has left, was killed, or lost its shard to a resize counts as long as the run. A consumer's
// frontier only grows; it goes back with the consumer that is sent back: by a seek of the job or of
// its own loop, or by a saved state that all ranks are started again from.
//
// On disk, a consumer that reads is said to be a lead ahead of where it is: some seconds of the
// job's own pace. It is sent no batch beyond that before the record is written again, which is done
// early enough for a disk that answers within seconds.
//
// A plain value. Owned by its job, and guarded like it.
class Frontiers {
 public:
  static constexpr std::uint64_t kFirstLead = 256;  // steps, while the pace is not known
  static constexpr std::uint64_t kLeastLead = 16;
  static constexpr std::uint64_t kMostLead = 1 << 20;
  static constexpr std::uint64_t kLeadSeconds = 8;  // of the pace

  // The first step that no consumer has been given; none has been given any: nothing.
  std::optional<job::StepAt> furthest() const;

  // A consumer begins at `at`; with `instead`, where the one before in its place was counts no
  // more.
  void begin(job::Member member, job::StepAt at, bool instead);
  // It was given everything before `next`. `turn` grows with each seek since it began, `batches`
  // with each batch.
  void reach(job::Member member, job::StepAt next, std::uint64_t turn, std::uint64_t batches);
  // A change of the job begins at `at`: no later one may begin before.
  void raise(job::StepAt at);
  // The job was sent to `to`.
  void go_to(job::StepAt to);
  // All ranks start again from a saved state: each one's own says where it is. Whoever has no place
  // among so many shards does not come back.
  void start_again(std::uint32_t num_shards);
  // Whether the consumer was in its place before all ranks started again, and is not back.
  bool returns(job::Member member) const;
  void clear() { entries_.clear(); }  // another run

  // For the record; those of `reading` ahead of where they are. kept() once that is on disk.
  std::vector<store::StoredFrontier> stored(const stream::Timeline& timeline,
                                            const std::set<job::Member>& reading) const;
  void kept(const std::vector<store::StoredFrontier>& record);
  void restore(const std::vector<store::StoredFrontier>& record);
  // After reach() for all of `reading`: whether the record must be written again. `paces`: a second
  // has passed since the last call for which that was so.
  bool outrun(const stream::Timeline& timeline, const std::set<job::Member>& reading, bool paces);
  // So many steps ahead of where it is a consumer that reads is said to be on disk.
  std::uint64_t lead() const { return lead_; }
  // That reach() last told of.
  std::uint64_t batches(job::Member member) const { return entries_.at(member).batches; }

 private:
  struct Entry {
    job::StepAt at;
    std::uint64_t turn = 0;
    std::uint64_t batches = 0;
    std::uint64_t counted = 0;  // of them, a second ago
    bool returns = false;
    std::optional<job::StepAt> kept = std::nullopt;  // on disk
  };

  std::map<job::Member, Entry> entries_;
  std::uint64_t lead_ = kFirstLead;
};

}  // namespace spdld::session
