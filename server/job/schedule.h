// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "job/state.h"
#include "job/step_at.h"
#include "source/order/sharding.h"

namespace spdld::job {

// A member's own place from a turn on: its loop's seek (set_epoch, break, skip_steps), or the
// cursor that it attached with.
// Turns from there on that the loop was sent before, and had not been handed, are sent again with
// the batches of the new place.
struct OwnSeek {
  Turn turn = 0;
  StepAt to;
  std::uint64_t position = 0;
  std::uint32_t version = 0;  // which one `position` is a position of
  std::uint64_t skip = 0;     // so many steps further, at most to the next epoch's start

  friend bool operator==(const OwnSeek&, const OwnSeek&) = default;
};
// Ascending by turn. Empty: the job's edits alone say where the member is.
using OwnSeeks = std::vector<OwnSeek>;

// A change of the whole job from a turn on. Edits of one turn apply in the order of the log, behind
// a member's own seek of that turn.
struct Edit {
  struct Seek {
    // A place in a whole epoch of that turn's shards and of the log's last version, which runs
    // there, independent of the state before.
    StepAt to;
    friend bool operator==(const Seek&, const Seek&) = default;
  };
  // Only where that turn is in `epoch`: a skip to the epoch's end does not go on in the next one
  // where a loop says set_epoch there.
  struct Skip {
    std::uint64_t epoch = 0;
    std::uint64_t steps = 0;  // at most to the next epoch's start
    friend bool operator==(const Skip&, const Skip&) = default;
  };
  struct Resize {
    std::uint32_t shards = 1;
    // Where the shards that enter here begin, once it is known.
    std::optional<OwnSeek> entry = std::nullopt;
    friend bool operator==(const Resize&, const Resize&) = default;
  };
  // Runs at once where its order is that of the version that runs, or at position 0; else it waits.
  struct Swap {
    std::uint32_t version = 0;
    friend bool operator==(const Swap&, const Swap&) = default;
  };

  Turn turn = 0;
  std::variant<Seek, Skip, Resize, Swap> change;

  friend bool operator==(const Edit&, const Edit&) = default;
};

// A swap that is bound to a place, or to the next epoch's start, and has no turn so far. It becomes
// an edit at the first turn from `from` on that no member has been sent, at its place or behind it.
struct PlannedSwap {
  Turn from = 0;
  std::optional<StepAt> place;  // none: any epoch's start
  std::uint32_t version = 0;

  friend bool operator==(const PlannedSwap&, const PlannedSwap&) = default;
};

// The turn at which a branch of a run left the one before, whose later turns are abandoned.
struct Parting {
  std::uint32_t branch = 0;
  Turn turn = 0;

  friend bool operator==(const Parting&, const Parting&) = default;
};

// The place behind the last batch that a process's loop was handed, as the process reports it.
struct Cursor {
  std::string order;  // digest; empty: of the version that runs
  StepAt at;
  std::uint64_t position = 0;
  std::uint64_t run = 0;
  std::uint32_t branch = 0;
  Turn turn = 0;

  friend bool operator==(const Cursor&, const Cursor&) = default;
};

// All of a schedule, for the store.
struct ScheduleRecord {
  std::uint64_t run = 0;
  Versions versions;
  std::uint32_t versions_made = 0;  // the next version's number
  // Those that ran before `base`, the last one of each order, in their order in the log.
  std::vector<std::uint32_t> earlier;
  State base;  // at base_turn, older edits of that turn included
  Turn base_turn = 0;
  Turn oldest = 0;  // cursors of earlier turns are those of another run
  std::vector<Edit> edits;
  std::optional<PlannedSwap> planned;
  std::vector<Parting> partings;  // ascending, by branch and by turn

  friend bool operator==(const ScheduleRecord&, const ScheduleRecord&) = default;
};

// Maps each turn of a run to its step: a base state and a log of edits. The state at a turn is the
// fold of the log up to there, so that no edit is ever moved or renumbered. A plain value, without
// a lock; bounded by kMostEdits. It holds the log alone: members have their own seeks beside it.
//
// Invariant: the version that runs is the last one of its order in the log, for every member; so
// that a cursor's order digest says which version it is of.
class Schedule {
 public:
  static constexpr std::size_t kMostEdits = 64;

  // A run that begins at `from`, which holds a place and the number of shards.
  Schedule(std::uint64_t run, VersionFacts first, State from);
  // An error where the record cannot be that of a schedule.
  static Result<Schedule> restored(ScheduleRecord record);
  const ScheduleRecord& record() const { return record_; }

  std::uint64_t run() const { return record_.run; }
  std::uint32_t branch() const;
  const std::vector<Edit>& edits() const { return record_.edits; }

  // Places. `turn` >= record().oldest; so is each own seek's.

  // The step that a member is sent at `turn`.
  State locate(Turn turn, const OwnSeeks& own) const;
  // Where a member is that has been handed `turn` batches: without the edits of that very turn. A
  // cursor names this place, so that a process resumed from it applies those edits once.
  State behind(Turn turn, const OwnSeeks& own) const;
  // Where edits()[number] finds a member, behind the edits of its turn that come before it.
  State before_edit(std::size_t number, const OwnSeeks& own) const;
  // The first turn after `turn` at which the state is not just a step further: that of an edit, of
  // an own seek, or of an epoch's start at which another version runs. kNoTurn: there is none.
  Turn next_change(Turn turn, const OwnSeeks& own) const;
  // How many shards the job has at `turn`, edits of that turn included.
  std::uint32_t shards(Turn turn) const;
  source::Sharding sharding(const State& state) const {
    return job::sharding(state, record_.versions);
  }
  // Of whole epochs like that of `state`.
  std::uint64_t steps_per_epoch(const State& state) const;

  // Nobody has been in the run, so that all edits are of its first turn: they become its base, and
  // a rank's own place counts behind them.
  void begin_behind_edits();

  // The new version's number. facts.items and facts.batch > 0.
  std::uint32_t add_version(VersionFacts facts);
  // Forgets versions that neither the log nor `in_use` names.
  void forget_versions(const std::set<std::uint32_t>& in_use);

  // The entries that adding an edit takes from the log: later edits of its kind (seek and skip are
  // one kind), and the planned swap, if it is a swap.
  struct Replaced {
    std::vector<Edit> edits;
    std::optional<PlannedSwap> planned;
  };
  // Adds an edit at a turn that no member has been sent. `reached`: no member of the run was ever
  // sent a turn beyond; where that lies behind the edit, a new branch begins. `handed`: every
  // member that is here, or may still come, has been handed so many batches, and its own seeks are
  // anchored() there: the 65th edit folds the oldest into the base, and is refused until all are
  // beyond that.
  Result<Replaced> add(Edit edit, Turn reached, Turn handed);

  // Takes the place of the swap that was planned before, and returns that. Not of a swap that has
  // its turn.
  Result<std::optional<PlannedSwap>> plan(PlannedSwap swap);
  void drop_planned() { record_.planned.reset(); }
  // The first turn from `turn` on at which the planned swap takes effect for the member: before it
  // is sent that turn, the swap must become an edit. kNoTurn: nothing is planned.
  Turn planned_turn(Turn turn, const OwnSeeks& own) const;

  // Whether the cursor's turn is one of this run, on this branch; else it is a place alone.
  bool counts(const Cursor& cursor, Turn reached) const;
  // An own seek at `turn`. An error where `position` lies behind the last item, where the place is
  // beyond kMaxCount, or where the log has no version of that order before `turn`. At position 0
  // the order is of no matter: the version that waits runs there.
  Result<OwnSeek> own_seek(Turn turn, const std::string& order, StepAt to, std::uint64_t position,
                           std::uint64_t skip = 0) const;
  // That of a member that attaches with a cursor that counts(). Also where the log leads to the
  // same place: that says nothing of where the member was before.
  Result<OwnSeek> own_seek(const Cursor& cursor) const;
  // The same places from `turn` on, with all that lies before in one own seek there.
  OwnSeeks anchored(const OwnSeeks& own, Turn turn) const;

  // How a shard came into the job last.
  struct Entry {
    Turn turn = 0;
    // Where it begins; none: no member that was there has come to `turn` yet.
    std::optional<OwnSeek> place;
  };
  // Nothing: the shard has been there from the base on, or has never been.
  std::optional<Entry> entry(std::uint32_t shard) const;
  // A member that was there, of these own seeks, has been handed `turn` batches: the shards that
  // enter at `turn` begin at its place, which is kept with the edit. False: none enters there, or
  // `own` begins later and does not tell.
  bool set_entry(Turn turn, const OwnSeeks& own);
  // All members have gone back to `frontier` or before it: where shards enter later is not known
  // any more.
  void forget_entries(Turn frontier);

 private:
  explicit Schedule(ScheduleRecord record) : record_(std::move(record)) {}

  // By so many edits of the log at most.
  State fold(Turn turn, const OwnSeeks& own, std::size_t edits) const;
  State applied(const State& state, const Edit& edit) const;
  // Of the log before `turn`: the number of shards, and the last version that is swapped to.
  State before(Turn turn) const;
  // The last version of that order before `turn`.
  std::optional<std::uint32_t> version_of(const std::string& order, Turn turn) const;
  // Whether every version has steps from `turn` on, in as many shards as there are then.
  Status check_steps(Turn turn) const;
  Status check_edit(const Edit& edit) const;
  // The first turn after `turn` at which an edit or an own seek says something. kNoTurn: none does.
  Turn next_said(Turn turn, const OwnSeeks& own) const;
  // One own seek in the place of all that led a member to `turn`.
  OwnSeek own_seek_behind(Turn turn, const OwnSeeks& own) const;
  bool knows(std::uint32_t version) const { return record_.versions.count(version) > 0; }
  void fold_oldest();
  void part(Turn turn);

  ScheduleRecord record_;
};

// Adds a seek of a member's own loop; its own seeks from that turn on are dropped.
void say(OwnSeeks& own, const OwnSeek& seek);

}  // namespace spdld::job
