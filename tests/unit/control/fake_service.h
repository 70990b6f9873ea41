// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "session/service.h"

namespace spdld::control {

// A Service that remembers who asked for what and answers as the test says. Its answers are set
// before the server starts; thread-safe then.
class FakeService final : public session::Service {
 public:
  using Caller = job::Caller;

  // What apply, validate, explain, preview, show and create_job do before they answer; a failure is
  // their answer.
  std::function<Status(const Progress&)> work = [](const Progress&) { return Status(); };
  // Likewise of swap() where it is no dry run, and of rollback().
  std::function<Status(const Progress&)> changing = [](const Progress&) { return Status(); };
  std::function<Status(const Progress&)> going_back = [](const Progress&) { return Status(); };
  Status answer;  // of everything that can fail
  session::PipelineView pipeline_view;
  job::JobView job_view;
  std::vector<session::DiagnosisView> diagnoses;
  session::DeletedJob deleted_job{.pipeline = "images"};
  session::SwapView swap_view;
  std::vector<session::RevisionView> revision_views;
  std::vector<session::LiveValue> live_values;
  session::ExplainView explain_view = {.facts = {}, .text = "the plan"};
  pipeline::PreviewView preview_view;
  session::StepView step_view;
  session::HeadspaceView headspace_view;
  session::DaemonView daemon_view;
  session::DrainBegun drain_begun = {.drain = {}, .began = true};
  std::optional<session::DrainView> drain_ended;
  // What daemon() tells of a drain once drain() was called: each in turn, the last for good.
  std::vector<std::optional<session::DrainView>> drains = {session::DrainView{}};
  std::vector<session::SessionView> session_views;
  std::vector<session::UserView> user_views;
  std::vector<job::StageView> stage_views;
  std::vector<session::FailureView> failure_views;
  std::vector<std::string> class_names;
  bool throws = false;

  // "Method argument ...", and the last caller.
  std::vector<std::string> calls() const {
    MutexLock lock(mutex_);
    return calls_;
  }
  Caller last_caller() const {
    MutexLock lock(mutex_);
    return caller_;
  }
  job::ApplyRequest last_apply() const {
    MutexLock lock(mutex_);
    return apply_;
  }
  session::JobRequest last_job() const {
    MutexLock lock(mutex_);
    return job_;
  }

  std::optional<session::SwapRequest> last_swap() const {
    MutexLock lock(mutex_);
    return swap_;
  }
  session::TuneRequest last_tuning() const {
    MutexLock lock(mutex_);
    return tuning_;
  }

  Result<session::PipelineView> apply(const Caller& caller, const job::ApplyRequest& request,
                                      const Progress& progress) override {
    note(caller, request.dry_run ? "apply dry" : "apply", request);
    SPDLD_TRY(work(progress));
    return or_answer(pipeline_view);
  }
  Result<session::SwapView> swap(const Caller& caller, const job::ApplyRequest& request,
                                 const session::SwapRequest& jobs,
                                 const Progress& progress) override {
    note(caller, request.dry_run ? "swap dry" : "swap", request);
    SPDLD_TRY(request.dry_run ? work(progress) : changing(progress));
    return swapped(jobs);
  }
  Result<std::vector<session::RevisionView>> history(const Caller& caller,
                                                     std::string_view pipeline) override {
    note(caller, "history " + std::string(pipeline));
    return or_answer(revision_views);
  }
  Result<session::SwapView> rollback(const Caller& caller, std::string_view pipeline,
                                     std::optional<std::uint32_t> version,
                                     const std::optional<session::SwapRequest>& jobs,
                                     const Progress& progress) override {
    note(caller, "rollback " + std::string(pipeline) + " " +
                     (version ? std::to_string(*version) : "previous"));
    SPDLD_TRY(going_back(progress));
    return swapped(jobs);
  }
  Result<session::ExplainView> explain(const Caller& caller, const job::ApplyRequest& request,
                                       const Progress& progress) override {
    note(caller, "explain", request);
    SPDLD_TRY(work(progress));
    return or_answer(explain_view);
  }
  Status validate(const Caller& caller, const job::ApplyRequest& request,
                  const Progress& progress) override {
    note(caller, "validate", request);
    SPDLD_TRY(work(progress));
    return answer;
  }
  Result<pipeline::PreviewView> preview(const Caller& caller, const job::ApplyRequest& request,
                                        std::uint64_t rows, const Progress& progress) override {
    note(caller, "preview " + std::to_string(rows), request);
    SPDLD_TRY(work(progress));
    return or_answer(preview_view);
  }
  Result<session::PipelineView> pipeline(const Caller& caller, std::string_view name) override {
    note(caller, "pipeline " + std::string(name));
    return or_answer(pipeline_view);
  }
  std::vector<session::PipelineView> pipelines(const Caller& caller) override {
    note(caller, "pipelines");
    return {pipeline_view};
  }
  Result<std::string> pipeline_text(const Caller& caller, std::string_view name) override {
    note(caller, "text " + std::string(name));
    return or_answer(std::string("pipeline: p\n"));
  }
  Result<session::ClassesView> classes(const Caller& caller, std::string_view name,
                                       const Progress&) override {
    note(caller, "classes " + std::string(name));
    return or_answer(session::ClassesView{.names = class_names, .category_ids = {}});
  }
  Status delete_pipeline(const Caller& caller, std::string_view name) override {
    note(caller, "delete_pipeline " + std::string(name));
    return answer;
  }
  Result<job::JobView> create_job(const Caller& caller, const session::JobRequest& request,
                                  const Progress& progress) override {
    note(caller, "create_job " + request.job);
    SPDLD_TRY(work(progress));
    MutexLock lock(mutex_);
    job_ = request;
    return or_answer(job_view);
  }
  Result<job::JobView> job(const Caller& caller, std::string_view job,
                           std::string_view pipeline) override {
    return asked_of(caller, "job", job, pipeline);
  }
  std::vector<job::JobView> jobs(const Caller& caller) override {
    note(caller, "jobs");
    return {job_view};
  }
  Result<std::vector<session::DiagnosisView>> diagnose(const Caller& caller, std::string_view job,
                                                       std::string_view pipeline) override {
    note(caller, "diagnose " + std::string(job) + " " + std::string(pipeline));
    return or_answer(diagnoses);
  }
  Result<session::StepView> show(const Caller& caller, std::string_view job,
                                 std::string_view pipeline, job::StepAt at, std::uint32_t shard,
                                 const Progress& progress) override {
    note(caller, "show " + std::to_string(at.epoch) + "/" + std::to_string(at.step) + " shard " +
                     std::to_string(shard) + " " + std::string(job) + " " + std::string(pipeline));
    SPDLD_TRY(work(progress));
    return or_answer(step_view);
  }
  std::vector<job::JobView> ended_jobs(const Caller& caller) override {
    note(caller, "ended_jobs");
    return {job_view};
  }
  Result<job::JobView> advance_epoch(const Caller& caller, std::string_view job,
                                     std::string_view pipeline,
                                     std::optional<std::uint64_t> to) override {
    return asked_of(caller, "advance " + (to ? std::to_string(*to) : "next"), job, pipeline);
  }
  Result<job::JobView> seek(const Caller& caller, std::string_view job, std::string_view pipeline,
                            std::uint64_t epoch, std::uint64_t step) override {
    return asked_of(caller, "seek " + std::to_string(epoch) + "/" + std::to_string(step), job,
                    pipeline);
  }
  Result<job::JobView> skip(const Caller& caller, std::string_view job, std::string_view pipeline,
                            std::uint64_t steps) override {
    return asked_of(caller, "skip " + std::to_string(steps), job, pipeline);
  }
  Result<session::HeadspaceView> headspace(const Caller& caller, std::string_view job,
                                           std::string_view pipeline, std::uint32_t steps,
                                           const Progress& progress) override {
    note(caller, "headspace " + std::to_string(steps) + " " + std::string(job) + " " +
                     std::string(pipeline));
    SPDLD_TRY(work(progress));
    SPDLD_TRY(answer);
    return headspace_view;
  }
  Result<std::vector<session::LiveValue>> tune_job(const Caller& caller, std::string_view job,
                                                   std::string_view pipeline,
                                                   const session::TuneRequest& request) override {
    note(caller, "tune " + std::string(job) + " " + std::string(pipeline));
    return tuned(request);
  }
  Result<std::vector<session::LiveValue>> tune_daemon(
      const Caller& caller, const session::TuneRequest& request) override {
    note(caller, "tune the daemon");
    return tuned(request);
  }
  Result<job::JobView> resize_job(const Caller& caller, std::string_view job,
                                  std::string_view pipeline, std::uint32_t num_shards) override {
    return asked_of(caller, "resize " + std::to_string(num_shards), job, pipeline);
  }
  Result<session::DeletedJob> delete_job(const Caller& caller, std::string_view job,
                                         std::string_view pipeline) override {
    note(caller, "delete_job " + std::string(job) + " " + std::string(pipeline));
    return or_answer(deleted_job);
  }
  std::vector<session::SessionView> sessions(const Caller& caller) override {
    note(caller, "sessions");
    return session_views;
  }
  Status evict(const Caller& caller, std::uint64_t session, const std::string& reason) override {
    note(caller, "evict " + std::to_string(session) + " " + reason);
    return answer;
  }
  Result<session::DrainBegun> drain(const Caller& caller) override {
    note(caller, "drain");
    MutexLock lock(mutex_);
    drained_ = true;
    return or_answer(drain_begun);
  }
  Result<std::optional<session::DrainView>> undrain(const Caller& caller) override {
    note(caller, "undrain");
    return or_answer(drain_ended);
  }
  session::DaemonView daemon(const Caller& caller) override {
    note(caller, "daemon");
    MutexLock lock(mutex_);
    session::DaemonView view = daemon_view;
    if (!drained_) return view;
    view.drain = drains.front();
    if (drains.size() > 1) drains.erase(drains.begin());
    return view;
  }
  std::vector<session::UserView> users(const Caller& caller, const std::set<uid_t>&) override {
    note(caller, "users");
    return user_views;
  }
  std::vector<job::StageView> stages(const Caller& caller) override {
    note(caller, "stages");
    return stage_views;
  }
  std::vector<job::StageView> ended_stages(const Caller& caller) override {
    note(caller, "ended_stages");
    return stage_views;
  }
  std::vector<session::FailureView> failures(const Caller& caller, const std::string&) override {
    note(caller, "failures");
    return failure_views;
  }

 private:
  void note(const Caller& caller, std::string call) {
    MutexLock lock(mutex_);
    caller_ = caller;
    calls_.push_back(std::move(call));
    if (throws) throw std::runtime_error("the fake was told to throw");
  }
  void note(const Caller& caller, std::string call, const job::ApplyRequest& request) {
    note(caller, std::move(call));
    MutexLock lock(mutex_);
    apply_ = request;
  }
  Result<session::SwapView> swapped(const std::optional<session::SwapRequest>& jobs) {
    {
      MutexLock lock(mutex_);
      swap_ = jobs;
    }
    return or_answer(swap_view);
  }
  Result<job::JobView> asked_of(const Caller& caller, std::string call, std::string_view job,
                                std::string_view pipeline) {
    note(caller, std::move(call) + " " + std::string(job) + " " + std::string(pipeline));
    return or_answer(job_view);
  }
  template <typename T>
  Result<T> or_answer(const T& value) const {
    if (!answer.ok()) return tl::unexpected(answer);
    return value;
  }

  Result<std::vector<session::LiveValue>> tuned(const session::TuneRequest& request) {
    MutexLock lock(mutex_);
    tuning_ = request;
    return or_answer(live_values);
  }

  mutable Mutex mutex_;
  Caller caller_ SPDLD_GUARDED_BY(mutex_);
  std::vector<std::string> calls_ SPDLD_GUARDED_BY(mutex_);
  job::ApplyRequest apply_ SPDLD_GUARDED_BY(mutex_);
  session::JobRequest job_ SPDLD_GUARDED_BY(mutex_);
  std::optional<session::SwapRequest> swap_ SPDLD_GUARDED_BY(mutex_);
  session::TuneRequest tuning_ SPDLD_GUARDED_BY(mutex_);
  bool drained_ SPDLD_GUARDED_BY(mutex_) = false;
};

}  // namespace spdld::control
