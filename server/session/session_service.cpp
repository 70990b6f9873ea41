// SPDX-License-Identifier: Apache-2.0
#include "session/session_service.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/counted.h"
#include "base/log.h"
#include "engine/explain.h"
#include "session/preview.h"
#include "session/records.h"
#include "spec/parse.h"

namespace spdld::session {
namespace {

constexpr std::size_t kMaxWarnings = 50;

// What ${env:NAME} means in a file that the daemon reads itself. Only what the text asks for: it is
// kept with the pipeline.
std::map<std::string, std::string> environment_for(const std::string& yaml) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = text.substr(0, equals);
    if (yaml.find("${env:" + name + "}") != std::string::npos)
      variables[name] = text.substr(equals + 1);
  }
  return variables;
}

// What the kind of arena does not protect against.
std::string note_of(delivery::ArenaKind kind) {
  switch (kind) {
    case delivery::ArenaKind::kMemfd: return {};
    case delivery::ArenaKind::kPosix:
      return "posix arenas protect against other users only: a process of the same uid can write "
             "to them";
    case delivery::ArenaKind::kHugetlb: return "huge pages are taken from the pool of the machine";
  }
  return {};
}

}  // namespace

Catalogue::Progress SessionService::listing_progress(const Progress& progress) {
  if (!progress) return nullptr;
  return [&progress](std::uint64_t items, const std::string& what) {
    return progress(items, 0, what);
  };
}

SessionService::SessionService(Sessions& sessions, Facts facts)
    : sessions_(sessions),
      catalogue_(sessions.deps().catalogue),
      swaps_(sessions),
      facts_(std::move(facts)),
      started_(sessions.deps().clock.now()) {}

void SessionService::warn(std::string warning) {
  spdlog::error("{}", warning);
  MutexLock lock(mutex_);
  // A file that is wrong is so at each reload.
  if (std::find(warnings_.begin(), warnings_.end(), warning) != warnings_.end()) return;
  if (warnings_.size() == kMaxWarnings) warnings_.erase(warnings_.begin());
  warnings_.push_back(std::move(warning));
}

void SessionService::restore_one(const StoredPipeline& stored) {
  auto built = catalogue_.build(stored.owner, stored.request, nullptr);
  if (!built)
    return warn("pipeline '" + stored.name + "' was not restored: " + built.error().message());
  if (auto put = catalogue_.put(stored.owner, std::move(*built), stored.version); !put)
    warn("pipeline '" + stored.name + "' was not restored: " + put.error().message());
}

void SessionService::restore(const std::vector<std::string>& files) {
  auto kept = sessions_.deps().store.pipelines();
  if (!kept) {
    warn("the pipelines that were applied before are not restored: " + kept.error().message());
    kept = std::vector<StoredPipeline>();
  }
  // A pipeline may take its classes from another one, whatever their names: those that take none
  // come first.
  const auto borrows = [](const StoredPipeline& stored) {
    return stored.request.yaml.find("from:") != std::string::npos;
  };
  for (const bool second : {false, true}) {
    for (const StoredPipeline& stored : *kept) {
      if (borrows(stored) == second) restore_one(stored);
    }
  }
  reload(files);
  if (Status jobs = sessions_.restore([this](std::string warning) { warn(std::move(warning)); });
      !jobs.ok())
    warn("the jobs that were declared before are not restored: " + jobs.message());
  swaps_.restore([this](std::string warning) { warn(std::move(warning)); });
}

void SessionService::reload(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    if (Status status = apply_file(file); !status.ok())
      warn(status.message().starts_with(file) ? status.message() : file + ": " + status.message());
  }
}

// A file that has not changed since it was applied is left alone: what operators applied under the
// same name since then stays.
Status SessionService::apply_file(const std::string& file) {
  ApplyRequest request;
  request.file = file;
  SPDLD_ASSIGN(request.yaml, spec::read_text_file(file));
  request.env = environment_for(request.yaml);
  const Caller self{.uid = geteuid(), .pid = getpid()};
  SPDLD_ASSIGN(const PipelinePtr built, catalogue_.build(self.uid, request, nullptr));
  Store& store = sessions_.deps().store;
  SPDLD_ASSIGN(const std::string applied, store.file_digest(file));
  const std::string digest = built->text_digest();
  if (applied == digest && catalogue_.find(built->name()) != nullptr) return {};
  if (auto view = put(self, built, "from " + file); !view) return view.error();
  return store.put_file(file, digest);
}

PipelineView SessionService::view(const PipelineVersion& pipeline) const {
  std::uint32_t jobs = 0;
  for (const auto& [version, running] : sessions_.jobs_on(pipeline.name())) jobs += running;
  return {.name = pipeline.name(),
          .version = pipeline.version,
          .owner = pipeline.owner,
          .state = "ready",
          .error = {},
          .indexed = pipeline.source->size(),
          .items = pipeline.source->size(),
          .classes = pipeline.source->classes().size(),
          .order_digest = pipeline.order(pipeline.plan->spec.seed).digest(),
          .content_digest = pipeline.content_digest,
          .batch_size = static_cast<std::uint64_t>(pipeline.plan->spec.batch.size),
          .tensors = pipeline.plan->tensors,
          .jobs = jobs};
}

Result<PipelineView> SessionService::apply(const Caller& caller, const ApplyRequest& request,
                                           const Progress& progress) {
  SPDLD_ASSIGN(const PipelinePtr built,
               catalogue_.build(caller.uid, request, listing_progress(progress)));
  if (request.dry_run) {
    SPDLD_ASSIGN(const PipelinePtr numbered, catalogue_.numbered(caller.uid, built));
    return view(*numbered);
  }
  SPDLD_ASSIGN(PipelineView applied, put(caller, built, {}));
  SwapRequest changing;
  for (const auto& [name, value] : request.vars) changing.vars.insert(name);
  if (const PipelinePtr current = catalogue_.find(applied.name))
    applied.staying = sessions_.staying(caller, current, changing, listing_progress(progress));
  return applied;
}

Result<PipelineView> SessionService::put(const Caller& caller, const PipelinePtr& built,
                                         std::string note) {
  MutexLock one_at_a_time(sessions_.swapping());
  SPDLD_TRY(swaps_.check_free(built->name()));
  const PipelinePtr before = catalogue_.find(built->name());
  SPDLD_ASSIGN(const PipelinePtr put, catalogue_.put(caller.uid, built));
  // Also what has not changed: the record of it may have failed the last time.
  if (Status kept = sessions_.deps().store.put_pipeline(
          stored_pipeline(*put), stored_revision(*put, caller.uid, std::move(note)));
      !kept.ok())
    return tl::unexpected<Status>(
        kept.with_context("pipeline '" + put->name() + "' is applied until the daemon restarts"));
  if (put == before) return view(*put);
  spdlog::info("pipeline '{}' version {}: {} items, applied by uid {}", put->name(), put->version,
               put->source->size(), caller.uid);
  return view(*put);
}

Result<std::string> SessionService::explain(const Caller& caller, const ApplyRequest& request,
                                            const Progress& progress) {
  SPDLD_ASSIGN(const PipelinePtr built,
               catalogue_.build(caller.uid, request, listing_progress(progress)));
  const SessionsDeps& deps = sessions_.deps();
  const auto credits = static_cast<std::uint32_t>(built->plan->spec.delivery.prefetch);
  const delivery::ArenaShape shape{.kind = deps.arena_kind,
                                   .slot_bytes = built->plan->layout.slot_bytes(),
                                   .slot_count = built->plan->slots_for(credits)};
  return engine::explain(*built->plan,
                         {.items = built->source->size(),
                          .classes = built->source->classes().size(),
                          .num_shards = 1,
                          .credits = credits,
                          .cpu_threads = deps.executor.threads(),
                          .arena_bytes = delivery::arena_bytes(shape),
                          .arena_used = deps.budget.used_bytes(),
                          .arena_budget = deps.budget.limit_bytes(),
                          .arena_kind = std::string(delivery::arena_kind_name(deps.arena_kind)),
                          .cache = built->cache});
}

Status SessionService::validate(const Caller& caller, const ApplyRequest& request) {
  const auto built = catalogue_.build(caller.uid, request, nullptr);
  return built ? Status() : built.error();
}

Result<PreviewView> SessionService::preview(const Caller& caller, const ApplyRequest& request,
                                            std::uint64_t rows, const Progress& progress) {
  SPDLD_ASSIGN(const PipelinePtr built,
               catalogue_.build(caller.uid, request, listing_progress(progress)));
  return make_preview(*built, rows, sessions_.deps().executor, sessions_.deps().clock);
}

Result<PipelineView> SessionService::pipeline(const Caller&, std::string_view name) {
  SPDLD_ASSIGN(const PipelinePtr found, catalogue_.get(std::string(name)));
  return view(*found);
}

std::vector<PipelineView> SessionService::pipelines(const Caller&) {
  std::vector<PipelineView> views;
  for (const PipelinePtr& pipeline : catalogue_.all()) views.push_back(view(*pipeline));
  return views;
}

Result<std::string> SessionService::pipeline_text(const Caller&, std::string_view name) {
  SPDLD_ASSIGN(const PipelinePtr found, catalogue_.get(std::string(name)));
  return found->request.yaml;
}

Result<std::vector<std::string>> SessionService::classes(const Caller&, std::string_view name) {
  SPDLD_ASSIGN(const PipelinePtr found, catalogue_.get(std::string(name)));
  return found->source->classes();
}

Status SessionService::delete_pipeline(const Caller& caller, std::string_view name) {
  const std::string key(name);
  std::uint32_t jobs = 0;
  for (const auto& [version, running] : sessions_.jobs_on(key)) jobs += running;
  if (jobs > 0)
    return Status(Code::kFailedPrecondition,
                  "pipeline '" + key + "' is run by " + counted(jobs, "job") + ": delete " +
                      (jobs == 1 ? "it or let it" : "them or let them") + " end first");
  const PipelinePtr removed = catalogue_.find(key);
  SPDLD_TRY(catalogue_.remove(caller.uid, key));
  Status forgotten = sessions_.deps().store.remove_pipeline(key);
  // A restart would bring it back: it stays, and the caller may try again.
  if (!forgotten.ok() && removed != nullptr) {
    if (auto kept = catalogue_.put(removed->owner, removed, removed->version); !kept)
      spdlog::warn("pipeline '{}': {}", key, kept.error().message());
  }
  return forgotten;
}

Result<JobView> SessionService::create_job(const Caller& caller, const JobRequest& request) {
  return sessions_.create_job(caller, request);
}

Result<JobView> SessionService::job(const Caller& caller, std::string_view job,
                                    std::string_view pipeline) {
  return sessions_.job(caller, job, pipeline);
}

std::vector<JobView> SessionService::jobs(const Caller& caller) { return sessions_.jobs(caller); }

Result<JobView> SessionService::advance_epoch(const Caller& caller, std::string_view job,
                                              std::string_view pipeline,
                                              std::optional<std::uint64_t> to) {
  return sessions_.advance_epoch(caller, job, pipeline, to);
}

Result<JobView> SessionService::seek(const Caller& caller, std::string_view job,
                                     std::string_view pipeline, std::uint64_t epoch,
                                     std::uint64_t step) {
  return sessions_.seek_job(caller, job, pipeline, {epoch, step});
}

Result<JobView> SessionService::resize_job(const Caller& caller, std::string_view job,
                                           std::string_view pipeline, std::uint32_t num_shards) {
  return sessions_.resize_job(caller, job, pipeline, num_shards);
}

Result<JobView> SessionService::skip(const Caller& caller, std::string_view job,
                                     std::string_view pipeline, std::uint64_t steps) {
  return sessions_.skip_steps(caller, job, pipeline, steps);
}

Result<JobView> SessionService::limit_job(const Caller& caller, std::string_view job,
                                          std::string_view pipeline, const LimitChange& change) {
  return sessions_.limit_job(caller, job, pipeline, change);
}

Result<DeletedJob> SessionService::delete_job(const Caller& caller, std::string_view job,
                                              std::string_view pipeline) {
  return sessions_.delete_job(caller, job, pipeline);
}

std::vector<SessionView> SessionService::sessions(const Caller& caller) {
  return sessions_.sessions(caller);
}

Status SessionService::evict(const Caller& caller, std::uint64_t session,
                             const std::string& reason) {
  return sessions_.evict(caller, session, reason);
}

DaemonView SessionService::daemon(const Caller&) {
  const SessionsDeps& deps = sessions_.deps();
  const Sessions::Totals totals = sessions_.totals();
  DaemonView view{.version = facts_.version,
                  .pid = getpid(),
                  .uptime_s = std::chrono::duration<double>(deps.clock.now() - started_).count(),
                  .cpu_threads = deps.executor.threads(),
                  .io_threads = facts_.io_threads,
                  .arena_used = deps.budget.used_bytes(),
                  .arena_budget = deps.budget.limit_bytes(),
                  .arena_kind = std::string(delivery::arena_kind_name(deps.arena_kind)),
                  .arena_note = note_of(deps.arena_kind),
                  .sessions = totals.sessions,
                  .jobs = totals.jobs,
                  .pipelines = static_cast<std::uint32_t>(catalogue_.all().size()),
                  .batches = totals.batches,
                  .rows = totals.rows,
                  .warnings = catalogue_.warnings()};
  for (std::string& warning : sessions_.warnings()) view.warnings.push_back(std::move(warning));
  MutexLock lock(mutex_);
  view.warnings.insert(view.warnings.end(), warnings_.begin(), warnings_.end());
  return view;
}

std::vector<StageView> SessionService::stages(const Caller& caller) {
  return sessions_.stages(caller);
}

std::vector<FailureView> SessionService::failures(const Caller& caller) {
  return sessions_.failures(caller);
}

}  // namespace spdld::session
