// SPDX-License-Identifier: Apache-2.0
#include "session/job_step.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/text/counted.h"
#include "job/found_step.h"
#include "session/job_texts.h"

namespace spdld::session {
namespace {

// The rank of the shard that was sent most, where none is here with the seeks of another one's
// loop.
Job::Standing reader_of(const Job& job, std::uint32_t shard) {
  if (auto most = job.furthest_here(shard)) return *std::move(most);
  Job::Standing other = job.furthest();
  std::optional<job::Turn> sent;
  for (const auto& [member, of] : job.membership.entries()) {
    if (member.shard == shard) sent = std::max(sent.value_or(0), of.progress.sent);
  }
  if (sent) other.turn = *sent;
  return other;
}

}  // namespace

Result<JobStep> step_of(const Job& job, job::StepAt at, std::uint32_t shard) {
  if (job.max_epochs > 0 && at.epoch >= job.max_epochs)
    return tl::unexpected<Status>(beyond_its_end(job));
  const Job::Standing reader = reader_of(job, shard);
  const job::Turn sent = std::max(reader.turn, job.first_turn());
  const JobPlanPtr plan = assumed(job.state.plan, sent, reader.own).plan;
  const auto found = job::find_step(plan->schedule, reader.own, at, sent);
  if (!found)
    return tl::unexpected<Status>(found.error().with_context("job '" + job.key.job + "'"));
  const job::State& state = found->state;
  if (shard >= state.shards)
    return error(Code::kOutOfRange, "job '" + job.key.job + "' has " +
                                        counted(state.shards, "shard") + " at " + place_text(at) +
                                        ", counted from 0; there is no shard " +
                                        std::to_string(shard));
  const pipeline::PhasePtr& phase = plan->phase(state.version);
  return JobStep{.view = {.job = job.key.job,
                          .pipeline = job.key.pipeline,
                          .version = phase->version(),
                          .at = at,
                          .shard = shard,
                          .num_shards = state.shards,
                          .turn = found->turn,
                          .sent = found->turn && *found->turn < sent,
                          .batch = {}},
                 .phase = phase,
                 .rows = plan->schedule.sharding(state).rows(state.step, shard)};
}

}  // namespace spdld::session
