// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "delivery/data_server.h"
#include "session/daemon_values.h"
#include "session/service.h"
#include "session/sessions.h"
#include "session/views.h"

namespace spdld::session {

// Service on the daemon's real catalogue and sessions. Owned by the daemon. Thread-safe: it holds
// nothing that changes.
class SessionService final : public Service {
 public:
  struct Facts {
    std::string version;
    std::function<std::uint32_t()> io_threads = [] { return 0u; };
    std::function<JpegView()> jpeg = {};  // as it is now, and the next one
    std::function<std::vector<StorageView>()> storage = {};
    std::function<std::vector<RunnerView>()> runners = {};
    std::vector<DaemonValue> values = {};  // that may be changed while it runs
  };

  SessionService(Sessions& sessions, Facts facts);

  // Takes over pipelines and declared jobs of an earlier daemon, each as if its owner had applied
  // it. One that fails is logged and named in daemon().warnings.
  void restore();
  // What the configuration says of the values that may be changed; again where it was read again.
  void configure(const std::map<std::string, std::string>& values);
  // Applies files, or applies them again, in the same way.
  void reload(const std::vector<std::string>& files);
  // The server with the counters for daemon() and users() from now on; null: none. The server
  // must live until the next watch().
  void watch(const delivery::DataServer* data) { data_.store(data, std::memory_order_release); }

  Result<PipelineView> apply(const job::Caller& caller, const job::ApplyRequest& request,
                             const Progress& progress) override;
  Result<SwapView> swap(const job::Caller& caller, const job::ApplyRequest& request,
                        const SwapRequest& jobs, const Progress& progress) override;
  Result<std::vector<RevisionView>> history(const job::Caller& caller,
                                            std::string_view pipeline) override;
  Result<SwapView> rollback(const job::Caller& caller, std::string_view pipeline,
                            std::optional<std::uint32_t> version,
                            const std::optional<SwapRequest>& jobs,
                            const Progress& progress) override;
  Result<ExplainView> explain(const job::Caller& caller, const job::ApplyRequest& request,
                              const Progress& progress) override;
  Status validate(const job::Caller& caller, const job::ApplyRequest& request,
                  const Progress& progress) override;
  Result<pipeline::PreviewView> preview(const job::Caller& caller, const job::ApplyRequest& request,
                                        std::uint64_t rows, const Progress& progress) override;
  Result<PipelineView> pipeline(const job::Caller& caller, std::string_view name) override;
  std::vector<PipelineView> pipelines(const job::Caller& caller) override;
  Result<std::string> pipeline_text(const job::Caller& caller, std::string_view name) override;
  Result<ClassesView> classes(const job::Caller& caller, std::string_view pipeline,
                              const Progress& progress) override;
  Status delete_pipeline(const job::Caller& caller, std::string_view name) override;

  Result<job::JobView> create_job(const job::Caller& caller, const JobRequest& request,
                                  const Progress& progress) override;
  Result<job::JobView> job(const job::Caller& caller, std::string_view job,
                           std::string_view pipeline) override;
  std::vector<job::JobView> jobs(const job::Caller& caller) override;
  Result<std::vector<DiagnosisView>> diagnose(const job::Caller& caller, std::string_view job,
                                              std::string_view pipeline) override;
  Result<StepView> show(const job::Caller& caller, std::string_view job, std::string_view pipeline,
                        job::StepAt at, std::uint32_t shard, const Progress& progress) override;
  Result<HeadspaceView> headspace(const job::Caller& caller, std::string_view job,
                                  std::string_view pipeline, std::uint32_t steps,
                                  const Progress& progress) override;
  std::vector<job::JobView> ended_jobs(const job::Caller& caller) override;
  Result<job::JobView> advance_epoch(const job::Caller& caller, std::string_view job,
                                     std::string_view pipeline,
                                     std::optional<std::uint64_t> to) override;
  Result<job::JobView> seek(const job::Caller& caller, std::string_view job,
                            std::string_view pipeline, std::uint64_t epoch,
                            std::uint64_t step) override;
  Result<job::JobView> skip(const job::Caller& caller, std::string_view job,
                            std::string_view pipeline, std::uint64_t steps) override;
  Result<std::vector<LiveValue>> tune_job(const job::Caller& caller, std::string_view job,
                                          std::string_view pipeline,
                                          const TuneRequest& request) override;
  Result<std::vector<LiveValue>> tune_daemon(const job::Caller& caller,
                                             const TuneRequest& request) override;
  Result<job::JobView> resize_job(const job::Caller& caller, std::string_view job,
                                  std::string_view pipeline, std::uint32_t num_shards) override;
  Result<DeletedJob> delete_job(const job::Caller& caller, std::string_view job,
                                std::string_view pipeline) override;

  std::vector<SessionView> sessions(const job::Caller& caller) override;
  Status evict(const job::Caller& caller, std::uint64_t session,
               const std::string& reason) override;

  Result<DrainBegun> drain(const job::Caller& caller) override;
  Result<std::optional<DrainView>> undrain(const job::Caller& caller) override;

  DaemonView daemon(const job::Caller& caller) override;
  std::vector<UserView> users(const job::Caller& caller, const std::set<uid_t>& also) override;
  std::vector<job::StageView> stages(const job::Caller& caller) override;
  std::vector<job::StageView> ended_stages(const job::Caller& caller) override;
  std::vector<FailureView> failures(const job::Caller& caller, const std::string& job) override;

 private:
  // Passes the progress of a listing or a trial on to the caller's `progress`, which outlives it.
  static pipeline::Catalogue::Progress listing_progress(const Progress& progress);
  // Builds the pipeline that the caller submits; reads with the caller's rights.
  Result<pipeline::PipelinePtr> build(const job::Caller& caller, job::ApplyRequest request,
                                      const pipeline::Catalogue::Progress& progress);
  std::vector<GpuView> gpus() const;
  bool is_run(const pipeline::PipelineVersion& pipeline) const;  // by any job
  Result<JobName> job_name(const job::Caller& caller, std::string_view job,
                           std::string_view pipeline) const;
  PipelineView view(const job::Caller& caller, const pipeline::PipelineVersion& pipeline) const;
  DataPlaneView data_plane() const;
  // But for what the kernel tells of the daemon's process.
  DaemonView daemon_facts(const job::Caller& caller);
  SwapView view(const job::Caller& caller, const Swap& swap) const;
  void restore_one(const store::StoredPipeline& stored) SPDLD_EXCLUDES(mutex_);
  // Sets `name` to the pipeline's, where the file says it.
  Status apply_file(const std::string& file, std::string& name);
  void warn(std::string warning) SPDLD_EXCLUDES(mutex_);

  Sessions& sessions_;
  pipeline::Catalogue& catalogue_;
  pipeline::PipelineTable& pipelines_;
  const Facts facts_;
  std::atomic<const delivery::DataServer*> data_ = nullptr;
  DaemonValues daemon_values_;
  const std::chrono::nanoseconds started_;
  delivery::OwnMemory own_memory_;
  Mutex mutex_;
  std::vector<std::string> warnings_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::session
