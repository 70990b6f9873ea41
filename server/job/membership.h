// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "job/member.h"
#include "job/state.h"
#include "job/step_at.h"

namespace spdld::job {

// Where a member is.
struct Progress {
  Turn sent = 0;      // it was sent every turn before
  StepAt next;        // the place of that turn
  Turn released = 0;  // it has given back every turn before
  StepAt at;          // the place behind these, before the job's edits of that turn
  std::uint64_t position = 0;
  std::string order = {};  // digest, of the version there

  friend bool operator==(const Progress&, const Progress&) = default;
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
  Progress progress;

  friend bool operator==(const MemberRecord&, const MemberRecord&) = default;
};

// The members of one run of a job, and how far each of them was sent turns. An edit that began
// before the furthest of them would give a turn two meanings. A member that has left, was killed,
// or lost its shard to a resize counts as long as the run. How far a member was sent turns only
// grows, until it attaches again and says itself where it is.
//
// On disk there is one turn that is reserved, some seconds of the job's own pace ahead of all. No
// member is sent a turn beyond it before the record is written again, which is done early enough
// for a disk that answers within seconds. After a restart a member counts as if it had been sent
// all turns up to there, until it is back. No turn is reserved beyond the one at which a planned
// swap is due, so that it comes there though a member is not back by then.
//
// A plain value. Owned by its job, and guarded like it.
class Membership {
 public:
  using Presence = MemberRecord::Presence;

  static constexpr Turn kFirstLead = 256;  // while the pace is not known
  static constexpr Turn kLeastLead = 16;
  static constexpr Turn kMostLead = 1 << 20;
  static constexpr Turn kLeadSeconds = 8;  // of the pace

  struct Entry {
    Presence presence = Presence::kHere;
    Progress progress;
    Turn paced = 0;  // progress.sent a second ago

    bool has_left() const { return presence == Presence::kAway || presence == Presence::kDone; }
  };

  using Entries = std::map<Member, Entry>;
  const Entries& entries() const { return entries_; }
  const Entry* find(Member member) const;
  // A member that is expected; none: none is.
  std::optional<Member> expected() const;
  bool anyone_left() const;
  bool has_been_read() const { return !entries_.empty() || reached_ > 0; }  // in this run
  bool all_done() const;  // of those that have left
  // The first turn that no member has been sent.
  Turn frontier() const;
  // No member of the run was ever sent a turn beyond; lowered where a branch parts.
  Turn reached() const { return reached_; }
  // Every member that is here, or expected, has given back all turns before.
  Turn released() const;

  void begin(Member member, const Progress& progress);
  void reach(Member member, const Progress& progress);
  // It is here no more. `done`: it has said good-bye.
  void leave(Member member, bool done);
  // A branch begins at `turn`: turns beyond do not count as reached any more.
  void part(Turn turn) { reached_ = std::min(reached_, turn); }
  // An operator sends the job elsewhere at progress.sent: members that are away go on there, too,
  // and are expected no more.
  void go_to(const Progress& progress);
  // Members that are expected are away from now on. Returns whether there were any.
  bool stop_expecting();
  // All members start again from a place of this run.
  void start_again() { entries_.clear(); }
  // Another run begins.
  void clear();

  // For the disk; kept() once it is there. A member that is expected is sent nothing, so that turns
  // are reserved ahead of those alone that are here: else each restart would add to them.
  std::vector<MemberRecord> record() const;
  // `granted`: up to where members that are here may be sent turns already; `due`: none of them is
  // sent a turn from there on before a planned swap has its turn.
  Turn to_reserve(Turn granted, Turn due) const;
  void kept(Turn reserved) { reserved_ = reserved; }
  // Whether the record must be written again. `paces`: a second has passed since the last call for
  // which that was so.
  bool outruns_record(bool paces, Turn due);
  // Takes over a record of an earlier daemon. Members that were here are expected.
  void restore(const std::vector<MemberRecord>& record, Turn reserved, Turn reached);

 private:
  // Of the members that are here: the first turn that none was sent. Nothing: none is here.
  std::optional<Turn> furthest_here() const;

  Entries entries_;
  Turn reached_ = 0;
  std::optional<Turn> reserved_;  // on disk
  Turn lead_ = kFirstLead;
};

}  // namespace spdld::job
