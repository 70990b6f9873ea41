// SPDX-License-Identifier: Apache-2.0
// Random runs of a job: ranks with credits that read in lockstep or apart, seek in their loops,
// save and restore their states, die and come back, one by one or all from one state; a daemon that
// is killed and knows its record; an operator who seeks, skips, resizes, swaps and plans swaps. No
// turn may have two meanings, and every place is compared with that of slow_schedule.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "job/schedule.h"
#include "tests/unit/job/slow_schedule.h"

namespace spdld::job {
namespace {

// Rules that are left out, one at a time: the runs must find each.
enum class Mistake {
  kNone,
  kCursorBehindEdits,  // a cursor names the place behind the edits of its own turn
  kEntryAtCommand,     // a shard that enters has the own seeks as they were at the command
  kBranchIsIgnored,    // a state of an abandoned branch is taken for one of the run
  kNoOrder,            // a cursor without its order
  kEntryBelow,         // a shard that enters has own seeks below its turn alone
  kPlannedInFold,  // a planned swap has no turn: each member's place says whether it is in force
  kAbsentIsForgotten,  // after a restart, a rank that is not back counts for nothing
  kEntryIsNotKept,     // a restart forgets where a shard enters, and the log alone is asked
};

struct Position {
  StepAt at;
  std::uint64_t position = 0;
};

// What a rank's process knows.
struct Process {
  Turn handed = 0;
  Position cursor;
  std::string order;
  std::uint32_t branch = 0;
  std::optional<std::uint64_t> epoch;  // of the last batch
  std::set<Turn> said;                 // of its program
  slow::Changes own;                   // all that its loop has said, and where it came from
};

struct Saved {
  std::uint64_t run = 0;
  Process process;
  bool abandoned = false;  // by the run's later branches
};

struct Rank {
  std::uint32_t shard = 0;
  Process process;
  // What the daemon knows.
  bool attached = true;
  bool enters = false;  // its shard is new, and it has been sent nothing
  bool done = false;    // its shard was resized away, and it has come to that turn
  Turn next = 0;        // is sent next
  Turn sent = 0;        // was sent at most
  OwnSeeks own;
  OwnSeeks own_at_command;  // of kEntryAtCommand
  std::vector<Saved> saved;
};

struct Said {
  enum class Kind { kEpoch, kPlace, kSkip } kind = Kind::kEpoch;
  std::uint64_t number = 0;  // epoch, or steps
};

// What has happened in random runs.
struct Counts {
  std::uint64_t handed = 0;    // batches
  std::uint64_t edits = 0;     // planned swaps that got their turn included
  std::uint64_t planned = 0;   // of those
  std::uint64_t branches = 0;  // that parted
  std::uint64_t folded = 0;    // edits
  std::uint64_t seeks = 0;     // of loops
  std::uint64_t attached = 0;  // ranks with a state
  std::uint64_t entered = 0;   // shards
  std::uint64_t restarts = 0;  // of the daemon
  std::uint64_t runs = 0;
};

constexpr int kFirstOrder = 0;
constexpr Turn kCredits = 4;

class Simulation {
 public:
  Simulation(std::uint64_t seed, Mistake mistake, Counts& counts)
      : random_(seed), mistake_(mistake), counts_(counts) {
    busy_ = one_in(16);
    replicas_ = one_in(4) ? 2 : 1;
    lockstep_ = !one_in(4);
    epoch_loops_ = lockstep_ && one_in(2);
    orders_[kFirstOrder] = number(40, 90);
    const auto shards = static_cast<std::uint32_t>(number(1, 3));
    begin_run(new_version(kFirstOrder), {}, shards);
    Turn turn = 0;
    for (std::uint64_t i = number(0, 3); lockstep_ && !epoch_loops_ && i > 0; --i) {
      turn += number(3, 15);
      program_[turn] = {.kind = static_cast<Said::Kind>(number(0, 2)), .number = number(0, 3)};
    }
  }

  // The first problem; empty: there was none.
  std::string go() {
    const int steps = busy_ ? 1200 : 400;
    for (int i = 0; i < steps && problem_.empty(); ++i) step();
    return problem_;
  }

 private:
  std::uint64_t number(std::uint64_t least, std::uint64_t most) {
    return least + random_() % (most - least + 1);
  }
  bool one_in(std::uint64_t many) { return random_() % many == 0; }
  static std::string order_text(int order) { return "order" + std::to_string(order); }
  void fail(const std::string& why) {
    if (problem_.empty()) problem_ = why;
  }

  slow::Version new_version(int order) {
    return {.items = orders_.at(order),
            .tail = static_cast<Tail>(number(0, 2)),
            .batch = number(1, 3),
            .order = order};
  }
  static VersionFacts facts(const slow::Version& version) {
    return {.items = version.items,
            .tail = version.tail,
            .batch = version.batch,
            .order = order_text(version.order)};
  }

  void begin_run(const slow::Version& version, Position from, std::uint32_t shards) {
    ++run_;
    ++counts_.runs;
    schedule_.emplace(run_, facts(version),
                      State{.epoch = from.at.epoch,
                            .step = from.at.step,
                            .position = from.position,
                            .shards = shards});
    slow_ = {.first = {from.at.epoch, from.at.step, from.position, shards, 0, 0},
             .versions = {version},
             .edits = {},
             .plan = {}};
    record_.clear();
    entering_.clear();
    reached_ = reserved_ = 0;
    std::vector<Saved> saved;
    for (const Rank& rank : ranks_) saved.insert(saved.end(), rank.saved.begin(), rank.saved.end());
    ranks_.clear();
    for (std::uint32_t shard = 0; shard < shards; ++shard) add_ranks(shard, false);
    ranks_.front().saved = std::move(saved);
    for (Rank& rank : ranks_) {
      rank.process.cursor = from;
      rank.process.order = order_text(version.order);
    }
  }
  void add_ranks(std::uint32_t shard, bool enters) {
    for (int replica = 0; replica < replicas_; ++replica) {
      ranks_.emplace_back();
      ranks_.back().shard = shard;
      ranks_.back().enters = enters;
    }
  }

  // --- The daemon.

  bool is_slow(const State& state, const slow::Step& step) {
    return state.epoch == step.epoch && state.step == step.step &&
           state.position == step.position && state.shards == step.shards &&
           facts(slow_.versions[step.version]) == schedule_->record().versions.at(state.version) &&
           state.version == step.version && state.next_version == step.waiting;
  }
  static std::string text(const State& state) {
    return place_text(state.at()) + " position " + std::to_string(state.position) + " of " +
           std::to_string(state.shards) + " version " + std::to_string(state.version) + " then " +
           std::to_string(state.next_version);
  }
  static std::string text(const slow::Step& step) {
    return text(
        State{step.epoch, step.step, step.position, step.shards, step.version, step.waiting});
  }

  State sent_at(const Rank& rank, Turn turn) const {
    State state = schedule_->locate(turn, rank.own);
    const auto& planned = schedule_->record().planned;
    if (mistake_ != Mistake::kPlannedInFold || !planned) return state;
    const Turn first = std::max(planned->from, rank.own.empty() ? 0 : rank.own.front().turn);
    for (Turn at = first; at <= turn; ++at) {
      const State there = schedule_->locate(at, rank.own);
      if (planned->place ? there.at() >= *planned->place : there.position == 0)
        state.version = planned->version;
    }
    return state;
  }

  // Turns that are sent or may have been: no edit begins before.
  Turn frontier() const {
    Turn most = 0;
    for (const Rank& rank : ranks_) {
      if (rank.enters) continue;
      if (mistake_ == Mistake::kAbsentIsForgotten && !rank.attached) continue;
      most = std::max(most, rank.sent);
    }
    return std::max(most, schedule_->record().oldest);
  }
  Turn all_handed() const {
    Turn least = kNoTurn;
    for (const Rank& rank : ranks_) {
      if (rank.enters) {
        if (const auto entry = schedule_->entry(rank.shard)) least = std::min(least, entry->turn);
      } else if (rank.attached) {
        least = std::min(least, rank.process.handed);
      }
    }
    return least;
  }
  bool may_be_sent(const Rank& rank, Turn turn) const {
    return rank.attached && !rank.enters && rank.shard < schedule_->shards(turn) &&
           turn < rank.process.handed + kCredits;
  }

  bool add(const slow::Change& change) {
    const Turn turn = change.turn;
    Edit edit{.turn = turn, .change = Edit::Swap{change.version}};
    if (change.kind == slow::Kind::kSeek) edit.change = Edit::Seek{{change.epoch, change.step}};
    if (change.kind == slow::Kind::kSkip) edit.change = Edit::Skip{change.epoch, change.count};
    if (change.kind == slow::Kind::kResize)
      edit.change = Edit::Resize{static_cast<std::uint32_t>(change.count)};
    for (const Rank& rank : ranks_) {
      if (!rank.enters && rank.process.handed > turn)
        fail("a change begins at turn " + std::to_string(turn) + ", and a rank was handed " +
             std::to_string(rank.process.handed));
    }
    const std::uint32_t shards = schedule_->shards(turn);
    const std::uint32_t branch = schedule_->branch();
    const Turn handed = all_handed();
    for (Rank& rank : ranks_) {
      if (reads(rank) && handed != kNoTurn)
        rank.own = schedule_->anchored(rank.own, rank.process.handed);
    }
    const bool full = schedule_->edits().size() == Schedule::kMostEdits;
    const auto added = schedule_->add(edit, reached_, handed);
    if (!added) {
      if (!full) fail("refused: " + added.error().message());
      return false;
    }
    counts_.folded += full ? 1 : 0;
    if (schedule_->edits().size() > Schedule::kMostEdits) fail("the log has no bound");
    slow_.add(change);
    ++counts_.edits;
    if ((schedule_->branch() != branch) != (turn < reached_)) fail("a branch too many, or too few");
    if (turn < reached_) {
      ++counts_.branches;
      for (Rank& rank : ranks_) {
        for (Saved& saved : rank.saved)
          saved.abandoned = saved.abandoned || saved.process.handed > turn;
      }
      reached_ = turn;
    }
    record_.erase(record_.lower_bound({turn, 0}), record_.end());
    if (change.kind == slow::Kind::kResize) {
      OwnSeeks at_command;
      if (!ranks_.empty()) at_command = ranks_.front().own;
      std::erase_if(ranks_, [&](const Rank& rank) {
        return rank.shard >= shards || (rank.enters && rank.shard >= change.count);
      });
      for (auto shard = shards; shard < change.count; ++shard) add_ranks(shard, true);
      for (Rank& rank : ranks_) {
        if (rank.enters) rank.own_at_command = at_command;
      }
    }
    return true;
  }

  void operate() {
    slow::Change change{.turn = frontier()};
    switch (number(0, 4)) {
      case 0:
        change.kind = slow::Kind::kSeek;
        change.epoch = number(0, 4);
        change.step = number(0, 1);
        break;
      case 1:
        change.kind = slow::Kind::kSkip;
        change.count = number(1, 4);
        break;
      case 2:
        change.kind = slow::Kind::kResize;
        change.count = number(1, 4);
        break;
      default: change.kind = slow::Kind::kSwap; break;
    }
    if (change.kind != slow::Kind::kSwap) {
      std::set<std::pair<StepAt, std::uint64_t>> places;
      for (const Rank& rank : ranks_) {
        if (!reads(rank) || rank.shard >= schedule_->shards(change.turn)) continue;
        const State state = schedule_->locate(change.turn, rank.own);
        places.emplace(state.at(), state.position);
      }
      if (places.size() > 1) return;  // refused: ranks are in different places
      if (change.kind == slow::Kind::kSkip) {
        if (places.empty()) return;
        change.epoch = places.begin()->first.epoch;
      }
      add(change);
      return;
    }
    change.version = made_version();
    add(change);
  }
  std::uint32_t made_version() {
    int order = kFirstOrder;
    if (one_in(3)) {
      order = static_cast<int>(number(0, orders_.size()));
      orders_.try_emplace(order, number(40, 90));
    }
    slow_.versions.push_back(new_version(order));
    if (mistake_ == Mistake::kPlannedInFold) slow_.versions.back().order = kFirstOrder;
    if (mistake_ == Mistake::kPlannedInFold)
      slow_.versions.back() = slow_.versions[slow_.versions.size() - 2];
    return schedule_->add_version(facts(slow_.versions.back()));
  }
  void plan() {
    const Turn from = frontier();
    const auto reader =
        std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return reads(rank); });
    const State now = schedule_->locate(from, reader == ranks_.end() ? OwnSeeks{} : reader->own);
    slow::Plan plan{.from = from,
                    .any_epoch = one_in(2),
                    .epoch = now.epoch + number(0, 1),
                    .step = number(0, 5)};
    plan.version = made_version();
    const auto planned = schedule_->plan(
        {.from = from,
         .place = plan.any_epoch ? std::nullopt
                                 : std::optional<StepAt>({.epoch = plan.epoch, .step = plan.step}),
         .version = plan.version});
    if (!planned) return fail("refused: " + planned.error().message());
    slow_.plan = plan;
  }

  void send(Rank& rank) {
    if (rank.enters) {
      if (!enter(rank)) return;
    }
    const Turn turn = rank.next;
    if (!may_be_sent(rank, turn)) return;
    if (mistake_ != Mistake::kPlannedInFold) {
      const bool due = schedule_->planned_turn(turn, rank.own) == turn;
      if (due != slow_.is_due(turn, rank.process.own))
        return fail("a planned swap is due too early, or too late");
      if (due) {
        if (!add({.turn = std::max(frontier(), turn),
                  .kind = slow::Kind::kSwap,
                  .version = slow_.plan->version}))
          return;
        ++counts_.planned;
      }
    }
    if (turn >= reserved_) {
      if (one_in(2)) return;  // it is not written yet
      reserved_ = turn + number(1, 8);
    }
    rank.next = turn + 1;
    rank.sent = std::max(rank.sent, rank.next);
    reached_ = std::max(reached_, rank.sent);
  }
  bool enter(Rank& rank) {
    const auto entry = schedule_->entry(rank.shard);
    if (!entry || !entry->place) return false;
    const Turn turn = entry->turn;
    rank.enters = false;
    rank.attached = true;
    rank.process = entering_.at(turn);
    rank.process.branch = schedule_->branch();
    rank.own = {*entry->place};
    if (mistake_ == Mistake::kEntryAtCommand) {
      rank.own = rank.own_at_command;
      std::erase_if(rank.own, [&](const OwnSeek& seek) { return seek.turn > turn; });
    }
    rank.next = rank.sent = turn;
    tell_cursor(rank);
    ++counts_.entered;
    return true;
  }
  // A rank has come to the turn at which other shards enter.
  void look_for_entry(const Rank& rank) {
    const std::vector<Edit> edits = schedule_->edits();
    const auto known = [&](Turn turn) {
      return std::any_of(edits.begin(), edits.end(), [&](const Edit& edit) {
        const auto* const resize = std::get_if<Edit::Resize>(&edit.change);
        return edit.turn == turn && resize != nullptr && resize->entry;
      });
    };
    for (const Edit& edit : edits) {
      const auto* const resize = std::get_if<Edit::Resize>(&edit.change);
      if (resize == nullptr || resize->entry || edit.turn > rank.process.handed) continue;
      if (edit.turn > 0 ? rank.shard >= schedule_->shards(edit.turn - 1) : rank.shard > 0) continue;
      OwnSeeks own = rank.own;
      if (mistake_ == Mistake::kEntryBelow)
        std::erase_if(own, [&](const OwnSeek& seek) { return seek.turn >= edit.turn; });
      if (mistake_ == Mistake::kEntryIsNotKept && !own.empty() && own.front().turn > edit.turn)
        own.clear();
      if (!schedule_->set_entry(edit.turn, own) || known(edit.turn)) continue;
      // Its process is in the same loops.
      Process process = rank.process;
      std::erase_if(process.own, [&](const slow::Change& known) { return known.turn > edit.turn; });
      process.said.erase(process.said.upper_bound(edit.turn), process.said.end());
      if (process.handed != edit.turn) process.epoch.reset();
      process.handed = edit.turn;
      entering_[edit.turn] = std::move(process);
    }
  }
  // The daemon's word of where the process is: a cursor.
  void tell_cursor(Rank& rank) {
    const State place = mistake_ == Mistake::kCursorBehindEdits
                            ? schedule_->locate(rank.process.handed, rank.own)
                            : schedule_->behind(rank.process.handed, rank.own);
    rank.process.cursor = {place.at(), place.position};
    rank.process.order = schedule_->record().versions.at(place.version).order;
  }

  void restart_daemon() {
    auto restored = Schedule::restored(schedule_->record());
    if (!restored) return fail("not restored: " + restored.error().message());
    if (!(restored->record() == schedule_->record())) return fail("restored as another one");
    *schedule_ = *std::move(restored);
    if (mistake_ == Mistake::kEntryIsNotKept) schedule_->forget_entries(0);
    reached_ = reserved_;
    ++counts_.restarts;
    for (Rank& rank : ranks_) {
      if (rank.enters) continue;
      rank.attached = false;
      rank.own.clear();
      rank.sent = std::max(rank.sent, reserved_);
    }
  }

  // --- Ranks.

  Cursor cursor_of(const Saved& saved) const {
    Cursor cursor{.order = saved.process.order,
                  .at = saved.process.cursor.at,
                  .position = saved.process.cursor.position,
                  .run = saved.run,
                  .branch = saved.process.branch,
                  .turn = saved.process.handed};
    if (mistake_ == Mistake::kNoOrder) cursor.order.clear();
    if (mistake_ == Mistake::kBranchIsIgnored) cursor.branch = schedule_->branch();
    return cursor;
  }
  bool counts(const Saved& saved) {
    const bool does = schedule_->counts(cursor_of(saved), reached_);
    const bool should =
        saved.run == run_ && !saved.abandoned && saved.process.handed >= schedule_->record().oldest;
    if (does != should && mistake_ == Mistake::kNone)
      fail("a state is taken for one of another run, or the other way round");
    return does;
  }
  void attach(Rank& rank, const Saved& from) {
    ++counts_.attached;
    rank.process = from.process;
    rank.attached = true;
    rank.enters = rank.done = false;
    rank.next = rank.sent = rank.process.handed;
    const auto own = schedule_->own_seek(cursor_of(from));
    if (!own) return fail("refused: " + own.error().message());
    rank.own = {*own};
    rank.process.branch = schedule_->branch();
    schedule_->forget_entries(frontier());
    const Turn turn = rank.process.handed;
    if (mistake_ == Mistake::kNone &&
        !is_slow(schedule_->behind(turn, rank.own), slow_.locate(turn, rank.process.own, true)))
      fail("a state leads elsewhere: " + text(schedule_->behind(turn, rank.own)) + ", not " +
           text(slow_.locate(turn, rank.process.own, true)));
    look_for_entry(rank);
  }
  Saved saved_now(const Rank& rank) const { return {.run = run_, .process = rank.process}; }
  bool reads(const Rank& rank) const { return rank.attached && !rank.enters; }

  void come_back(Rank& rank) {
    const Saved now = saved_now(rank);
    if (!rank.saved.empty() && one_in(3)) {
      const Saved& old = rank.saved[number(0, rank.saved.size() - 1)];
      if (counts(old)) return attach(rank, Saved(old));
    }
    if (counts(now)) return attach(rank, now);
    start_again(now);
  }
  // All ranks from one state, as a launcher does.
  void start_again(const Saved& from) {
    if (!counts(from)) {
      // A place alone, of which a new run begins.
      const int order = order_of(from.process.order);
      const std::uint64_t items = orders_.at(order);
      if (from.process.cursor.position > items) return fail("a cursor behind the last item");
      slow::Version version = new_version(order);
      return begin_run(version, from.process.cursor, static_cast<std::uint32_t>(number(1, 3)));
    }
    const std::uint32_t shards = schedule_->shards(from.process.handed);
    std::erase_if(ranks_, [&](const Rank& rank) { return rank.shard >= shards; });
    for (Rank& rank : ranks_) {
      rank.attached = false;
      rank.enters = false;
    }
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      if (std::none_of(ranks_.begin(), ranks_.end(),
                       [&](const Rank& rank) { return rank.shard == shard; }))
        add_ranks(shard, false);
    }
    for (Rank& rank : ranks_) attach(rank, from);
    for (std::uint32_t shard = shards; shard < schedule_->shards(kNoTurn); ++shard)
      add_ranks(shard, true);
  }
  static int order_of(const std::string& text) { return std::stoi(text.substr(5)); }

  bool says(Rank& rank) {
    Process& process = rank.process;
    const Turn turn = process.handed;
    if (epoch_loops_ && process.epoch) {
      const std::uint64_t next = *process.epoch + 1;
      const State now = schedule_->locate(turn, rank.own);
      const State behind = schedule_->behind(turn, rank.own);
      if (behind.epoch == next || (now.epoch == next && now.position == 0)) {
        process.epoch.reset();
        say(rank, {next, 0}, 0, {}, 0);
        return true;
      }
    }
    const auto line = program_.find(turn);
    if (line == program_.end() || !process.said.insert(turn).second) return false;
    const Said& word = line->second;
    switch (word.kind) {
      case Said::Kind::kEpoch: say(rank, {word.number, 0}, 0, {}, 0); break;
      case Said::Kind::kPlace: {
        const std::uint32_t last = schedule_->behind(turn, {}).next_version;
        say(rank, {word.number, 2}, 7, schedule_->record().versions.at(last).order, 0);
        break;
      }
      case Said::Kind::kSkip:
        say(rank, process.cursor.at, process.cursor.position, process.order, word.number);
        break;
    }
    return true;
  }
  void say(Rank& rank, StepAt to, std::uint64_t position, const std::string& order,
           std::uint64_t skip) {
    const Turn turn = rank.process.handed;
    const auto seek = schedule_->own_seek(turn, order, to, position, skip);
    if (!seek) return fail("refused: " + seek.error().message());
    slow::Changes& own = rank.process.own;
    std::erase_if(own, [&](const slow::Change& known) { return known.turn >= turn; });
    own.push_back({.turn = turn,
                   .kind = slow::Kind::kPlace,
                   .epoch = to.epoch,
                   .step = to.step,
                   .position = position,
                   .order = order.empty() ? 0 : order_of(order)});
    if (skip > 0) own.push_back({.turn = turn, .kind = slow::Kind::kOwnSkip, .count = skip});
    job::say(rank.own, *seek);
    ++counts_.seeks;
    rank.next = turn;
    tell_cursor(rank);
  }

  void consume(Rank& rank) {
    if (!reads(rank)) return;
    Process& process = rank.process;
    if (rank.shard >= schedule_->shards(process.handed)) {
      rank.done = true;
      rank.attached = false;
      return;
    }
    if (lockstep_) {
      for (const Rank& other : ranks_) {
        if (!other.enters && !other.done && other.process.handed < process.handed) return;
      }
    }
    if (says(rank)) return;
    const Turn turn = process.handed;
    if (rank.next <= turn) return;
    const State state = sent_at(rank, turn);
    if (mistake_ != Mistake::kPlannedInFold) check(rank, turn, state);
    for (std::uint32_t shard = 0; shard < state.shards; ++shard) {
      const auto known = record_.find({turn, shard});
      if (known != record_.end() && !(known->second == state))
        fail("turn " + std::to_string(turn) + " is " + text(state) + " on shard " +
             std::to_string(rank.shard) + " and was " + text(known->second));
    }
    record_[{turn, rank.shard}] = state;
    ++counts_.handed;
    process.handed = turn + 1;
    process.branch = schedule_->branch();
    process.epoch = state.epoch;
    // The process counts on from its batch; at an epoch's end it may not know yet that this is one.
    const State place = schedule_->behind(turn + 1, rank.own);
    if (mistake_ == Mistake::kCursorBehindEdits || one_in(2)) {
      tell_cursor(rank);
    } else {
      const source::Sharding sharding = schedule_->sharding(state);
      process.cursor = {{state.epoch, state.step + 1}, sharding.position_of(state.step + 1)};
      process.order = schedule_->record().versions.at(state.version).order;
      if (place.epoch != state.epoch && one_in(2)) process.cursor = {{state.epoch + 1, 0}, 0};
    }
    look_for_entry(rank);
  }
  void check(const Rank& rank, Turn turn, const State& state) {
    const slow::Step step = slow_.locate(turn, rank.process.own);
    if (!is_slow(state, step))
      return fail("turn " + std::to_string(turn) + " is " + text(state) + ", not " + text(step));
    if (!one_in(16)) return;
    const Turn until = std::min(schedule_->next_change(turn, rank.own), turn + 40);
    for (Turn later = turn + 1; later < until; ++later) {
      const State there = schedule_->locate(later, rank.own);
      if (there.shards != state.shards || there.version != state.version ||
          !(there == advanced(state, later - turn, schedule_->record().versions)))
        return fail("a span has a change within");
    }
    if (schedule_->shards(turn) != slow_.shards(turn)) fail("another number of shards");
  }

  void step() {
    Rank& rank = ranks_[number(0, ranks_.size() - 1)];
    const std::uint64_t act = number(0, 999);
    if (busy_ && act < 150) return operate();
    if (act < 430) return send(rank);
    if (act < 880) return consume(rank);
    if (act < 910) {
      if (reads(rank)) rank.saved.push_back(saved_now(rank));
    } else if (act < 918) {
      if (!rank.enters) rank.attached = false;  // it dies; how much it was sent is known
    } else if (act < 950) {
      if (!rank.enters && !rank.attached && !rank.done) come_back(rank);
    } else if (act < 954) {
      const std::vector<Saved>& saved = ranks_[number(0, ranks_.size() - 1)].saved;
      if (!saved.empty() && lockstep_) start_again(Saved(saved[number(0, saved.size() - 1)]));
    } else if (act < 958) {
      restart_daemon();
    } else if (act < 988) {
      operate();
    } else if (act < 994) {
      plan();
    } else if (reads(rank)) {
      rank.own = schedule_->anchored(rank.own, rank.process.handed);
    }
  }

  std::mt19937_64 random_;
  const Mistake mistake_;
  Counts& counts_;
  bool busy_ = false;
  int replicas_ = 1;
  bool lockstep_ = true;
  bool epoch_loops_ = false;
  std::map<int, std::uint64_t> orders_;  // items
  std::map<Turn, Said> program_;

  std::uint64_t run_ = 0;
  std::optional<Schedule> schedule_;
  slow::Log slow_;
  Turn reached_ = 0;
  Turn reserved_ = 0;
  std::vector<Rank> ranks_;
  // The process of the first rank that came to a turn at which others enter.
  std::map<Turn, Process> entering_;
  std::map<std::pair<Turn, std::uint32_t>, State> record_;  // of the branch as it is
  std::string problem_;
};

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

unsigned long long of(std::uint64_t number) { return number; }

TEST(ScheduleRandom, NoTurnHasTwoMeaningsInRandomRuns) {
  const std::uint64_t count = from_environment("SPDLD_SCHEDULES", 10000);
  const std::uint64_t first = from_environment("SPDLD_SCHEDULE_SEED", 1);
  Counts counts;
  int failed = 0;
  for (std::uint64_t seed = first; seed < first + count && failed < 5; ++seed) {
    const std::string problem = Simulation(seed, Mistake::kNone, counts).go();
    EXPECT_EQ(problem, "") << "seed " << seed;
    failed += problem.empty() ? 0 : 1;
  }
  std::printf(
      "%llu runs: %llu batches, %llu edits, of these %llu planned; %llu branches, %llu edits "
      "folded, "
      "%llu own seeks, %llu states, %llu shards entered, %llu restarts\n",
      of(counts.runs), of(counts.handed), of(counts.edits), of(counts.planned), of(counts.branches),
      of(counts.folded), of(counts.seeks), of(counts.attached), of(counts.entered),
      of(counts.restarts));
  // So much happens in a hundred runs.
  if (count < 1000) return;
  for (const std::uint64_t happened : {counts.planned, counts.branches, counts.folded, counts.seeks,
                                       counts.attached, counts.entered, counts.restarts})
    EXPECT_GT(happened, count / 10);
}

class ScheduleMistake : public testing::TestWithParam<Mistake> {};

TEST_P(ScheduleMistake, IsFoundByRandomRuns) {
  constexpr std::uint64_t kMostRuns = 20000;
  Counts counts;
  // The last one takes so long a schedule that the first runs do not find it.
  const std::uint64_t first = GetParam() == Mistake::kEntryIsNotKept ? 2601 : 1;
  for (std::uint64_t seed = first; seed <= kMostRuns; ++seed) {
    const std::string problem = Simulation(seed, GetParam(), counts).go();
    if (problem.empty()) continue;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), problem.c_str());
    return;
  }
  FAIL() << "no run has found it";
}

INSTANTIATE_TEST_SUITE_P(All, ScheduleMistake,
                         testing::Values(Mistake::kCursorBehindEdits, Mistake::kEntryAtCommand,
                                         Mistake::kBranchIsIgnored, Mistake::kNoOrder,
                                         Mistake::kEntryBelow, Mistake::kPlannedInFold,
                                         Mistake::kAbsentIsForgotten, Mistake::kEntryIsNotKept));

}  // namespace
}  // namespace spdld::job
