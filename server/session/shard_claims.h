// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "session/job_records.h"
#include "session/job_table.h"

namespace spdld::session {

// Takes consumers that attach into their jobs, and to their shards. Owned by Sessions. Thread-safe.
class ShardClaims {
 public:
  ShardClaims(const SessionsDeps& deps, JobTable& table, JobRecords& records,
              stream::Streams& streams)
      : deps_(deps), table_(table), records_(records), streams_(streams) {}

  // The phases of an existing job, open, with the rights of this reader. kPermissionDenied if the
  // reader may not read them. Empty: the job reads with this reader's rights already. Nothing: its
  // data are being listed.
  pipeline::Asked<Readings> readings_for(const job::JobKey& key, const Credentials& reader,
                                         const pipeline::ListingAsker& asker)
      SPDLD_EXCLUDES(table_.mutex());
  // Gives the session its job and its place there. A new job runs `pipeline`, as the request wants
  // it. False: the session waits without a thread (JobTable::Attaching).
  Result<bool> claim(const SessionPtr& session, const job::JobKey& key,
                     const Result<pipeline::PipelinePtr>& pipeline,
                     const delivery::AttachRequest& request, const JobRecords::Revived& revived,
                     const Readings& readings) SPDLD_EXCLUDES(table_.mutex());
  static constexpr std::string_view kWaitsForWrite =
      "its job is being changed, and that is not on disk yet";
  // The attach goes on with attach_again_waiting(); meanwhile its consumer is told the reason.
  static void wait(Job& job, const SessionPtr& session, const delivery::AttachRequest& request,
                   std::string_view reason);

 private:
  Result<bool> claim(const SessionPtr& session, const job::JobKey& key,
                     const Result<pipeline::PipelinePtr>& pipeline,
                     const delivery::AttachRequest& request, const JobPtr& revived,
                     const Readings& readings, const std::optional<store::StoredPosition>& ledger,
                     KeptFailures failures) SPDLD_REQUIRES(table_.mutex());
  // Whether there is no such job, or the request's restart takes its place.
  bool makes_job(const job::JobKey& key, const delivery::AttachRequest& request) const
      SPDLD_REQUIRES(table_.mutex());
  // Whether a job may go on so; `alone`: its present readers are about to be evicted.
  Status check_reader(const Job& job, const Credentials& reader, const Readings& readings,
                      bool alone) const;
  Result<JobPtr> join_job(const job::JobKey& key, const Result<pipeline::PipelinePtr>& pipeline,
                          const delivery::AttachRequest& request, std::uint32_t replica,
                          const JobPtr& revived, const Credentials& reader,
                          const Readings& readings, KeptFailures failures)
      SPDLD_REQUIRES(table_.mutex());
  static Status check_facts(const Job& job, std::uint32_t replica,
                            const delivery::AttachRequest& request);
  static Status check_shard(const Job& job, const delivery::AttachRequest& request);
  // Whether ranks of a newer restart go on in the run that there is.
  static bool goes_on_in(const Job& job, const delivery::AttachRequest& request);
  // Why a rank of a shard that a resize brings has to wait, if it has to: the members that were
  // there say where the shard begins.
  std::optional<std::string> waits_for_entry(const Job& job, std::uint32_t replica,
                                             const delivery::AttachRequest& request) const
      SPDLD_REQUIRES(table_.mutex());
  // Whether the attach goes on once a change of its job is on disk.
  bool waits_for_write(const job::JobKey& key, const SessionPtr& session,
                       const delivery::AttachRequest& request) SPDLD_REQUIRES(table_.mutex());
  static Status taken_by(const Session& holder, const Job& job, const Session& asks);
  static Status claim_shard(const SessionPtr& session, const JobPtr& job,
                            const delivery::AttachRequest& request);

  const SessionsDeps& deps_;
  JobTable& table_;
  JobRecords& records_;
  stream::Streams& streams_;
};

}  // namespace spdld::session
