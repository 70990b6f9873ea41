// SPDX-License-Identifier: Apache-2.0
#include "job/schedule.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/text/counted.h"

namespace spdld::job {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

bool moves_place(const Edit& edit) {
  return std::holds_alternative<Edit::Seek>(edit.change) ||
         std::holds_alternative<Edit::Skip>(edit.change);
}

bool same_kind(const Edit& a, const Edit& b) {
  return a.change.index() == b.change.index() || (moves_place(a) && moves_place(b));
}

// The last own seek up to `turn`; null: there is none.
const OwnSeek* last_own(const OwnSeeks& own, Turn turn) {
  const auto later = std::find_if(own.begin(), own.end(),
                                  [turn](const OwnSeek& seek) { return seek.turn > turn; });
  return later == own.begin() ? nullptr : &*std::prev(later);
}

// The number of shards, and the version that is swapped to last, as the edit leaves them.
void take_last(State& state, const Edit& edit) {
  if (const auto* const resize = std::get_if<Edit::Resize>(&edit.change))
    state.shards = resize->shards;
  if (const auto* const swap = std::get_if<Edit::Swap>(&edit.change))
    state.next_version = swap->version;
}

tl::unexpected<Status> no_schedule(const std::string& why) {
  return error(Code::kDataLoss, "the record of the job's schedule is damaged: " + why);
}

}  // namespace

Schedule::Schedule(std::uint64_t run, VersionFacts first, State from) {
  record_.run = run;
  from.version = from.next_version = add_version(std::move(first));
  SPDLD_CHECK(from.shards > 0 && from.position <= record_.versions.at(from.version).items);
  record_.base = settled(from, record_.versions);
  record_.earlier = {from.version};
}

Result<Schedule> Schedule::restored(ScheduleRecord record) {
  for (const auto& [number, facts] : record.versions) {
    if (facts.items == 0 || facts.items > kMaxCount || facts.batch == 0)
      return no_schedule("version " + std::to_string(number) + " has no rows, or too many");
    if (facts.group > 0 && (facts.items % facts.group > 0 || facts.batch % facts.group > 0))
      return no_schedule("version " + std::to_string(number) + " parts the rows of an item");
    if (number >= record.versions_made)
      return no_schedule("version " + std::to_string(number) + " is none that was made");
    for (const auto& [other, its] : record.versions) {
      if (its.order == facts.order && its.items != facts.items)
        return no_schedule("versions " + std::to_string(number) + " and " + std::to_string(other) +
                           " are of one order and have different items");
    }
  }
  Schedule schedule(std::move(record));
  const ScheduleRecord& has = schedule.record_;
  if (!schedule.knows(has.base.version) || !schedule.knows(has.base.next_version))
    return no_schedule("its base has a version that it does not know");
  for (const std::uint32_t number : has.earlier) {
    if (!schedule.knows(number)) return no_schedule("an earlier version is not known");
  }
  if (has.earlier.empty() || has.earlier.size() > kMostEdits)
    return no_schedule("it has too few earlier versions, or too many");
  if (has.base.shards == 0 || has.base.position > has.versions.at(has.base.version).items)
    return no_schedule("its base is no place of its version");
  SPDLD_TRY(check_place(has.base.at()).with_context("the record of the job's schedule"));
  if (has.base_turn > kMaxCount || has.oldest < has.base_turn || has.oldest > has.base_turn + 1)
    return no_schedule("its base is not where its oldest turn is");
  if (has.edits.size() > kMostEdits) return no_schedule("it has too many edits");
  Turn turn = has.base_turn;
  for (const Edit& edit : has.edits) {
    if (edit.turn < turn || edit.turn > kMaxCount) return no_schedule("its edits are not in order");
    turn = edit.turn;
    SPDLD_TRY(schedule.check_edit(edit).with_context("the record of the job's schedule"));
  }
  if (has.planned) {
    if (!schedule.knows(has.planned->version))
      return no_schedule("the planned swap has a version that it does not know");
    if (has.planned->place)
      SPDLD_TRY(check_place(*has.planned->place).with_context("the planned swap"));
  }
  for (std::size_t i = 1; i < has.partings.size(); ++i) {
    if (has.partings[i].branch <= has.partings[i - 1].branch ||
        has.partings[i].turn <= has.partings[i - 1].turn)
      return no_schedule("its branches are not in order");
  }
  if (job::steps_per_epoch(has.versions.at(has.base.next_version), has.base.shards) == 0)
    return no_schedule("its base has no steps");
  SPDLD_TRY(schedule.check_steps(0).with_context("the record of the job's schedule"));
  schedule.record_.base = settled(has.base, has.versions);
  return schedule;
}

std::uint32_t Schedule::branch() const {
  return record_.partings.empty() ? 0 : record_.partings.back().branch;
}

State Schedule::applied(const State& state, const Edit& edit) const {
  State next = state;
  std::visit(Overloaded{[&](const Edit::Seek& seek) {
                          next.version = state.next_version;
                          next.epoch = seek.to.epoch;
                          next.step = next.position = 0;
                          const source::Sharding whole = sharding(next);
                          next.step = std::min(seek.to.step, whole.end_step());
                          next.position = whole.position_of(next.step);
                        },
                        [&](const Edit::Skip& skip) {
                          if (state.epoch == skip.epoch)
                            next = skipped(state, skip.steps, record_.versions);
                        },
                        [&](const Edit::Resize& resize) { next.shards = resize.shards; },
                        [&](const Edit::Swap& swap) {
                          next.next_version = swap.version;
                          if (record_.versions.at(swap.version).order ==
                              record_.versions.at(state.version).order)
                            next.version = swap.version;
                        }},
             edit.change);
  return settled(next, record_.versions);
}

State Schedule::before(Turn turn) const {
  State state = record_.base;
  for (const Edit& edit : record_.edits) {
    if (edit.turn >= turn) break;
    take_last(state, edit);
  }
  return state;
}

State Schedule::fold(Turn turn, const OwnSeeks& own, std::size_t edits) const {
  SPDLD_CHECK(turn >= record_.base_turn);
  State state = record_.base;
  Turn at = record_.base_turn;
  if (const OwnSeek* const seek = last_own(own, turn)) {
    SPDLD_CHECK(seek->turn >= record_.oldest && knows(seek->version));
    state = before(seek->turn);
    state.epoch = seek->to.epoch;
    state.step = seek->to.step;
    state.position = seek->position;
    state.version = seek->version;
    state = skipped(settled(state, record_.versions), seek->skip, record_.versions);
    at = seek->turn;
  }
  for (std::size_t number = 0; number < edits; ++number) {
    const Edit& edit = record_.edits[number];
    if (edit.turn > turn) break;
    if (edit.turn < at) continue;
    state = applied(advanced(state, edit.turn - at, record_.versions), edit);
    at = edit.turn;
  }
  return advanced(state, turn - at, record_.versions);
}

State Schedule::locate(Turn turn, const OwnSeeks& own) const {
  return fold(turn, own, record_.edits.size());
}

State Schedule::behind(Turn turn, const OwnSeeks& own) const {
  const auto is_before = [turn](const Edit& edit) { return edit.turn < turn; };
  const std::vector<Edit>& edits = record_.edits;
  return fold(turn, own,
              static_cast<std::size_t>(std::count_if(edits.begin(), edits.end(), is_before)));
}

State Schedule::before_edit(std::size_t number, const OwnSeeks& own) const {
  return fold(record_.edits.at(number).turn, own, number);
}

Turn Schedule::next_said(Turn turn, const OwnSeeks& own) const {
  Turn next = kNoTurn;
  for (const Edit& edit : record_.edits) {
    if (edit.turn > turn) next = std::min(next, edit.turn);
  }
  for (const OwnSeek& seek : own) {
    if (seek.turn > turn) next = std::min(next, seek.turn);
  }
  return next;
}

Turn Schedule::next_change(Turn turn, const OwnSeeks& own) const {
  Turn next = next_said(turn, own);
  const State state = locate(turn, own);
  if (state.version != state.next_version)
    next = std::min(next, turn + steps_until_epoch_start(state, record_.versions));
  return next;
}

std::uint32_t Schedule::shards(Turn turn) const {
  return before(turn == kNoTurn ? turn : turn + 1).shards;
}

std::uint64_t Schedule::steps_per_epoch(const State& state) const {
  return job::steps_per_epoch(record_.versions.at(state.version), state.shards);
}

std::uint32_t Schedule::add_version(VersionFacts facts) {
  SPDLD_CHECK(facts.items > 0 && facts.batch > 0);
  const std::uint32_t number = record_.versions_made++;
  record_.versions.emplace(number, std::move(facts));
  return number;
}

void Schedule::forget_versions(const std::set<std::uint32_t>& in_use) {
  std::set<std::uint32_t> named = in_use;
  named.insert({record_.base.version, record_.base.next_version});
  named.insert(record_.earlier.begin(), record_.earlier.end());
  if (record_.planned) named.insert(record_.planned->version);
  for (const Edit& edit : record_.edits) {
    if (const auto* const swap = std::get_if<Edit::Swap>(&edit.change)) named.insert(swap->version);
    const auto* const resize = std::get_if<Edit::Resize>(&edit.change);
    if (resize != nullptr && resize->entry) named.insert(resize->entry->version);
  }
  std::erase_if(record_.versions,
                [&](const auto& version) { return named.count(version.first) == 0; });
}

Status Schedule::check_edit(const Edit& edit) const {
  if (const auto* const seek = std::get_if<Edit::Seek>(&edit.change)) return check_place(seek->to);
  if (const auto* const swap = std::get_if<Edit::Swap>(&edit.change); swap && !knows(swap->version))
    return Status(Code::kInternal,
                  "the job does not know version " + std::to_string(swap->version));
  if (const auto* const resize = std::get_if<Edit::Resize>(&edit.change)) {
    if (resize->shards == 0)
      return Status(Code::kInvalidArgument, "a job has at least 1 shard; name a larger number");
    if (!resize->entry) return {};
    if (resize->entry->turn != edit.turn || !knows(resize->entry->version) ||
        resize->entry->position > record_.versions.at(resize->entry->version).items)
      return Status(Code::kInternal, "the place at which shards enter is none of the job");
    return check_place(resize->entry->to);
  }
  return {};
}

Status Schedule::check_steps(Turn turn) const {
  State state = before(turn);
  const auto check = [&](std::uint32_t number) -> Status {
    const VersionFacts& version = record_.versions.at(number);
    if (job::steps_per_epoch(version, state.shards) > 0) return {};
    return Status(Code::kFailedPrecondition,
                  counted(version.items, "item") + " make no step of " +
                      counted(state.shards, "shard") + " with batches of " +
                      std::to_string(version.batch) +
                      "; lower batch.size, take fewer shards, or say 'batch: {last: pad}'");
  };
  if (record_.planned) SPDLD_TRY(check(record_.planned->version));
  for (const Edit& edit : record_.edits) {
    if (edit.turn < turn) continue;
    take_last(state, edit);
    SPDLD_TRY(check(state.next_version));
    if (record_.planned) SPDLD_TRY(check(record_.planned->version));
  }
  return {};
}

void Schedule::fold_oldest() {
  const Edit oldest = record_.edits.front();
  record_.base =
      applied(advanced(record_.base, oldest.turn - record_.base_turn, record_.versions), oldest);
  record_.base_turn = oldest.turn;
  record_.oldest = oldest.turn + 1;
  record_.edits.erase(record_.edits.begin());
  if (const auto* const swap = std::get_if<Edit::Swap>(&oldest.change)) {
    std::vector<std::uint32_t>& earlier = record_.earlier;
    std::erase_if(earlier, [&](std::uint32_t number) {
      return record_.versions.at(number).order == record_.versions.at(swap->version).order;
    });
    if (earlier.size() == kMostEdits) earlier.erase(earlier.begin());
    earlier.push_back(swap->version);
  }
  // Of the branches that parted before the oldest turn the last one says all.
  std::vector<Parting>& partings = record_.partings;
  while (partings.size() > 1 && partings[1].turn < record_.oldest) partings.erase(partings.begin());
}

void Schedule::begin_behind_edits() {
  for (const Edit& edit : std::exchange(record_.edits, {})) {
    SPDLD_CHECK(edit.turn == record_.base_turn);
    record_.base = applied(record_.base, edit);
  }
  record_.earlier = {record_.base.version};
  if (record_.base.next_version != record_.base.version)
    record_.earlier.push_back(record_.base.next_version);
}

void Schedule::part(Turn turn) {
  const std::uint32_t next = branch() + 1;
  while (!record_.partings.empty() && record_.partings.back().turn >= turn)
    record_.partings.pop_back();
  record_.partings.push_back({.branch = next, .turn = turn});
}

Result<Schedule::Replaced> Schedule::add(Edit edit, Turn reached, Turn handed) {
  SPDLD_CHECK(edit.turn >= record_.oldest && edit.turn < kNoTurn);
  SPDLD_TRY(check_edit(edit));
  Schedule next = *this;
  Replaced replaced;
  if (std::holds_alternative<Edit::Swap>(edit.change))
    replaced.planned = std::exchange(next.record_.planned, std::nullopt);
  std::vector<Edit>& edits = next.record_.edits;
  const auto later = std::find_if(edits.begin(), edits.end(),
                                  [&](const Edit& known) { return known.turn > edit.turn; });
  const auto gone = std::stable_partition(
      later, edits.end(), [&](const Edit& known) { return !same_kind(known, edit); });
  replaced.edits.assign(gone, edits.end());
  edits.erase(gone, edits.end());
  const Turn turn = edit.turn;
  edits.insert(std::find_if(edits.begin(), edits.end(),
                            [&](const Edit& known) { return known.turn > turn; }),
               edit);
  if (edits.size() > kMostEdits) {
    if (edits.front().turn >= handed)
      return error(Code::kFailedPrecondition,
                   counted(kMostEdits, "change") +
                       " of the job are known, and not all of its ranks have come through the "
                       "oldest of them; try again once they have");
    next.fold_oldest();
  }
  SPDLD_TRY(next.check_steps(turn));
  next.forget_entries(turn);
  if (turn < reached) next.part(turn);
  *this = std::move(next);
  return replaced;
}

Result<std::optional<PlannedSwap>> Schedule::plan(PlannedSwap swap) {
  SPDLD_CHECK(swap.from >= record_.oldest && knows(swap.version));
  if (swap.place) SPDLD_TRY(check_place(*swap.place));
  const std::optional<PlannedSwap> replaced = std::exchange(record_.planned, swap);
  Status steps = check_steps(record_.planned->from);
  if (steps.ok()) return replaced;
  record_.planned = replaced;
  return tl::unexpected<Status>(std::move(steps));
}

Turn Schedule::planned_turn(Turn turn, const OwnSeeks& own) const {
  if (!record_.planned) return kNoTurn;
  const PlannedSwap& planned = *record_.planned;
  turn = std::max(turn, planned.from);
  while (true) {
    const State state = locate(turn, own);
    const std::uint64_t steps = planned.place ? steps_until(state, *planned.place, record_.versions)
                                              : steps_until_epoch_start(state, record_.versions);
    const Turn change = next_said(turn, own);
    if (steps < change - turn) return turn + steps;
    if (change == kNoTurn) return kNoTurn;
    turn = change;
  }
}

bool Schedule::counts(const Cursor& cursor, Turn reached) const {
  if (cursor.run != record_.run || cursor.branch > branch()) return false;
  if (cursor.turn < record_.oldest || cursor.turn > reached) return false;
  return std::all_of(record_.partings.begin(), record_.partings.end(), [&](const Parting& parting) {
    return cursor.branch >= parting.branch || cursor.turn <= parting.turn;
  });
}

std::optional<std::uint32_t> Schedule::version_of(const std::string& order, Turn turn) const {
  std::optional<std::uint32_t> found;
  const auto has = [&](std::uint32_t number) { return record_.versions.at(number).order == order; };
  for (const Edit& edit : record_.edits) {
    const auto* const swap = std::get_if<Edit::Swap>(&edit.change);
    if (edit.turn < turn && swap != nullptr && has(swap->version)) found = swap->version;
  }
  if (found) return found;
  const auto earlier = std::find_if(record_.earlier.begin(), record_.earlier.end(), has);
  if (earlier == record_.earlier.end()) return std::nullopt;
  return *earlier;
}

Result<OwnSeek> Schedule::own_seek(Turn turn, const std::string& order, StepAt to,
                                   std::uint64_t position, std::uint64_t skip) const {
  SPDLD_TRY(check_place(to));
  std::optional<std::uint32_t> version = before(turn).next_version;
  if (position > 0 && !order.empty()) version = version_of(order, turn);
  if (!version)
    return error(Code::kFailedPrecondition, "the job has no version of the order '" + order +
                                                "': go on from a state of the data that it "
                                                "reads, or begin afresh");
  SPDLD_TRY(check_position(position, record_.versions.at(*version).items));
  return OwnSeek{.turn = turn, .to = to, .position = position, .version = *version, .skip = skip};
}

Result<OwnSeek> Schedule::own_seek(const Cursor& cursor) const {
  return own_seek(cursor.turn, cursor.order, cursor.at, cursor.position);
}

OwnSeek Schedule::own_seek_behind(Turn turn, const OwnSeeks& own) const {
  const State state = behind(turn, own);
  return {.turn = turn, .to = state.at(), .position = state.position, .version = state.version};
}

OwnSeeks Schedule::anchored(const OwnSeeks& own, Turn turn) const {
  if (last_own(own, turn) == nullptr) return own;
  OwnSeeks anchored{own_seek_behind(turn, own)};
  std::copy_if(own.begin(), own.end(), std::back_inserter(anchored),
               [turn](const OwnSeek& seek) { return seek.turn > turn; });
  return anchored;
}

std::optional<Schedule::Entry> Schedule::entry(std::uint32_t shard) const {
  std::optional<Entry> entry;
  std::uint32_t shards = record_.base.shards;
  for (const Edit& edit : record_.edits) {
    const auto* const resize = std::get_if<Edit::Resize>(&edit.change);
    if (resize == nullptr) continue;
    if (shard >= shards && shard < resize->shards) {
      entry.reset();
      if (edit.turn >= record_.oldest) entry = {.turn = edit.turn, .place = resize->entry};
    }
    shards = resize->shards;
  }
  return entry;
}

bool Schedule::set_entry(Turn turn, const OwnSeeks& own) {
  if (turn < record_.oldest || (!own.empty() && own.front().turn > turn)) return false;
  OwnSeek place = own_seek_behind(turn, own);
  std::vector<Edit::Resize*> resizes;
  for (Edit& edit : record_.edits) {
    auto* const resize = std::get_if<Edit::Resize>(&edit.change);
    if (edit.turn != turn || resize == nullptr) continue;
    resizes.push_back(resize);
    if (resize->entry) place = *resize->entry;  // one place for all that enter at this turn
  }
  for (Edit::Resize* const resize : resizes) resize->entry = place;
  return !resizes.empty();
}

void Schedule::forget_entries(Turn frontier) {
  for (Edit& edit : record_.edits) {
    auto* const resize = std::get_if<Edit::Resize>(&edit.change);
    if (edit.turn > frontier && resize != nullptr) resize->entry.reset();
  }
}

void say(OwnSeeks& own, const OwnSeek& seek) {
  std::erase_if(own, [&](const OwnSeek& known) { return known.turn >= seek.turn; });
  own.push_back(seek);
}

}  // namespace spdld::job
