// SPDX-License-Identifier: Apache-2.0
// Jobs, their sessions and what is known of both: a part of SessionService.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/users/user_database.h"
#include "session/session_service.h"
#include "session/shown_names.h"

namespace spdld::session {

Result<JobName> SessionService::job_name(const job::Caller& caller, std::string_view job,
                                         std::string_view pipeline) const {
  JobName name{.job = std::string(job)};
  const std::size_t slash = name.job.find('/');
  if (slash != std::string::npos && catalogue_.is_admin(caller.uid)) {
    if (const auto user = find_user(name.job.substr(0, slash)))
      name.of_user = {.uid = *user, .job = name.job.substr(slash + 1)};
  }
  if (pipeline.empty()) return name;
  const std::string text(pipeline);
  SPDLD_ASSIGN(name.pipelines, catalogue_.known_ids(caller.uid, text));
  // As everywhere, one's own pipeline hides the shared one; a job may outlive its pipeline.
  if (!name.pipelines.empty()) {
    name.pipelines.resize(1);
  } else {
    SPDLD_ASSIGN(name.pipelines, catalogue_.ids(caller.uid, text));
  }
  return name;
}

Result<job::JobView> SessionService::create_job(const job::Caller& caller,
                                                const JobRequest& request,
                                                const Progress& progress) {
  return shown_to(catalogue_, caller,
                  sessions_.create_job(caller, request, listing_progress(progress)));
}

Result<job::JobView> SessionService::job(const job::Caller& caller, std::string_view job,
                                         std::string_view pipeline) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(catalogue_, caller, sessions_.job(caller, name));
}

std::vector<job::JobView> SessionService::jobs(const job::Caller& caller) {
  return shown_to(catalogue_, caller, sessions_.jobs(caller));
}

std::vector<job::JobView> SessionService::ended_jobs(const job::Caller& caller) {
  std::vector<job::JobView> views;
  for (store::StoredEnd& end : sessions_.ended(caller)) {
    views.push_back(std::move(end.view));
    views.back().end = std::move(end.end);
  }
  return shown_to(catalogue_, caller, std::move(views));
}

Result<job::JobView> SessionService::advance_epoch(const job::Caller& caller, std::string_view job,
                                                   std::string_view pipeline,
                                                   std::optional<std::uint64_t> to) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(catalogue_, caller, sessions_.advance_epoch(caller, name, to));
}

Result<job::JobView> SessionService::seek(const job::Caller& caller, std::string_view job,
                                          std::string_view pipeline, std::uint64_t epoch,
                                          std::uint64_t step) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(catalogue_, caller, sessions_.seek_job(caller, name, {epoch, step}));
}

Result<job::JobView> SessionService::resize_job(const job::Caller& caller, std::string_view job,
                                                std::string_view pipeline,
                                                std::uint32_t num_shards) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(catalogue_, caller, sessions_.resize_job(caller, name, num_shards));
}

Result<job::JobView> SessionService::skip(const job::Caller& caller, std::string_view job,
                                          std::string_view pipeline, std::uint64_t steps) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(catalogue_, caller, sessions_.skip_steps(caller, name, steps));
}

Result<job::JobView> SessionService::limit_job(const job::Caller& caller, std::string_view job,
                                               std::string_view pipeline,
                                               const LimitChange& change) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(catalogue_, caller, sessions_.limit_job(caller, name, change));
}

Result<DeletedJob> SessionService::delete_job(const job::Caller& caller, std::string_view job,
                                              std::string_view pipeline) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(catalogue_, caller, sessions_.delete_job(caller, name));
}

std::vector<SessionView> SessionService::sessions(const job::Caller& caller) {
  return shown_to(catalogue_, caller, sessions_.sessions(caller));
}

Status SessionService::evict(const job::Caller& caller, std::uint64_t session,
                             const std::string& reason) {
  return sessions_.evict(caller, session, reason);
}

std::vector<job::StageView> SessionService::stages(const job::Caller& caller) {
  return shown_to(catalogue_, caller, sessions_.stages(caller));
}

std::vector<job::StageView> SessionService::ended_stages(const job::Caller& caller) {
  std::vector<job::StageView> views;
  for (store::StoredEnd& end : sessions_.ended(caller)) {
    for (job::StageView& stage : end.stages) views.push_back(std::move(stage));
  }
  return shown_to(catalogue_, caller, std::move(views));
}

std::vector<FailureView> SessionService::failures(const job::Caller& caller,
                                                  const std::string& job) {
  return shown_to(catalogue_, caller, sessions_.failures(caller, job));
}

}  // namespace spdld::session
