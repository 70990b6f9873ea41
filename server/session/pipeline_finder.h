// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/job_queues.h"
#include "session/job_records.h"
#include "session/keeper.h"
#include "session/new_pipelines.h"
#include "session/swaps.h"

namespace spdld::session {

// Tells a consumer the progress of the listing that it waits for.
pipeline::Catalogue::Progress progress_to(const SessionPtr& session);

// Finds the pipeline that a consumer means, or takes in the one that it brings. Owned by Sessions.
// Thread-safe.
class PipelineFinder {
 public:
  PipelineFinder(const SessionsDeps& deps, JobTable& table, JobRecords& records, Keeper& keeper,
                 NewPipelines& new_pipelines, Swaps& swaps, JobQueues& changing)
      : deps_(deps),
        table_(table),
        records_(records),
        keeper_(keeper),
        new_pipelines_(new_pipelines),
        swaps_(swaps),
        changing_(changing) {}

  // Where a name is not known, it may be that of a file which is still being applied: the attach
  // begins anew at look_again(). Where a loader's text has fewer variables than the pipeline that
  // there is, the request gets them, as the loader's file has them. Nothing: it is listed, or
  // tried, and the asker has the attach begin anew then.
  pipeline::Asked<pipeline::PipelinePtr> find(const SessionPtr& session,
                                              delivery::AttachRequest& request,
                                              const pipeline::ListingAsker& asker)
      SPDLD_EXCLUDES(table_.mutex());
  // A file of the configuration has been applied, or has failed.
  void look_again() SPDLD_EXCLUDES(table_.mutex());

 private:
  struct Waiting {
    std::weak_ptr<Session> session;
    delivery::AttachRequest request;
  };
  pipeline::Asked<pipeline::PipelinePtr> named(const SessionPtr& session,
                                               const delivery::AttachRequest& request)
      SPDLD_EXCLUDES(table_.mutex());
  // On which of these pipelines this user's job goes on, if it does: it stays there, though a name
  // may mean another one by now.
  Result<std::optional<std::string>> pipeline_of_job(const std::vector<std::string>& ids, uid_t uid,
                                                     const delivery::AttachRequest& request);
  // The existing pipeline for the `text` that a loader brings; null: it is to be made.
  pipeline::Asked<pipeline::PipelinePtr> known(const job::ApplyRequest& submitted,
                                               const pipeline::PipelineText& text, uid_t uid,
                                               delivery::AttachRequest& request,
                                               const pipeline::ListingAsker& asker);
  bool may_replace(const std::string& id, const delivery::AttachRequest& request) const;
  pipeline::Asked<pipeline::PipelinePtr> brought_by(const SessionPtr& session,
                                                    delivery::AttachRequest& request,
                                                    const pipeline::ListingAsker& asker);
  // It takes the place of the pipeline of its name.
  Result<pipeline::PipelinePtr> replace(const SessionPtr& session,
                                        const pipeline::PipelinePtr& built);
  // The same on a thread that may wait for its first batch. The attach, of the request as it came,
  // begins anew then.
  pipeline::Asked<pipeline::PipelinePtr> replace_slowly(const SessionPtr& session,
                                                        const delivery::AttachRequest& request,
                                                        const pipeline::PipelinePtr& built);
  // Before a loader of this user puts one more pipeline: at the limit, one that no job runs is
  // removed. kResourceExhausted if jobs run all of them.
  Status make_room_for_brought(uid_t uid);

  const SessionsDeps& deps_;
  JobTable& table_;
  JobRecords& records_;
  Keeper& keeper_;
  NewPipelines& new_pipelines_;
  Swaps& swaps_;
  JobQueues& changing_;
  std::vector<Waiting> waiting_ SPDLD_GUARDED_BY(table_.mutex());  // for files
};

}  // namespace spdld::session
