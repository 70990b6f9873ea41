// SPDX-License-Identifier: Apache-2.0
// Which pipeline a consumer that attaches means, or brings: a part of Sessions.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text/counted.h"
#include "session/records.h"
#include "session/sessions.h"

namespace spdld::session {

Result<std::optional<std::string>> Sessions::pipeline_of_job(
    const std::vector<std::string>& ids, uid_t uid, const delivery::AttachRequest& request) {
  if (request.job.empty()) return std::optional<std::string>();
  {
    MutexLock lock(mutex_);
    for (const std::string& id : ids) {
      if (jobs_.contains({.uid = uid, .job = request.job, .pipeline = id}))
        return std::optional(id);
    }
  }
  for (const std::string& id : ids) {
    SPDLD_ASSIGN(const std::optional<store::StoredJob> stored,
                 kept_job({.uid = uid, .job = request.job, .pipeline = id}));
    if (stored && goes_on_with(*stored, request)) return std::optional(id);
  }
  return std::optional<std::string>();
}

Result<pipeline::PipelinePtr> Sessions::pipeline_for(const SessionPtr& session,
                                                     delivery::AttachRequest& request) {
  if (!request.pipeline_yaml.empty()) return brought_by(session, request);
  const uid_t uid = session->connection->peer().uid;
  const pipeline::Catalogue& catalogue = deps_.catalogue;
  SPDLD_ASSIGN(const auto known, catalogue.known_ids(uid, request.pipeline));
  if (known.size() < 2) return catalogue.named(uid, request.pipeline);
  SPDLD_ASSIGN(const auto of_job, pipeline_of_job(known, uid, request));
  return catalogue.get(of_job.value_or(known.front()), uid, request.pipeline);
}

bool Sessions::may_replace(const std::string& id, const delivery::AttachRequest& request) const {
  if (request.replace != delivery::Replace::kUnread)
    return request.replace == delivery::Replace::kAlways;
  // Only a daemon of the loaders alone: what an operator applied stays.
  return deps_.launched && jobs_on(id).empty();
}

Result<pipeline::PipelinePtr> Sessions::known_pipeline(const job::ApplyRequest& submitted,
                                                       const pipeline::PipelineText& text,
                                                       uid_t uid,
                                                       delivery::AttachRequest& request) {
  const pipeline::Catalogue& catalogue = deps_.catalogue;
  SPDLD_ASSIGN(const auto ids, catalogue.ids(uid, text.name));
  SPDLD_ASSIGN(const auto known, catalogue.known_ids(uid, text.name));
  SPDLD_ASSIGN(const auto of_job, pipeline_of_job(ids, uid, request));
  if (!of_job && known.empty()) return pipeline::PipelinePtr();
  // It is listed anew; a rank that comes to a job that runs, or that goes on, takes what that has.
  if (!of_job && request.replace == delivery::Replace::kAlways && !request.reconnect)
    return pipeline::PipelinePtr();
  const std::string id = of_job.value_or(known.empty() ? std::string() : known.front());
  // Its job's record is complete without it.
  if (std::find(known.begin(), known.end(), id) == known.end()) return pipeline::PipelinePtr();
  SPDLD_ASSIGN(pipeline::PipelinePtr base, catalogue.get(id, uid, text.name));
  // What was applied counts, whatever has come to its directories or gone from them since.
  if (base->text_digest() == text.digest) return base;
  job::ApplyRequest as_applied = submitted;
  as_applied.vars = base->request.vars;
  const auto same_file = deps_.catalogue.text_of(uid, as_applied);
  if (same_file && same_file->digest == base->text_digest()) {
    if (of_job) return base;  // what its rank leaves out is as the job has it
    for (const auto& [name, value] : base->request.vars)
      request.vars.try_emplace(name, text.vars.at(name));
    return base;
  }
  // A user's text of a shared one's name becomes the user's own.
  if (!of_job && job::is_shared(id) && !catalogue.is_admin(uid)) return pipeline::PipelinePtr();
  // Who was here before brings what it began with, and an operator may have changed it since.
  if (request.reconnect) return base;
  if (may_replace(id, request)) return pipeline::PipelinePtr();
  const std::string name = catalogue.name_for(uid, id);
  const std::string has = job::is_shared(id) ? "the daemon" : "uid " + std::to_string(uid);
  return error(Code::kAlreadyExists,
               has + " has a pipeline '" + name + "' (version " + std::to_string(base->version) +
                   ") that differs from the one that this loader brings: to use the loader's from "
                   "now on, Loader(..., replace=True) or 'spdlctl --address " +
                   deps_.address + " apply -f " +
                   (request.pipeline_file.empty() ? "FILE" : request.pipeline_file) +
                   "'; to keep both, give this one another name");
}

Result<pipeline::PipelinePtr> Sessions::brought_by(const SessionPtr& session,
                                                   delivery::AttachRequest& request) {
  const uid_t uid = session->connection->peer().uid;
  pipeline::Catalogue& catalogue = deps_.catalogue;
  job::ApplyRequest submitted;
  submitted.yaml = request.pipeline_yaml;
  submitted.file = request.pipeline_file;
  submitted.vars = request.vars;
  submitted.env = request.env;
  submitted.from_loader = true;
  submitted.reader = session->connection->peer();
  SPDLD_ASSIGN(const pipeline::PipelineText text, catalogue.text_of(uid, submitted));
  SPDLD_ASSIGN(pipeline::PipelinePtr known, known_pipeline(submitted, text, uid, request));
  if (known != nullptr) return known;
  const job::PipelineOwner owner = catalogue.owner_for(uid);
  const pipeline::PipelinePtr before = catalogue.find(pipeline_id(owner, text.name));
  if (before != nullptr) submitted.from_loader = before->request.from_loader;
  SPDLD_ASSIGN(const pipeline::PipelinePtr built,
               catalogue.build(owner, submitted, progress_to(session)));
  // Others may have applied or brought it while it was listed.
  SPDLD_ASSIGN(known, known_pipeline(submitted, text, uid, request));
  if (known != nullptr) return known;
  if (before != nullptr && request.replace != delivery::Replace::kNever)
    return replacing_(session->connection->peer(), built, progress_to(session));
  SPDLD_TRY(make_room_for_brought(uid));
  SPDLD_ASSIGN(const pipeline::PipelinePtr put, catalogue.put_first(uid, built));
  {
    MutexLock lock(mutex_);
    brought_.push_back({stored_pipeline(*put), stored_revision(*put, uid, "from a loader")});
  }
  log::info({.pipeline = put->id(), .uid = uid},
            "pipeline '{}' version {}: {}, brought by a loader", put->id(), put->version,
            counted(put->source->size(), "item"));
  return put;
}

}  // namespace spdld::session
