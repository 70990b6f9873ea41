// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spdld/v1/control.pb.h"

namespace spdld::ctl {

// Thrown by what Daemon::cancel() ended.
struct Cancelled {};

// What a preview's stream amounts to.
struct Preview {
  v1::PreviewHeader header;
  std::vector<std::string> data;  // per tensor, all rows
};

// Likewise one batch of a job.
struct ShownBatch {
  v1::ShownStep step;
  Preview rows;
};

// The daemon as spdlctl sees it: one connection over its control socket, one call at a time, by any
// thread. The only place of spdlctl that sees gRPC. Every method throws Failure: kUnreachable if
// the daemon is not there or goes away, kWrongUsage for what it calls an invalid argument, else
// kFailed.
class Daemon {
 public:
  using OnProgress = std::function<void(const v1::Progress&)>;

  // `timeout` bounds calls that only ask; those that index or decode take as long as they take.
  Daemon(std::string runtime_dir, std::chrono::milliseconds timeout);
  ~Daemon();

  v1::Pipeline apply(const v1::PipelineText& text, bool dry_run, const OnProgress& on_progress);
  v1::SwapResult swap(const v1::PipelineText& text, const v1::SwapRequest& jobs, bool dry_run,
                      const OnProgress& on_progress);
  // Ends swap() or rollback() in which another thread is, if one is: it throws Cancelled then.
  void cancel();
  v1::HistoryResponse history(const std::string& pipeline);
  v1::SwapResult rollback(const v1::RollbackRequest& request, const OnProgress& on_progress);
  v1::ExplainResponse explain(const v1::PipelineText& text, const OnProgress& on_progress);
  Preview preview(const v1::PipelineText& text, std::uint32_t rows, const OnProgress& on_progress);
  v1::GetPipelineResponse pipeline(const std::string& name, bool with_yaml);
  v1::ListPipelinesResponse pipelines();
  v1::ClassesResponse classes(const std::string& pipeline);
  void delete_pipeline(const std::string& name);

  v1::Job create_job(const v1::CreateJobRequest& request);
  v1::Job job(const v1::JobKey& key);
  v1::ListJobsResponse jobs(bool ended = false);
  v1::DiagnoseResponse diagnose(const v1::JobKey& key);
  ShownBatch show(const v1::ShowRequest& request, const OnProgress& on_progress);
  v1::Headspace headspace(const v1::HeadspaceRequest& request, const OnProgress& on_progress);
  v1::Job advance_epoch(const v1::JobKey& key, std::optional<std::uint64_t> to);
  v1::Job seek(const v1::JobKey& key, std::uint64_t epoch, std::uint64_t step);
  v1::Job skip(const v1::JobKey& key, std::uint64_t steps);
  v1::TuneResponse tune(const v1::TuneRequest& request);
  v1::Job resize(const v1::JobKey& key, std::uint32_t num_shards);
  v1::DeleteJobResponse delete_job(const v1::JobKey& key);

  v1::DrainResponse drain();
  v1::UndrainResponse undrain();

  v1::ListSessionsResponse sessions();
  void evict(std::uint64_t session, const std::string& reason);

  v1::ListUsersResponse users();
  v1::StatsSnapshot stats(const v1::GetStatsRequest& wanted = {});
  std::string metrics();
  // Calls `on_snapshot` for each until it returns false.
  void watch(const v1::WatchStatsRequest& request,
             const std::function<bool(const v1::StatsSnapshot&)>& on_snapshot);

 private:
  struct Stubs;
  class Cancellable;
  const std::string runtime_dir_;
  const std::chrono::milliseconds timeout_;
  std::unique_ptr<Stubs> stubs_;
};

}  // namespace spdld::ctl
