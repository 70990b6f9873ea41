// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "pipeline/preview_view.h"
#include "session/diagnosis.h"
#include "session/live_values.h"
#include "session/views.h"

namespace spdld::session {

using RunnerPools = std::vector<std::string>;

// The interface of the daemon to operators and schedulers, which control/ serves by gRPC.
// Thread-safe; every call checks that `caller` may do it, and blocks for no longer than
// planning and one batch take. An interface, so that control/'s tests put a hand-written fake in
// the place of SessionService. Owned by the daemon; outlives the gRPC server.
//
// A job's key is (owner, job, pipeline). In the calls below `pipeline` may be empty where the
// caller owns only one job of that name; root and admins see all jobs, others their own.
class Service {
 public:
  virtual ~Service() = default;

  // Called with how far a listing has come, and with the functions for which the caller is to start
  // processes (RowCaller::wanted()); false stops it.
  using Progress = std::function<bool(std::uint64_t done, std::uint64_t total,
                                      const std::string& what, const RunnerPools& runners)>;

  virtual Result<PipelineView> apply(const job::Caller& caller, const job::ApplyRequest& request,
                                     const Progress& progress) = 0;
  // Applies, and changes running jobs to it: all of them at one step of their own, or none.
  // A failure leaves everything as it was. A dry run plans the swap, makes the trial batches, and
  // tells the outlook of each job (JobSwap::outlook).
  virtual Result<SwapView> swap(const job::Caller& caller, const job::ApplyRequest& request,
                                const SwapRequest& jobs, const Progress& progress) = 0;
  // The versions of a pipeline, oldest first.
  virtual Result<std::vector<RevisionView>> history(const job::Caller& caller,
                                                    std::string_view pipeline) = 0;
  // Applies an earlier version again, as a new one; if its content is current, that stays. Without
  // `version`: the version before the current one; repeated calls go further back.
  // With `jobs`, these change to it as by swap().
  virtual Result<SwapView> rollback(const job::Caller& caller, std::string_view pipeline,
                                    std::optional<std::uint32_t> version,
                                    const std::optional<SwapRequest>& jobs,
                                    const Progress& progress) = 0;
  // The physical plan, without applying it; also says whether it fits the arena budget.
  virtual Result<ExplainView> explain(const job::Caller& caller, const job::ApplyRequest& request,
                                      const Progress& progress) = 0;
  virtual Status validate(const job::Caller& caller, const job::ApplyRequest& request,
                          const Progress& progress) = 0;
  // Makes one batch of the submitted pipeline without applying it.
  virtual Result<pipeline::PreviewView> preview(const job::Caller& caller,
                                                const job::ApplyRequest& request,
                                                std::uint64_t rows, const Progress& progress) = 0;
  virtual Result<PipelineView> pipeline(const job::Caller& caller, std::string_view name) = 0;
  virtual std::vector<PipelineView> pipelines(const job::Caller& caller) = 0;
  virtual Result<std::string> pipeline_text(const job::Caller& caller, std::string_view name) = 0;
  virtual Result<ClassesView> classes(const job::Caller& caller, std::string_view pipeline,
                                      const Progress& progress) = 0;
  virtual Status delete_pipeline(const job::Caller& caller, std::string_view name) = 0;

  virtual Result<job::JobView> create_job(const job::Caller& caller, const JobRequest& request,
                                          const Progress& progress) = 0;
  virtual Result<job::JobView> job(const job::Caller& caller, std::string_view job,
                                   std::string_view pipeline) = 0;
  virtual std::vector<job::JobView> jobs(const job::Caller& caller) = 0;
  // Why ranks wait: of one job; with an empty name, of all that the caller may see.
  virtual Result<std::vector<DiagnosisView>> diagnose(const job::Caller& caller,
                                                      std::string_view job,
                                                      std::string_view pipeline) = 0;
  // Makes the batch that a shard of the job was given at a step, or will be, anew.
  virtual Result<StepView> show(const job::Caller& caller, std::string_view job,
                                std::string_view pipeline, job::StepAt at, std::uint32_t shard,
                                const Progress& progress) = 0;
  // How fast ranks would train with their data ready: times `steps` steps as they are, and as many
  // while the ranks are held again and again until batches lie ready for each. `progress` is called
  // every few milliseconds.
  virtual Result<HeadspaceView> headspace(const job::Caller& caller, std::string_view job,
                                          std::string_view pipeline, std::uint32_t steps,
                                          const Progress& progress) = 0;
  // How each job that runs no more ended the last time, the latest first.
  virtual std::vector<job::JobView> ended_jobs(const job::Caller& caller) = 0;
  // Opens the next epoch of a job with manual epochs. With `to`, opens all epochs up to and
  // including it (idempotent); a `to` that lies behind is an error.
  virtual Result<job::JobView> advance_epoch(const job::Caller& caller, std::string_view job,
                                             std::string_view pipeline,
                                             std::optional<std::uint64_t> to) = 0;
  // All shards go on at `step` of `epoch`.
  virtual Result<job::JobView> seek(const job::Caller& caller, std::string_view job,
                                    std::string_view pipeline, std::uint64_t epoch,
                                    std::uint64_t step) = 0;
  // All shards leave out the next `steps` steps that none of them has begun: past a loss spike,
  // say.
  virtual Result<job::JobView> skip(const job::Caller& caller, std::string_view job,
                                    std::string_view pipeline, std::uint64_t steps) = 0;
  // Changes live values of the job, and returns all of them.
  virtual Result<std::vector<LiveValue>> tune_job(const job::Caller& caller, std::string_view job,
                                                  std::string_view pipeline,
                                                  const TuneRequest& request) = 0;
  // The same of the daemon: for admins.
  virtual Result<std::vector<LiveValue>> tune_daemon(const job::Caller& caller,
                                                     const TuneRequest& request) = 0;
  // Re-shards: from the next step that no shard has begun, the rest of the epoch is dealt out anew.
  virtual Result<job::JobView> resize_job(const job::Caller& caller, std::string_view job,
                                          std::string_view pipeline, std::uint32_t num_shards) = 0;
  // A job that has ended is forgotten: start="ledger" does not find it any more.
  virtual Result<DeletedJob> delete_job(const job::Caller& caller, std::string_view job,
                                        std::string_view pipeline) = 0;

  virtual std::vector<SessionView> sessions(const job::Caller& caller) = 0;
  virtual Status evict(const job::Caller& caller, std::uint64_t session,
                       const std::string& reason) = 0;

  // No new jobs are taken, until it is ended. For admins.
  virtual Result<DrainBegun> drain(const job::Caller& caller) = 0;
  // The drain that was in force; none: none was.
  virtual Result<std::optional<DrainView>> undrain(const job::Caller& caller) = 0;

  virtual DaemonView daemon(const job::Caller& caller) = 0;
  // The caller's own view; for root and admins, the views of all users that hold a resource or are
  // in `also`. By uid.
  virtual std::vector<UserView> users(const job::Caller& caller, const std::set<uid_t>& also) = 0;
  virtual std::vector<job::StageView> stages(const job::Caller& caller) = 0;
  virtual std::vector<job::StageView> ended_stages(
      const job::Caller& caller) = 0;  // of ended_jobs()
  // The latest 10,000 or so; empty: of all jobs.
  virtual std::vector<FailureView> failures(const job::Caller& caller, const std::string& job) = 0;
};

}  // namespace spdld::session
