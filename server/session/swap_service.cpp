// SPDX-License-Identifier: Apache-2.0
// Hot swap and history: the part of SessionService that changes what running jobs run.
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session/session_service.h"
#include "session/shown_names.h"

namespace spdld::session {
namespace {

// In the history, of a version that repeats an earlier one.
constexpr std::string_view kRollback = "rollback to version ";

std::optional<std::uint32_t> repeats(const store::StoredRevision& revision) {
  const std::string& note = revision.note;
  if (!note.starts_with(kRollback)) return std::nullopt;
  std::uint32_t version = 0;
  const char* const end = note.data() + note.size();
  const auto [stopped, failed] = std::from_chars(note.data() + kRollback.size(), end, version);
  if (failed != std::errc() || stopped != end) return std::nullopt;
  return version;
}

// The version that was applied first with what `version` has.
std::uint32_t applied_as(const std::vector<store::StoredRevision>& revisions,
                         std::uint32_t version) {
  for (auto revision = revisions.rbegin(); revision != revisions.rend(); ++revision) {
    if (revision->version == version) version = repeats(*revision).value_or(version);
  }
  return version;
}

const store::StoredRevision* find(const std::vector<store::StoredRevision>& revisions,
                                  std::uint32_t version) {
  for (const store::StoredRevision& revision : revisions) {
    if (revision.version == version) return &revision;
  }
  return nullptr;
}

// What was current when what is current now was applied: rollbacks are no steps of that way.
// `name`: what the caller calls it.
Result<const store::StoredRevision*> one_further_back(
    const std::vector<store::StoredRevision>& revisions, const pipeline::PipelineVersion& current,
    const std::string& name) {
  const std::uint32_t now = applied_as(revisions, current.version);
  const bool repeated = now != current.version;
  const store::StoredRevision* before = nullptr;
  for (const store::StoredRevision& revision : revisions) {
    if (revision.version < now) before = &revision;
  }
  if (before != nullptr) before = find(revisions, applied_as(revisions, before->version));
  if (before != nullptr) return before;
  return error(Code::kNotFound,
               "pipeline '" + name + "' is at version " + std::to_string(current.version) +
                   (repeated ? ", which repeats version " + std::to_string(now) : "") +
                   ", and nothing is kept of what was before " + (repeated ? "that" : "it") +
                   ": 'spdlctl get pipelines " + name +
                   " --history' lists its versions, and --to names one");
}

// The variables that were given for the jobs win over their own.
SwapRequest with_vars(SwapRequest jobs, const job::ApplyRequest& request) {
  for (const auto& [name, value] : request.vars) jobs.vars.insert(name);
  return jobs;
}

SwapView with_warnings(SwapView view, const std::vector<std::string>& warnings) {
  view.pipeline.warnings.insert(view.pipeline.warnings.end(), warnings.begin(), warnings.end());
  return view;
}

}  // namespace

SwapView SessionService::view(const job::Caller& caller, const Swap& swap) const {
  return {.pipeline = view(caller, *swap.pipeline),
          .jobs = shown_to(catalogue_, caller, swap.jobs),
          .unchanged = swap.unchanged};
}

bool SessionService::is_run(const pipeline::PipelineVersion& pipeline) const {
  return !sessions_.jobs_on(pipeline.id()).empty();
}

Result<SwapView> SessionService::swap(const job::Caller& caller, const job::ApplyRequest& request,
                                      const SwapRequest& jobs, const Progress& progress) {
  const pipeline::Catalogue::Progress listing = listing_progress(progress);
  SPDLD_ASSIGN(const pipeline::PipelinePtr built, build(caller, request, listing));
  SPDLD_ASSIGN(const std::vector<std::string> found,
               check_new(caller, built, !is_run(*built), listing));
  const SwapRequest changing = with_vars(jobs, request);
  SPDLD_ASSIGN(const Swap done, request.dry_run
                                    ? swaps_.ask(caller, built, changing, listing)
                                    : swaps_.change(caller, built, {}, changing, listing));
  return with_warnings(view(caller, done), found);
}

Result<std::vector<RevisionView>> SessionService::history(const job::Caller& caller,
                                                          std::string_view pipeline) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr current,
               catalogue_.named(caller.uid, std::string(pipeline)));
  SPDLD_ASSIGN(const std::vector<store::StoredRevision> revisions,
               sessions_.deps().store.history(current->id()));
  const auto jobs = sessions_.jobs_on(current->id());
  std::vector<RevisionView> views;
  for (const store::StoredRevision& revision : revisions) {
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

Result<SwapView> SessionService::rollback(const job::Caller& caller, std::string_view pipeline,
                                          std::optional<std::uint32_t> version,
                                          const std::optional<SwapRequest>& jobs,
                                          const Progress& progress) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr current,
               catalogue_.named(caller.uid, std::string(pipeline)));
  SPDLD_ASSIGN(const std::vector<store::StoredRevision> revisions,
               sessions_.deps().store.history(current->id()));
  const std::string name = catalogue_.name_for(caller.uid, current->id());
  const store::StoredRevision* target = nullptr;
  if (version) {
    target = find(revisions, *version);
    if (target == nullptr)
      return error(Code::kNotFound, "pipeline '" + name + "' has no version " +
                                        std::to_string(*version) + ": 'spdlctl get pipelines " +
                                        name + " --history' lists them");
  } else {
    SPDLD_ASSIGN(target, one_further_back(revisions, *current, name));
  }
  const pipeline::Catalogue::Progress listing = listing_progress(progress);
  job::ApplyRequest again = target->request;
  again.from_loader = false;  // from now on it is applied
  again.reader = caller;
  SPDLD_ASSIGN(const pipeline::PipelinePtr built, catalogue_.build(current->owner, again, listing));
  SPDLD_ASSIGN(const std::vector<std::string> found,
               check_new(caller, built, !jobs || !is_run(*built), listing));
  const std::string note = std::string(kRollback) + std::to_string(target->version);
  std::optional<SwapRequest> changing = jobs;
  if (changing) changing->again = target->version;
  SPDLD_ASSIGN(const Swap done, swaps_.roll_back(caller, built, note, changing, listing));
  SwapView told = with_warnings(view(caller, done), found);
  told.repeats = target->version;
  if (done.dropped) told.repeats = done.unchanged ? 0 : done.pipeline->version;
  if (changing) return told;
  SwapRequest would;
  would.again = target->version;
  told.pipeline.staying = sessions_.staying(caller, done.pipeline, would, listing);
  return told;
}

}  // namespace spdld::session
