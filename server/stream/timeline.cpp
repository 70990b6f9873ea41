// SPDX-License-Identifier: Apache-2.0
#include "stream/timeline.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "job/state.h"

namespace spdld::stream {
Timeline::Timeline(pipeline::PhasePtr first, std::uint32_t num_shards)
    : cuts_{{.from = {}, .position = 0, .num_shards = num_shards, .phase = std::move(first)}} {}

Timeline::Timeline(std::vector<Cut> cuts) : cuts_(std::move(cuts)) { SPDLD_CHECK(!cuts_.empty()); }

std::size_t Timeline::index_at(job::StepAt at) const {
  std::size_t index = 0;
  while (index + 1 < cuts_.size() && cuts_[index + 1].from <= at) ++index;
  return index;
}

source::Sharding Timeline::sharding_by(std::size_t index, job::StepAt at) const {
  const Cut& cut = cuts_[index];
  const bool here = cut.from.epoch == at.epoch && cut.from.step <= at.step;
  return source::Sharding(cut.phase->items, cut.phase->tail,
                          {.base = here ? cut.position : 0,
                           .first_step = here ? cut.from.step : 0,
                           .num_shards = cut.num_shards,
                           .batch = cut.phase->batch});
}

source::Sharding Timeline::sharding(job::StepAt at) const { return sharding_by(index_at(at), at); }

void Timeline::rebase(std::size_t first) {
  for (std::size_t i = first + 1; i < cuts_.size();) {
    Cut& cut = cuts_[i];
    if (cut.from <= cuts_[i - 1].from) {
      // The one before was put off to where this one is in force already.
      cuts_.erase(cuts_.begin() + static_cast<std::ptrdiff_t>(i) - 1);
      i = std::max(i - 1, first + 1);
      continue;
    }
    if (cut.from.step > sharding_by(i - 1, cut.from).end_step()) cut.from = {cut.from.epoch + 1, 0};
    const source::Sharding before = sharding_by(i - 1, cut.from);
    const std::uint64_t step = std::min(cut.from.step + cut.left_out, before.end_step());
    cut.position = std::min(before.position_of(step), cut.phase->items);
    ++i;
  }
}

void Timeline::resize(job::StepAt from, std::uint64_t position, std::uint32_t num_shards,
                      std::uint64_t left_out) {
  const Cut& now = cut_at(from);
  const std::uint32_t fewest =
      now.from == from ? std::min(now.anew_from > 0 ? now.anew_from : now.num_shards, num_shards)
                       : num_shards;
  const Cut cut{.from = from,
                .position = position,
                .num_shards = num_shards,
                .phase = now.phase,
                .left_out = left_out,
                .anew_from = fewest < num_shards ? fewest : 0};
  std::vector<Cut> kept;
  for (const Cut& before : cuts_) {
    if (before.from < from) kept.push_back(before);
  }
  const std::size_t first = kept.size();
  kept.push_back(cut);
  for (const Cut& later : cuts_) {
    if (later.from <= from || later.phase == kept.back().phase) continue;
    kept.push_back(later);
    kept.back().num_shards = num_shards;
    kept.back().left_out = 0;
    kept.back().anew_from = 0;
  }
  cuts_ = std::move(kept);
  rebase(first);
}

// Whether the last cut has `next` begin where and as it says anyhow.
bool Timeline::goes_on_in(const Cut& next) const {
  const Cut& last = cuts_.back();
  if (last.phase != next.phase || last.num_shards != next.num_shards) return false;
  const source::Sharding known = sharding_by(cuts_.size() - 1, next.from);
  return next.from.step <= known.end_step() && known.position_of(next.from.step) == next.position;
}

void Timeline::swap(job::StepAt from, pipeline::PhasePtr phase,
                    std::optional<job::StepAt> planned) {
  if (planned && *planned < from) swap(*planned, phase_before(*planned));
  const std::uint64_t left_out = left_out_at(from);
  const Cut cut{
      .from = from,
      .position = from.step == 0 && left_out == 0 ? 0 : std::min(position_of(from), phase->items),
      .num_shards = num_shards(),
      .phase = std::move(phase),
      .left_out = left_out,
      .anew_from = cut_at(from).from == from ? cut_at(from).anew_from : 0};
  while (cuts_.size() > 1 && cuts_.back().from >= from) cuts_.pop_back();
  if (cuts_.back().from >= from) cuts_.pop_back();
  if (cuts_.empty() || cut.anew_from > 0 || !goes_on_in(cut)) cuts_.push_back(cut);
}

void Timeline::rename(const pipeline::PhasePtr& phase, const pipeline::PhasePtr& name) {
  const pipeline::Phase* const before = phase.get();  // it may be one of the cuts' own
  for (Cut& cut : cuts_) {
    if (cut.phase.get() == before) cut.phase = name;
  }
}

void Timeline::replace(const Readings& readings) {
  for (Cut& cut : cuts_) {
    if (const auto found = readings.find(cut.phase); found != readings.end())
      cut.phase = found->second;
  }
}

Status Timeline::check(job::StepAt at, std::uint64_t position) const {
  SPDLD_TRY(job::check_position(position, phase(at)->items));
  return job::check_place(at);
}

std::uint64_t Timeline::position_behind(job::StepAt at, std::uint64_t position) const {
  const std::size_t index = index_at(at);
  const Cut& cut = cuts_[index];
  if (index == 0 || cut.from != at || cut.left_out == 0) return position;
  const source::Sharding before = sharding_by(index - 1, at);
  const bool read_all = position == before.position_of(std::min(at.step, before.end_step()));
  return read_all ? cut.position : position;
}

bool Timeline::has(job::StepAt at, std::uint64_t position) const {
  const source::Sharding known = sharding(at);
  return at.step <= known.end_step() && known.position_of(at.step) == position_behind(at, position);
}

void Timeline::resume(job::StepAt at, std::uint64_t came_from) {
  if (drop_resumed(at)) rebase(index_at(at));
  if (!has(at, came_from)) resize(at, position_behind(at, came_from), num_shards());
  close_gaps(at);
}

void Timeline::close_gaps(job::StepAt at) {
  if (!gapless(at)) resize(at, position_of(at), num_shards());
}

bool Timeline::resized_behind(job::StepAt at) const {
  return std::any_of(
      cuts_.begin() + static_cast<std::ptrdiff_t>(index_at(at)), cuts_.end(), [&](const Cut& cut) {
        return cut.num_shards != num_shards() || (cut.anew_from > 0 && cut.from > at);
      });
}

void Timeline::redeal(job::StepAt at, std::uint64_t came_from) {
  if (resized_behind(at)) return resize(at, position_behind(at, came_from), num_shards());
  (void)drop_resumed(at);
  rebase(index_at(at));
  resume(at, came_from);
}

bool Timeline::drop_resumed(job::StepAt at) {
  const std::size_t had = cuts_.size();
  for (std::size_t i = index_at(at) + 1; i < cuts_.size();) {
    const Cut& before = cuts_[i - 1];
    if (cuts_[i].phase == before.phase && cuts_[i].num_shards == before.num_shards &&
        cuts_[i].left_out == 0 && cuts_[i].anew_from == 0) {
      cuts_.erase(cuts_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return cuts_.size() < had;
}

void Timeline::forget_before(job::StepAt at) {
  const std::size_t too_many = cuts_.size() - std::min(cuts_.size(), kMostCuts);
  const std::size_t behind = std::min(index_at(at), too_many);
  cuts_.erase(cuts_.begin(), cuts_.begin() + static_cast<std::ptrdiff_t>(behind));
}

void Timeline::level(job::StepAt at) {
  Cut cut = cut_at(at);
  cut.from = {at.epoch, 0};
  cut.position = 0;
  const auto within = [&](const Cut& known) { return known.from >= cut.from && known.from <= at; };
  const auto first = std::find_if(cuts_.begin(), cuts_.end(), within);
  if (first == cuts_.end()) return;
  *first = std::move(cut);
  cuts_.erase(std::next(first), std::find_if_not(std::next(first), cuts_.end(), within));
}

job::StepAt Timeline::dealt_from() const {
  std::size_t last = cuts_.size() - 1;
  while (last > 0 && cuts_[last].num_shards == cuts_[last - 1].num_shards &&
         cuts_[last].left_out == 0 && cuts_[last].anew_from == 0)
    --last;
  return cuts_[last].from;
}

std::uint64_t Timeline::left_out_at(job::StepAt at) const {
  const Cut& cut = cut_at(at);
  return cut.from == at ? cut.left_out : 0;
}

bool Timeline::gapless(job::StepAt from) const {
  for (std::size_t i = 1; i < cuts_.size(); ++i) {
    if (cuts_[i].from <= from) continue;
    if (cuts_[i].from.step > sharding_by(i - 1, cuts_[i].from).end_step()) return false;
  }
  return true;
}

job::StepAt Timeline::last_change() const {
  auto cut = cuts_.rbegin();
  while (std::next(cut) != cuts_.rend() && std::next(cut)->phase == cut->phase) ++cut;
  return cut->from;
}

std::optional<job::StepAt> Timeline::next_phase(job::StepAt at) const {
  const std::size_t here = index_at(at);
  for (std::size_t i = here + 1; i < cuts_.size(); ++i) {
    if (cuts_[i].phase != cuts_[here].phase) return cuts_[i].from;
  }
  return std::nullopt;
}

pipeline::PhasePtr Timeline::phase_before(job::StepAt at) const {
  pipeline::PhasePtr before = cuts_.front().phase;
  for (const Cut& cut : cuts_) {
    if (cut.from < at) before = cut.phase;
  }
  return before;
}

job::StepAt Timeline::begin_of(std::uint32_t shard, job::StepAt at, bool anew) const {
  job::StepAt begin = at;
  for (std::size_t i = index_at(at); i + 1 < cuts_.size(); ++i) {
    const Cut& next = cuts_[i + 1];
    const bool away = anew && next.anew_from > 0 && shard >= next.anew_from;
    if (shard >= cuts_[i].num_shards || away) {
      begin = std::max(begin, next.from);
    } else if (!anew) {
      break;
    }
  }
  return begin;
}

std::uint64_t Timeline::end_step(std::uint64_t epoch) const {
  return sharding({epoch, std::numeric_limits<std::uint64_t>::max()}).end_step();
}

job::StepAt Timeline::settled(job::StepAt at) const {
  return at.step < end_step(at.epoch) ? at : job::StepAt{at.epoch + 1, 0};
}

job::StepAt Timeline::further(job::StepAt at, std::uint64_t steps) const {
  while (true) {
    const std::uint64_t end = end_step(at.epoch);
    const std::uint64_t left = end - std::min(end, at.step);
    if (steps < left) return {at.epoch, at.step + steps};
    steps -= left;
    at = {at.epoch + 1, 0};
    if (at.epoch <= cuts_.back().from.epoch && steps > 0) continue;
    const std::uint64_t each = std::max<std::uint64_t>(end_step(at.epoch), 1);
    return {at.epoch + steps / each, steps % each};
  }
}

std::uint64_t Timeline::position_of(job::StepAt at) const {
  const source::Sharding cut = sharding(at);
  return cut.position_of(std::min(at.step, cut.end_step()));
}

std::uint64_t Timeline::steps_per_epoch(job::StepAt at) const {
  const pipeline::Phase& now = *phase(at);
  return source::Sharding(now.items, now.tail, {.num_shards = num_shards(), .batch = now.batch})
      .end_step();
}

bool Timeline::same_from(job::StepAt at, const Timeline& other) const {
  const std::size_t mine = index_at(at);
  const std::size_t theirs = other.index_at(at);
  if (cuts_.size() - mine != other.cuts_.size() - theirs) return false;
  const auto alike = [](const Cut& a, const Cut& b) {
    return a.num_shards == b.num_shards && a.phase->same_content(*b.phase);
  };
  if (!alike(cuts_[mine], other.cuts_[theirs]) || position_of(at) != other.position_of(at))
    return false;
  for (std::size_t i = 1; mine + i < cuts_.size(); ++i) {
    const Cut& a = cuts_[mine + i];
    const Cut& b = other.cuts_[theirs + i];
    if (a.from != b.from || a.position != b.position || !alike(a, b)) return false;
  }
  return true;
}

}  // namespace spdld::stream
