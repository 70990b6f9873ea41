// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "delivery/frames.h"
#include "engine/stream_port.h"
#include "session/job_plan.h"

namespace spdld::session {

// Where the loop of a consumer's process is, and the plan by which it goes on. A value without a
// lock of its own, under that of its consumer.
struct Loop {
  // The step need not be one that its epoch has: the loop is told that the epoch ends there.
  struct Place {
    job::StepAt at;
    std::uint64_t position = 0;
  };
  // A plan that is prepared.
  struct Pending {
    JobPlanPtr plan;
    job::OwnSeeks own;
    Assumed reads = {};
    job::Turn from = 0;                  // the first turn that it changes
    engine::StreamFailure failure = {};  // of its streams, meanwhile
  };

  Loop(JobPlanPtr counts, job::OwnSeeks says, job::Turn next);

  // The loop is sent no turn from here on: the batch there is not decided yet.
  job::Turn limit() const { return pending ? pending->from : reads.due; }
  // The loop has come to the turn of the planned swap.
  bool is_at_planned() const { return !pending && turn >= reads.due; }
  job::State next() const { return reads.plan->schedule.locate(turn, own); }
  Place place() const;
  // The own seeks beside a schedule that may have forgotten edits of its own plan's. `released`:
  // the loop has given back all turns before.
  job::OwnSeeks own_in(const job::Schedule& schedule, job::Turn released) const;
  // Tells the process that the loop goes on at `at`.
  delivery::ResetNotice reset(const Place& at, std::uint32_t seek, std::uint32_t shard) const;

  // On failure the loop stays where it is: no loop of its job can ask for that.
  Result<Place> seek(const delivery::SeekRequest& request, job::Turn released);
  // Whether the process is to tell once it has been handed the batch of the loop's turn: the last
  // one before other shards enter, or the first one behind it.
  bool take_telling();
  // The process has come to a turn at which other shards enter.
  bool is_at_entry() const;

  // The plan as it would be prepared to change the job from `from` on, and the same in force.
  Pending with(const JobPlanPtr& other, job::Turn from, job::Turn released) const;
  bool reads_as(const JobPlan& other) const;  // the same batches
  void prepare(Pending next);
  void commit();
  // Reads by this plan, and not by one that is prepared.
  void go_by(JobPlanPtr counts);

  JobPlanPtr plan;  // the one that counts
  job::OwnSeeks own;
  job::Turn turn;  // is sent next
  // The plan by which the consumer reads: a planned swap is assumed to come where it is due. If it
  // gets another turn, a prepared plan says so.
  Assumed reads;
  std::optional<Pending> pending = std::nullopt;
  job::Turn handed;          // by the process, as far as is known
  job::Turn told_entry = 0;  // the process was asked to tell when it comes there
  std::uint32_t serial = 0;  // of the loop's last seek
};

}  // namespace spdld::session
