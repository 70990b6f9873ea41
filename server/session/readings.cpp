// SPDX-License-Identifier: Apache-2.0
// With whose rights a job reads, and how that is asked anew when a consumer comes: part of
// Sessions.
#include <algorithm>
#include <utility>

#include "session/sessions.h"

namespace spdld::session {

Result<stream::Readings> Sessions::readings_for(const job::JobKey& key, const Credentials& reader,
                                                const pipeline::Catalogue::Progress& progress) {
  std::vector<pipeline::PhasePtr> phases;
  std::uint64_t seed = 0;
  {
    MutexLock lock(mutex_);
    const auto found = jobs_.find(key);
    if (found == jobs_.end()) return stream::Readings();
    phases = found->second->phases();
    seed = found->second->seed;
  }
  stream::Readings readings;
  // Phases that share a run go on sharing one.
  std::map<const engine::Run*, std::shared_ptr<engine::Run>> runs;
  for (const pipeline::PhasePtr& phase : phases) {
    SPDLD_ASSIGN(const pipeline::PipelinePtr pipeline,
                 deps_.catalogue.variant(phase->pipeline, {}, std::nullopt, reader, progress));
    if (pipeline == phase->pipeline) continue;
    SPDLD_ASSIGN(const pipeline::PhasePtr fresh, make_phase(pipeline, seed, phase->overrides));
    auto same = std::make_shared<pipeline::Phase>(*fresh);
    same->content = phase->content;
    same->run = runs.try_emplace(phase->run.get(), fresh->run).first->second;
    readings.emplace(phase, std::move(same));
  }
  return readings;
}

Status Sessions::check_reader(const Job& job, const Credentials& reader,
                              const stream::Readings& readings, bool alone) {
  const Credentials of_job = job.state.timeline.last_phase()->reader();
  const Credentials as = source::Access::normalized(reader);
  const std::vector<pipeline::PhasePtr> phases = job.phases();
  const auto is_theirs = [&as](const pipeline::PhasePtr& phase) { return phase->reader() == as; };
  if (std::all_of(phases.begin(), phases.end(), is_theirs)) return {};
  if (!alone && !job.members.empty())
    return Status(Code::kFailedPrecondition,
                  "job '" + job.key.job + "' is read with the rights of " + of_job.text() +
                      ", and this process has those of " + reader.text() +
                      ": start all ranks of a job with the same groups");
  // The job has changed since it was looked at. It comes again by itself.
  const bool complete =
      std::all_of(phases.begin(), phases.end(), [&](const pipeline::PhasePtr& phase) {
        return is_theirs(phase) || readings.contains(phase);
      });
  if (!complete || job.changes())
    return Status(Code::kUnavailable, "job '" + job.key.job + "' is being changed");
  return {};
}

}  // namespace spdld::session
