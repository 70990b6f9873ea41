// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "session/views.h"

namespace spdld::session {

class Sessions;

// What operators and schedulers may ask of the daemon: the face that control/ puts gRPC in front
// of. Thread-safe; every call checks that `caller` may do it, and blocks for no longer than
// planning and one batch take. Owned by the daemon; outlives the gRPC server.
//
// A job's key is (owner, job, pipeline). In the calls below `pipeline` may be empty where the
// caller owns only one job of that name; root and admins see all jobs, others their own.
class Service {
 public:
  explicit Service(Sessions& sessions);

  // Called with how far a listing has come; false stops it.
  using Progress =
      std::function<bool(std::uint64_t done, std::uint64_t total, const std::string& what)>;

  Result<PipelineView> apply(const Caller& caller, const ApplyRequest& request,
                             const Progress& progress);
  // The physical plan as text, without applying it; also says whether it fits the arena budget.
  Result<std::string> explain(const Caller& caller, const ApplyRequest& request,
                              const Progress& progress);
  Status validate(const Caller& caller, const ApplyRequest& request);
  // Makes one batch of the submitted pipeline without applying it.
  Result<PreviewView> preview(const Caller& caller, const ApplyRequest& request, std::uint64_t rows,
                              const Progress& progress);
  Result<PipelineView> pipeline(const Caller& caller, std::string_view name);
  std::vector<PipelineView> pipelines(const Caller& caller);
  Result<std::string> pipeline_text(const Caller& caller, std::string_view name);
  Result<std::vector<std::string>> classes(const Caller& caller, std::string_view pipeline);
  Status delete_pipeline(const Caller& caller, std::string_view name);

  Result<JobView> create_job(const Caller& caller, const JobRequest& request);
  Result<JobView> job(const Caller& caller, std::string_view job, std::string_view pipeline);
  std::vector<JobView> jobs(const Caller& caller);
  // Opens the next epoch of a job with manual epochs. With `to`, opens all epochs up to and
  // including it (idempotent); a `to` that lies behind is an error.
  Result<JobView> advance_epoch(const Caller& caller, std::string_view job,
                                std::string_view pipeline, std::optional<std::uint64_t> to);
  // All shards go on at `step` of `epoch`.
  Result<JobView> seek(const Caller& caller, std::string_view job, std::string_view pipeline,
                       std::uint64_t epoch, std::uint64_t step);
  // Re-shards: from the next step that no shard has begun, the rest of the epoch is dealt out anew.
  Result<JobView> resize_job(const Caller& caller, std::string_view job, std::string_view pipeline,
                             std::uint32_t num_shards);
  Status delete_job(const Caller& caller, std::string_view job, std::string_view pipeline);

  std::vector<SessionView> sessions(const Caller& caller);
  Status evict(const Caller& caller, std::uint64_t session, const std::string& reason);

  DaemonView daemon(const Caller& caller);
  std::vector<StageView> stages(const Caller& caller);
  std::vector<FailureView> failures(const Caller& caller);

 private:
  Sessions& sessions_;
};

}  // namespace spdld::session
