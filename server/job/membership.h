// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "job/member.h"
#include "job/step_at.h"

namespace spdld::job {

// Where a member is.
struct Progress {
  StepAt next;      // it was sent everything before
  StepAt released;  // and has given back everything before
  std::uint64_t released_position = 0;
  std::uint32_t moves = 0;  // of the job, that it is known to have gone along with

  friend bool operator==(const Progress&, const Progress&) = default;
};

// How much a member was sent since it began.
struct Sent {
  std::uint64_t turn = 0;  // so many times it went elsewhere
  std::uint64_t batches = 0;
};

// A member as the disk has it.
struct MemberRecord {
  enum class Presence : std::uint8_t {
    kHere,      // it is attached
    kExpected,  // it was attached when an earlier daemon died, and may come back
    kAway,      // it was killed, or sent away
    kDone,      // it has said good-bye
  };

  Member member;
  Presence presence = Presence::kHere;
  StepAt next;      // Progress's
  StepAt released;  // the same
  StepAt reserved;  // no batch of this step or a later one has been sent to it

  friend bool operator==(const MemberRecord&, const MemberRecord&) = default;
};

// The members of one run of a job: those that read it, those that have left, and how far each of
// them was sent steps. A change of the job that began before the furthest of them would deal out
// rows twice, or give one step two versions. A member that has left, was killed, or lost its shard
// to a resize counts as long as the run. How far a member was sent steps only grows; it goes back
// with the member that is sent back: by a seek of the job or of its own loop, or by a saved state
// that all ranks are started again from.
//
// On disk, a member that is here is said to be a lead ahead of where it is: some seconds of the
// job's own pace. It is sent no batch beyond that before the record is written again, which is done
// early enough for a disk that answers within seconds.
//
// A plain value. Owned by its job, and guarded like it.
class Membership {
 public:
  using Presence = MemberRecord::Presence;
  // The step that lies so many steps behind another, through epochs.
  using Further = std::function<StepAt(StepAt, std::uint64_t)>;

  static constexpr std::uint64_t kFirstLead = 256;  // steps, while the pace is not known
  static constexpr std::uint64_t kLeastLead = 16;
  static constexpr std::uint64_t kMostLead = 1 << 20;
  static constexpr std::uint64_t kLeadSeconds = 8;  // of the pace

  struct Entry {
    Presence presence = Presence::kHere;
    Progress progress;
    // The first step that it was not sent, as far as changes of the job are concerned: at least
    // where the last of them begins.
    StepAt frontier;
    // `progress` is of what it was sent in this run by this daemon. False after restore() and
    // start_again(), until the member begins again.
    bool is_current = true;
    // Only its next cursor says where it is: all ranks have started again from a saved state, and
    // its progress is that state's; or it was expected, and is not any more.
    bool returns = false;
    Sent sent;
    std::uint64_t paced_batches = 0;  // sent.batches a second ago
    std::uint64_t ahead = 0;          // that it could be sent without another record, at reach()
    std::optional<StepAt> reserved = std::nullopt;  // on disk

    // Its progress is known, and it is not here.
    bool has_left() const { return is_current && presence != Presence::kHere; }
  };

  using Entries = std::map<Member, Entry>;
  const Entries& entries() const { return entries_; }
  const Entry* find(Member member) const;
  // A member that is expected; none: nobody is.
  std::optional<Member> expected() const;
  // A member of so many shards that only its next cursor tells the place of; none: there is none.
  std::optional<Member> returning(std::uint32_t num_shards) const;
  // Somebody has left whose progress is known; and whether all of those have said good-bye.
  bool anyone_left() const;
  bool all_done() const;
  // A replica of the shard has left whose progress is known.
  bool has_read(std::uint32_t shard) const;
  // Everything before has been given back by all that are known of the shard, or of the job; nobody
  // is known: nothing.
  std::optional<StepAt> released(std::optional<std::uint32_t> shard = std::nullopt) const;
  // Whether all members of the shard stopped at `at`: they were sent everything before, and have
  // used no step from there on. One that was given back counts as used, and one that was sent to a
  // member that has said good-bye.
  bool stopped_at(std::uint32_t shard, StepAt at) const;
  // The first step that no member has been sent; none has been sent any: nothing.
  std::optional<StepAt> furthest() const;

  // A member begins at `at`. `by_cursor`: it says itself where it is, which counts instead of what
  // is known of a member that was expected, or that started again with all.
  void begin(Member member, StepAt at, bool by_cursor);
  // It may be sent `ahead` more batches before the record is written again.
  void reach(Member member, const Progress& progress, const Sent& sent, std::uint64_t ahead);
  // It is here no more. `done`: it has said good-bye.
  void leave(Member member, bool done);
  // No member that left is known to have gone along with more moves.
  void limit_moves(std::uint32_t moves);

  // A change of the job begins at `at`: no later one may begin before.
  void raise(StepAt at);
  // An operator sends the job to `to`. Members that are away go on there, too, and are expected no
  // more.
  void go_to(StepAt to, std::uint64_t position);
  // All ranks start again from a state that was saved at `at`. Whoever has no place among so many
  // shards does not come back.
  void start_again(std::uint32_t num_shards, StepAt at, std::uint64_t position);
  // Members that are expected are away from now on. Returns whether there were any.
  bool stop_expecting();
  void clear() { entries_.clear(); }  // another run
  // The shards that there are from now on begin again; one that goes is still read by its members.
  void begin_again(std::uint32_t num_shards);

  // For the disk; kept() once it is there.
  std::vector<MemberRecord> record(const Further& further) const;
  void kept(const std::vector<MemberRecord>& record);
  // After reach() for all that are here: whether the record must be written again. `paces`: a
  // second has passed since the last call for which that was so.
  bool outruns_record(const Further& further, bool paces);
  // So many steps ahead of where it is a member that is here is said to be on disk.
  std::uint64_t lead() const { return lead_; }
  // Takes over a record of an earlier daemon. Members that were here are expected.
  void restore(const std::vector<MemberRecord>& record);

 private:
  Entries entries_;
  std::uint64_t lead_ = kFirstLead;
};

}  // namespace spdld::job
