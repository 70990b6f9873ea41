// SPDX-License-Identifier: Apache-2.0
#include "session/pipeline_finder.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text/counted.h"

namespace spdld::session {

pipeline::Catalogue::Progress progress_to(const SessionPtr& session) {
  return [session](std::uint64_t items, const std::string& what, const std::vector<std::string>&) {
    return session->connection->send_progress(items, 0, what);
  };
}

Result<std::optional<std::string>> PipelineFinder::pipeline_of_job(
    const std::vector<std::string>& ids, uid_t uid, const delivery::AttachRequest& request) {
  if (request.job.empty()) return std::optional<std::string>();
  {
    MutexLock lock(table_.mutex());
    for (const std::string& id : ids) {
      if (table_.jobs().contains({.uid = uid, .job = request.job, .pipeline = id}))
        return std::optional(id);
    }
  }
  for (const std::string& id : ids) {
    SPDLD_ASSIGN(const std::optional<store::StoredJob> stored,
                 records_.kept_job({.uid = uid, .job = request.job, .pipeline = id}));
    if (stored && JobRecords::goes_on_with(*stored, request)) return std::optional(id);
  }
  return std::optional<std::string>();
}

pipeline::Asked<pipeline::PipelinePtr> PipelineFinder::find(const SessionPtr& session,
                                                            delivery::AttachRequest& request,
                                                            const pipeline::ListingAsker& asker) {
  if (!request.pipeline_yaml.empty()) return brought_by(session, request, asker);
  const uid_t uid = session->connection->peer().uid;
  SPDLD_ASSIGN(const auto known, deps_.pipelines.known_ids(uid, request.pipeline));
  if (known.size() < 2) return named(session, request);
  SPDLD_ASSIGN(const auto of_job, pipeline_of_job(known, uid, request));
  return deps_.pipelines.get(of_job.value_or(known.front()), uid, request.pipeline);
}

pipeline::Asked<pipeline::PipelinePtr> PipelineFinder::named(
    const SessionPtr& session, const delivery::AttachRequest& request) {
  MutexLock lock(table_.mutex());
  auto found = deps_.pipelines.named(session->connection->peer().uid, request.pipeline);
  if (found || found.error().code() != Code::kNotFound || session->closed || !deps_.files_pending())
    return found;
  session->connection->send_progress(
      0, 0,
      "pipeline files of the configuration are being applied, and none so far is '" +
          request.pipeline + "'");
  std::erase_if(waiting_, [](const Waiting& other) { return other.session.expired(); });
  waiting_.push_back({session, request});
  return std::optional<pipeline::PipelinePtr>();
}

void PipelineFinder::look_again() {
  std::vector<Waiting> waiting;
  {
    MutexLock lock(table_.mutex());
    waiting.swap(waiting_);
  }
  for (const Waiting& attach : waiting) {
    if (const SessionPtr session = attach.session.lock())
      table_.attach_again(session, attach.request);
  }
}

bool PipelineFinder::may_replace(const std::string& id,
                                 const delivery::AttachRequest& request) const {
  if (request.replace != delivery::Replace::kUnread)
    return request.replace == delivery::Replace::kAlways;
  // Only a daemon of the loaders alone: what an operator applied stays.
  return deps_.launched && table_.jobs_on(id).empty();
}

pipeline::Asked<pipeline::PipelinePtr> PipelineFinder::known(const job::ApplyRequest& submitted,
                                                             const pipeline::PipelineText& text,
                                                             uid_t uid,
                                                             delivery::AttachRequest& request,
                                                             const pipeline::ListingAsker& asker) {
  SPDLD_ASSIGN(const auto ids, deps_.pipelines.ids(uid, text.name));
  SPDLD_ASSIGN(const auto known, deps_.pipelines.known_ids(uid, text.name));
  SPDLD_ASSIGN(const auto of_job, pipeline_of_job(ids, uid, request));
  if (!of_job && known.empty()) return pipeline::PipelinePtr();
  // It is listed anew; a rank that comes to a job that runs, or that goes on, takes what that has.
  if (!of_job && request.replace == delivery::Replace::kAlways && !request.reconnect)
    return pipeline::PipelinePtr();
  const std::string id = of_job.value_or(known.empty() ? std::string() : known.front());
  // Its job's record is complete without it.
  if (std::find(known.begin(), known.end(), id) == known.end()) return pipeline::PipelinePtr();
  SPDLD_ASSIGN(pipeline::PipelinePtr base, deps_.pipelines.get(id, uid, text.name));
  // What was applied counts, whatever has come to its directories or gone from them since.
  if (base->text_digest() == text.digest) return base;
  job::ApplyRequest as_applied = submitted;
  as_applied.vars = base->request.vars;
  const auto same_file = deps_.catalogue.text_of(uid, as_applied, asker);
  if (same_file && !*same_file) return std::optional<pipeline::PipelinePtr>();
  if (same_file && (*same_file)->digest == base->text_digest()) {
    if (of_job) return base;  // what its rank leaves out is as the job has it
    for (const auto& [name, value] : base->request.vars)
      request.vars.try_emplace(name, text.vars.at(name));
    return base;
  }
  // A user's text of a shared one's name becomes the user's own.
  if (!of_job && job::is_shared(id) && !deps_.pipelines.is_admin(uid))
    return pipeline::PipelinePtr();
  // Who was here before brings what it began with, and an operator may have changed it since.
  if (request.reconnect) return base;
  if (may_replace(id, request)) return pipeline::PipelinePtr();
  const std::string name = deps_.pipelines.name_for(uid, id);
  const std::string has = job::is_shared(id) ? "the daemon" : "uid " + std::to_string(uid);
  return error(Code::kAlreadyExists,
               has + " has a pipeline '" + name + "' (version " + std::to_string(base->version) +
                   ") that differs from the one that this loader brings: to use the loader's from "
                   "now on, Loader(..., replace=True) or 'spdlctl --address " +
                   deps_.address + " apply -f " +
                   (request.pipeline_file.empty() ? "FILE" : request.pipeline_file) +
                   "'; to keep both, give this one another name");
}

pipeline::Asked<pipeline::PipelinePtr> PipelineFinder::brought_by(
    const SessionPtr& session, delivery::AttachRequest& request,
    const pipeline::ListingAsker& asker) {
  const delivery::AttachRequest whole = request;
  const uid_t uid = session->connection->peer().uid;
  job::ApplyRequest submitted;
  submitted.yaml = request.pipeline_yaml;
  submitted.file = request.pipeline_file;
  submitted.vars = request.vars;
  submitted.env = request.env;
  submitted.from_loader = true;
  submitted.reader = session->connection->peer();
  {
    MutexLock lock(table_.mutex());
    if (session->replaced) return *session->replaced;
  }
  SPDLD_ASSIGN(const std::optional<pipeline::PipelineText> text,
               deps_.catalogue.text_of(uid, submitted, asker));
  if (!text) return std::optional<pipeline::PipelinePtr>();
  const auto known = this->known(submitted, *text, uid, request, asker);
  if (!known || !*known || **known != nullptr) return known;
  const job::PipelineOwner owner = deps_.pipelines.owner_for(uid);
  const pipeline::PipelinePtr before = deps_.pipelines.find(pipeline_id(owner, text->name));
  if (before != nullptr) submitted.from_loader = before->request.from_loader;
  // While it is listed, others may apply or bring it: all begins anew then.
  SPDLD_ASSIGN(const std::optional<pipeline::PipelinePtr> made,
               deps_.catalogue.build(owner, submitted, asker));
  if (!made) return made;
  const pipeline::PipelinePtr& built = *made;
  if (before != nullptr && request.replace != delivery::Replace::kNever)
    return replace_slowly(session, whole, built);
  SPDLD_TRY(make_room_for_brought(uid));
  SPDLD_ASSIGN(const pipeline::PipelinePtr put, deps_.pipelines.put_first(uid, built));
  keeper_.brought(*put, uid);
  log::info({.pipeline = put->id(), .uid = uid},
            "pipeline '{}' version {}: {}, brought by a loader", put->id(), put->version,
            counted(put->source->size(), "item"));
  return put;
}

Result<pipeline::PipelinePtr> PipelineFinder::replace(const SessionPtr& session,
                                                      const pipeline::PipelinePtr& built) {
  const Peer& peer = session->connection->peer();
  SPDLD_ASSIGN(const std::vector<std::string> warnings,
               new_pipelines_.check(peer, built, true, progress_to(session)));
  for (const std::string& warning : warnings) spdlog::warn("{}", warning);
  SPDLD_ASSIGN(const Swap done, swaps_.replace(peer, built, "from a loader"));
  return done.pipeline;
}

pipeline::Asked<pipeline::PipelinePtr> PipelineFinder::replace_slowly(
    const SessionPtr& session, const delivery::AttachRequest& request,
    const pipeline::PipelinePtr& built) {
  // Loaders that bring the same one try it beside each other.
  const job::JobKey key{.uid = session->connection->peer().uid,
                        .job = "session " + std::to_string(session->id),
                        .pipeline = built->id()};
  session->queued = true;
  SPDLD_TRY(changing_.post(key, [this, session, request, built] {
    session->queued = false;
    Result<pipeline::PipelinePtr> put = error(Code::kInternal, "the pipeline was not replaced");
    try {
      put = replace(session, built);
    } catch (const std::exception& thrown) {  // what the request made too large, say
      put = error(Code::kInternal, std::string("the attach failed: ") + thrown.what());
    }
    {
      MutexLock lock(table_.mutex());
      session->replaced = std::move(put);
    }
    table_.attach_again(session, request);
  }));
  return std::optional<pipeline::PipelinePtr>();
}

Status PipelineFinder::make_room_for_brought(uid_t uid) {
  if (deps_.pipelines.trusted().contains(uid)) return {};
  const std::size_t most = deps_.pipelines.pipelines_per_user();
  std::vector<pipeline::PipelinePtr> brought = deps_.pipelines.all();
  std::erase_if(brought, [uid](const pipeline::PipelinePtr& pipeline) {
    return pipeline->owner != job::PipelineOwner{.uid = uid, .shared = false} ||
           !pipeline->request.from_loader;
  });
  if (brought.size() < most) return {};
  const auto idle =
      std::find_if(brought.begin(), brought.end(), [this](const pipeline::PipelinePtr& pipeline) {
        return !table_.is_run_or_expected(pipeline->id());
      });
  if (idle == brought.end())
    return Status(Code::kResourceExhausted,
                  fmt::format("user {} reads {} that its loaders brought, and limits.pipelines "
                              "allows {}: let some end, or have limits.pipelines raised",
                              uid, counted(brought.size(), "pipeline"), most));
  const std::string id = (*idle)->id();
  MutexLock writing(table_.records());
  (void)keeper_.keep_brought(table_);
  if (Status removed = deps_.store.remove_pipeline(id); !removed.ok())
    spdlog::warn("{}; a restart would bring pipeline '{}' back", removed.message(), id);
  SPDLD_TRY(deps_.pipelines.remove(uid, id));
  log::info({.pipeline = id, .uid = uid},
            "pipeline '{}', which a loader brought and no job runs, gives way to another one", id);
  return {};
}

}  // namespace spdld::session
