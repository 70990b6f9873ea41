// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "session/job_table.h"
#include "store/store.h"
#include "stream/streams.h"

namespace spdld::session {

// Whether ranks that give these variables belong to a job that had `first` when its first one
// attached, and has `now`: such ranks may or may not know of the variables applied since.
inline bool same_vars(const std::map<std::string, std::string>& first,
                      const std::map<std::string, std::string>& now,
                      const std::map<std::string, std::string>& given) {
  return given == first || given == now;
}

// A pipeline as the store keeps it, and how it came to be the current version.
store::StoredPipeline stored_pipeline(const pipeline::PipelineVersion& pipeline);
store::StoredRevision stored_revision(const pipeline::PipelineVersion& pipeline, uid_t applied_by,
                                      std::string note = {});

store::StoredJob stored_job(const Job& job);
// The record of the job if it had this state and these members. Consumers are granted no turn
// beyond those that it reserves.
store::StoredJob stored_job(const Job& job, const JobState& as, const job::Membership& members_as);
store::StoredPosition stored_position(const Job& job, const job::Progress& at);

// Makes jobs: anew, and from the records that an earlier daemon or an earlier run left on disk.
// Owned by Sessions. Thread-safe.
class JobRecords {
 public:
  JobRecords(const SessionsDeps& deps, JobTable& table, stream::Streams& streams);

  // Declared jobs that an earlier daemon kept. Before the first consumer comes. A job that cannot
  // go on is logged and told to `warn`, and its ranks are refused with the reason until it is
  // deleted.
  Status restore(const std::function<void(std::string)>& warn) SPDLD_EXCLUDES(table_.mutex());

  // Of a job of `user`.
  Result<pipeline::PhasePtr> make_phase(uid_t user, const pipeline::PipelinePtr& pipeline,
                                        std::uint64_t seed, std::set<std::string> overrides = {},
                                        std::uint32_t prefetch = 0);
  Result<JobPtr> make_job(job::JobKey key, const pipeline::PipelinePtr& pipeline,
                          std::uint64_t seed, std::uint32_t num_shards, bool is_private,
                          KeptFailures failures);
  // The job that an earlier daemon, or an earlier run of the job, left on disk, as far as this
  // request goes on with it. Nothing: its data are being listed, and the asker has the attach begin
  // anew then.
  struct Revived {
    JobPtr job = nullptr;  // null: it begins anew, or runs here
    bool runs = false;     // it runs here
  };
  pipeline::Asked<Revived> revive(const job::JobKey& key, const delivery::AttachRequest& request,
                                  const Credentials& reader, const pipeline::ListingAsker& asker)
      SPDLD_EXCLUDES(table_.mutex());
  static bool goes_on_with(const store::StoredJob& stored, const delivery::AttachRequest& request);

  // As it was kept last; none: nothing is known of it.
  Result<std::optional<store::StoredJob>> kept_job(const job::JobKey& key)
      SPDLD_EXCLUDES(table_.mutex());
  Result<std::optional<store::StoredPosition>> kept_position(const job::JobKey& key)
      SPDLD_EXCLUDES(table_.mutex());
  KeptFailures kept_failures(const job::JobKey& key) SPDLD_EXCLUDES(table_.mutex());

 private:
  // Drops ended streams if their caches take the room that this one needs.
  Result<std::shared_ptr<engine::SampleCache>> open_cache(
      const pipeline::PipelineVersion& pipeline);
  // The pipeline that a record names, for this reader.
  using Opening = std::function<pipeline::Asked<pipeline::PipelinePtr>(const store::StoredPhase&)>;
  Opening opening(const job::JobKey& key, const Credentials& reader,
                  const pipeline::ListingAsker& asker);
  pipeline::Asked<JobPlanPtr> rebuild_plan(const store::StoredJob& stored, const Opening& open);
  // All but its members.
  Result<JobPtr> rebuild(const store::StoredJob& stored, JobPlanPtr plan);
  pipeline::Asked<JobPtr> rebuild_as_it_was(const store::StoredJob& stored, const Opening& open);
  // The same job with another batch size, in a run of its own.
  pipeline::Asked<JobPtr> inherit(store::StoredJob stored, const delivery::AttachRequest& request,
                                  const Opening& open);

  const SessionsDeps& deps_;
  JobTable& table_;
  stream::Streams& streams_;
  std::atomic<stream::JobTag> next_tag_{1};
};

}  // namespace spdld::session
