// SPDX-License-Identifier: Apache-2.0
// Hot swap and history: the part of SessionService that changes what running jobs run.
#include <utility>

#include "session/session_service.h"

namespace spdld::session {
SwapView SessionService::view(const Swap& swap) const {
  return {.pipeline = view(*swap.pipeline),
          .jobs = swap.jobs,
          .token = swap.token,
          .hold_ms = static_cast<std::uint64_t>(swap.hold.count())};
}

Result<SwapView> SessionService::swap(const Caller& caller, const ApplyRequest& request,
                                      const SwapRequest& jobs, const Progress& progress) {
  const Catalogue::Progress listing = listing_progress(progress);
  SPDLD_ASSIGN(const PipelinePtr built, catalogue_.build(caller.uid, request, listing));
  SPDLD_ASSIGN(const Swap done, swaps_.change(caller, built, {}, jobs, listing));
  return view(done);
}

Result<SwapView> SessionService::prepare_swap(const Caller& caller, const ApplyRequest& request,
                                              const SwapRequest& jobs, const Progress& progress) {
  const Catalogue::Progress listing = listing_progress(progress);
  SPDLD_ASSIGN(const PipelinePtr built, catalogue_.build(caller.uid, request, listing));
  SPDLD_ASSIGN(const Swap prepared, swaps_.prepare(caller, built, jobs, listing));
  return view(prepared);
}

Result<SwapView> SessionService::commit_swap(const Caller& caller, const std::string& token) {
  SPDLD_ASSIGN(const Swap done, swaps_.commit(caller, token));
  return view(done);
}

Status SessionService::abort_swap(const Caller& caller, const std::string& token) {
  return swaps_.abort(caller, token);
}

Result<std::vector<RevisionView>> SessionService::history(const Caller&,
                                                          std::string_view pipeline) {
  SPDLD_ASSIGN(const PipelinePtr current, catalogue_.get(std::string(pipeline)));
  SPDLD_ASSIGN(const std::vector<StoredRevision> revisions,
               sessions_.deps().store.history(current->name()));
  const auto jobs = sessions_.jobs_on(current->name());
  std::vector<RevisionView> views;
  for (const StoredRevision& revision : revisions) {
    const auto runs = jobs.find(revision.version);
    views.push_back({.version = revision.version,
                     .applied_unix_ms = revision.applied_unix_ms,
                     .applied_by = revision.applied_by,
                     .content_digest = revision.content_digest,
                     .note = revision.note,
                     .jobs = runs == jobs.end() ? 0 : runs->second,
                     .current = revision.version == current->version});
  }
  return views;
}

Result<SwapView> SessionService::rollback(const Caller& caller, std::string_view pipeline,
                                          std::optional<std::uint32_t> version,
                                          const std::optional<SwapRequest>& jobs,
                                          const Progress& progress) {
  SPDLD_ASSIGN(const PipelinePtr current, catalogue_.get(std::string(pipeline)));
  SPDLD_ASSIGN(const std::vector<StoredRevision> revisions,
               sessions_.deps().store.history(current->name()));
  const StoredRevision* target = nullptr;
  for (const StoredRevision& revision : revisions) {
    const bool wanted =
        version ? revision.version == *version : revision.version < current->version;
    if (wanted) target = &revision;
  }
  if (target == nullptr)
    return error(
        Code::kNotFound,
        "pipeline '" + current->name() + "' has no version " +
            (version ? std::to_string(*version) : "before " + std::to_string(current->version)) +
            ": 'spdlctl get pipelines " + current->name() + " --history' lists them");
  const Catalogue::Progress listing = listing_progress(progress);
  SPDLD_ASSIGN(const PipelinePtr built, catalogue_.build(current->owner, target->request, listing));
  const std::string note = "rollback to version " + std::to_string(target->version);
  SPDLD_ASSIGN(const Swap done, swaps_.change(caller, built, note, jobs, listing));
  return view(done);
}

}  // namespace spdld::session
