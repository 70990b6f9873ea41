// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "job/step_at.h"
#include "pipeline/phase.h"
#include "source/order/sharding.h"

namespace spdld::stream {

// What phases are for another reader.
using Readings = std::map<pipeline::PhasePtr, pipeline::PhasePtr>;

// Which rows each step of a job has, and by which version of its pipeline, through resizes, resumed
// positions and hot swaps: the cut of every epoch into steps and shards. A plain value; each stream
// has a copy, so that what one shard has begun is never cut anew under it.
class Timeline {
 public:
  // A new cut from here on: the rest of the epoch, and all later epochs, go to this many shards in
  // this phase.
  struct Cut {
    job::StepAt from;
    std::uint64_t position = 0;  // at which `from` begins
    std::uint32_t num_shards = 1;
    pipeline::PhasePtr phase;
    std::uint64_t left_out = 0;  // steps of the deal before that are skipped here
    // From this shard on shards begin here, though the cut before has them, too: at this very step
    // they were resized away and brought back. 0: none.
    std::uint32_t anew_from = 0;

    friend bool operator==(const Cut&, const Cut&) = default;
  };

  Timeline(pipeline::PhasePtr first, std::uint32_t num_shards);
  // As it was kept. `cuts` is not empty and begins at the job's first step.
  explicit Timeline(std::vector<Cut> cuts);

  // So many shards from `from`, which begins at `position`, on; so many steps of the deal before
  // are left out by that. Later changes of phase stay; where the epoch now ends before one, that
  // begins with the next epoch.
  void resize(job::StepAt from, std::uint64_t position, std::uint32_t num_shards,
              std::uint64_t left_out = 0);
  // Another phase from `from` on, whatever was to come after it. If it was to come at `planned`,
  // and that is earlier, what is before that goes on up to `from`.
  void swap(job::StepAt from, pipeline::PhasePtr phase,
            std::optional<job::StepAt> planned = std::nullopt);

  // The same work under another name, such as a version that only tunes it.
  void rename(const pipeline::PhasePtr& phase, const pipeline::PhasePtr& name);
  // Phases for others of the same content, which another reader may have.
  void replace(const Readings& readings);

  // Whether it has the step `at` begin at `position`; or whoever comes from there go on behind what
  // is left out at that step.
  bool has(job::StepAt at, std::uint64_t position) const;
  // Whether a job can go on at `at` from `position`: what a cursor or an older record says.
  Status check(job::StepAt at, std::uint64_t position) const;
  // Goes on so: by a cut of its own if `position` is not where this timeline has that step begin.
  // What check() takes. Who has read everything up to `at` goes on behind what is left out there.
  // Where others resumed behind `at` is of no matter; resizes, phases and what was left out are.
  void resume(job::StepAt at, std::uint64_t position);
  // The same for all the shards that there are in the end: resizes that came after `at` are not
  // lived through again.
  void redeal(job::StepAt at, std::uint64_t position);

  // So that it does not grow for ever: of what was in force before `at` it keeps what makes up
  // kMostCuts with what comes after. What is read again from before those is read as the first of
  // them has it.
  void forget_before(job::StepAt at);
  static constexpr std::size_t kMostCuts = 64;

  // Whether there are other numbers of shards behind `at` than there.
  bool resized_behind(job::StepAt at) const;

  // The phase at `at` has the whole epoch up to there: which step of another deal an earlier change
  // in it would be is of no meaning.
  void level(job::StepAt at);

  // Whether each cut behind `from` begins no later than where the one before ends: one that was
  // resumed at a step that its own batches never come to does not, and can be read from there on
  // only.
  bool gapless(job::StepAt from = {}) const;
  // Goes on from `at` without a gap: a cut that is never come to is none.
  void close_gaps(job::StepAt at);

  // The cut that holds `at`. Its steps may end before at.step.
  source::Sharding sharding(job::StepAt at) const;
  const pipeline::PhasePtr& phase(job::StepAt at) const { return cut_at(at).phase; }
  // Of the last step before `at`, where a cut begins; of the first one, if there is none.
  pipeline::PhasePtr phase_before(job::StepAt at) const;
  const pipeline::PhasePtr& last_phase() const { return cuts_.back().phase; }
  // From where on it has the phase that it has last.
  job::StepAt last_change() const;
  // The first step after `at` that begins another phase.
  std::optional<job::StepAt> next_phase(job::StepAt at) const;
  // Where a consumer of the shard that would begin at `at` finds it: a resize may have brought it
  // later. With `anew`, it has no share in what was dealt out before the shard came last.
  job::StepAt begin_of(std::uint32_t shard, job::StepAt at, bool anew) const;
  // One behind the epoch's last step.
  std::uint64_t end_step(std::uint64_t epoch) const;
  // `at`, or where the next epoch begins if that is where it points.
  job::StepAt settled(job::StepAt at) const;
  job::StepAt further(job::StepAt at, std::uint64_t steps) const;  // so many, through epochs
  std::uint64_t position_of(job::StepAt at) const;  // the epoch's end for a step beyond it
  // Steps of a whole epoch of the phase that holds `at`, on as many shards as there are in the end.
  std::uint64_t steps_per_epoch(job::StepAt at) const;
  std::uint32_t num_shards() const { return cuts_.back().num_shards; }
  // From where on rows are dealt out as they are in the end: to so many shards, with none left out.
  // A change of phase alone deals nothing anew.
  job::StepAt dealt_from() const;
  const std::vector<Cut>& cuts() const { return cuts_; }
  std::uint64_t left_out_at(job::StepAt at) const;  // where a cut begins; none elsewhere
  // Whether every step from `at` on has the same rows here and there.
  bool same_from(job::StepAt at, const Timeline& other) const;

 private:
  const Cut& cut_at(job::StepAt at) const { return cuts_[index_at(at)]; }
  std::size_t index_at(job::StepAt at) const;
  source::Sharding sharding_by(std::size_t cut, job::StepAt at) const;
  bool goes_on_in(const Cut& next) const;
  // Where who has read everything before `at`, and comes from `position`, goes on.
  std::uint64_t position_behind(job::StepAt at, std::uint64_t position) const;
  // Drops the cuts behind that only say where somebody resumed. Whether there were any.
  bool drop_resumed(job::StepAt at);
  // Positions of the cuts behind `first`, anew.
  void rebase(std::size_t first);

  // By `from`; the first one holds all that comes before the second. It begins with the job, or
  // where the oldest change began that is still known.
  std::vector<Cut> cuts_;
};

}  // namespace spdld::stream
