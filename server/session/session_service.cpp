// SPDX-License-Identifier: Apache-2.0
#include "session/session_service.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/cgroup.h"
#include "base/log.h"
#include "base/text/counted.h"
#include "base/users/credentials.h"
#include "base/users/user_database.h"
#include "delivery/memory_probe.h"
#include "engine/explain.h"
#include "pipeline/preview.h"
#include "session/history.h"
#include "session/job_records.h"
#include "session/shown_names.h"
#include "source/order/padding.h"
#include "spec/parse.h"

namespace spdld::session {
namespace {

constexpr std::size_t kMaxSessionWarnings = 50;

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

using Padding = std::optional<engine::PlanFacts::Padding>;

Result<Padding> padding_of(const pipeline::PipelineVersion& pipeline) {
  if (pipeline.lengths == nullptr) return Padding();
  const spec::PipelineSpec& spec = pipeline.plan->spec;
  const auto batch = static_cast<std::uint64_t>(spec.batch.size);
  Shuffle without = spec.shuffle;
  without.bucket.reset();
  const source::Sampler plain(pipeline.source->size(), without, spec.seed);
  SPDLD_ASSIGN(const source::Sampler sampler, pipeline.sampler(spec.seed));
  return engine::PlanFacts::Padding{
      .without = source::padding_share(plain, *pipeline.lengths, batch),
      .with = source::padding_share(sampler, *pipeline.lengths, batch)};
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

CacheView view_of(const engine::SampleCache::Snapshot& cache) {
  return {.name = cache.name,
          .form = std::string(name_of(cache.form)),
          .where = std::string(name_of(cache.where)),
          .limit_bytes = cache.limit_bytes,
          .bytes = cache.bytes,
          .items = cache.items,
          .hits = cache.hits,
          .misses = cache.misses,
          .changed = cache.changed,
          .corrupt = cache.corrupt,
          .dropped = cache.dropped,
          .saved_s = std::chrono::duration<double>(cache.saved).count(),
          .why = cache.why};
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

// The pipeline's name as a text says it that may be wrong; empty: it says none, or computes it.
std::string name_in(const std::string& yaml) {
  constexpr std::string_view kKey = "pipeline:";
  std::istringstream lines(yaml);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kKey)) continue;
    line = line.substr(kKey.size(), line.find(" #") - kKey.size());
    std::erase_if(line, [](char c) { return std::strchr(" \t\r\"'", c) != nullptr; });
    return line.find('$') == std::string::npos ? line : "";
  }
  return {};
}

}  // namespace

pipeline::Catalogue::Progress SessionService::listing_progress(const Progress& progress) {
  if (!progress) return nullptr;
  return [&progress](std::uint64_t items, const std::string& what, const RunnerPools& pools) {
    return progress(items, 0, what, pools);
  };
}

Result<pipeline::PipelinePtr> SessionService::build(const job::Caller& caller,
                                                    job::ApplyRequest request,
                                                    const pipeline::Catalogue::Progress& progress) {
  request.reader = caller;
  return catalogue_.build(pipelines_.owner_for(caller.uid), request, progress);
}

SessionService::SessionService(Sessions& sessions, Facts facts)
    : sessions_(sessions),
      catalogue_(sessions.deps().catalogue),
      pipelines_(sessions.deps().pipelines),
      facts_(std::move(facts)),
      daemon_values_(facts_.values, sessions.deps().store),
      started_(sessions.deps().clock.now()),
      own_memory_(sessions.deps().clock) {}

void SessionService::configure(const std::map<std::string, std::string>& values) {
  const DaemonValues::Configured told = daemon_values_.configure(values);
  for (const std::string& line : told.changed) spdlog::info("{}", line);
  for (const std::string& line : told.refused) warn(line);
}

void SessionService::warn(std::string warning) {
  spdlog::error("{}", warning);
  MutexLock lock(mutex_);
  // A file that is wrong is so at each reload.
  if (std::find(warnings_.begin(), warnings_.end(), warning) != warnings_.end()) return;
  if (warnings_.size() == kMaxSessionWarnings) warnings_.erase(warnings_.begin());
  warnings_.push_back(std::move(warning));
}

void SessionService::restore_one(const store::StoredPipeline& stored) {
  const auto failed = [&](const Status& why) {
    warn("pipeline '" + stored.id + "' was not restored: " + why.message());
    // What it was applied with must not give way to what is there now.
    if (!stored.request.dataset.empty())
      pipelines_.put_lost(
          stored.id, stored.owner, stored.version,
          why.with_context("pipeline '" + stored.id + "' was applied, and cannot be opened again"));
  };
  auto built = catalogue_.recall(job::owner_of(stored.id, stored.owner), stored.request,
                                 {.version = stored.version});
  if (!built) return failed(built.error());
  const auto put = pipelines_.put(stored.owner, *built, stored.version);
  if (!put) return failed(put.error());
  log::info({.pipeline = stored.id}, "pipeline '{}' version {} restored: {}", stored.id,
            (*put)->version, counted((*put)->source->size(), "item"));
  if ((*put)->request.dataset == stored.request.dataset) return;
  // The old listing was never written to disk, so the dataset was listed anew. The new listing
  // counts from now on.
  if (Status kept = sessions_.deps().store.put_pipeline(stored_pipeline(**put),
                                                        stored_revision(**put, stored.owner, {}));
      !kept.ok())
    warn(kept.message());
}

void SessionService::restore() {
  for (const std::string& warning : sessions_.deps().store.warnings()) spdlog::error("{}", warning);
  auto kept = sessions_.deps().store.pipelines();
  if (!kept) {
    warn("the pipelines that were applied before are not restored: " + kept.error().message());
    kept = std::vector<store::StoredPipeline>();
  }
  // A pipeline may take its classes from another one, whatever their names: those that take none
  // come first.
  const auto borrows = [](const store::StoredPipeline& stored) {
    return stored.request.yaml.find("from:") != std::string::npos;
  };
  for (const bool second : {false, true}) {
    for (const store::StoredPipeline& stored : *kept) {
      if (borrows(stored) == second) restore_one(stored);
    }
  }
  if (Status jobs =
          sessions_.records().restore([this](std::string warning) { warn(std::move(warning)); });
      !jobs.ok())
    warn("the jobs that were declared before are not restored: " + jobs.message());
  for (std::string& warning : daemon_values_.restore()) warn(std::move(warning));
  if (Status drain = sessions_.drain().restore(); !drain.ok())
    warn("whether the daemon is drained is not known, so that it takes new jobs: " +
         drain.message());
}

void SessionService::reload(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    std::string name;
    const Status status = apply_file(file, name);
    if (status.ok()) {
      pipelines_.accept(file);
      continue;
    }
    const std::string why =
        status.message().starts_with(file) ? status.message() : file + ": " + status.message();
    pipelines_.put_refused(file, std::move(name), why);
    warn(why);
  }
}

// A file that has not changed since it was applied is left alone: what operators applied under the
// same name since then stays.
Status SessionService::apply_file(const std::string& file, std::string& name) {
  job::ApplyRequest request;
  request.file = file;
  SPDLD_ASSIGN(request.yaml, spec::read_text_file(file));
  name = name_in(request.yaml);
  request.env = environment_for(request.yaml);
  const job::Caller self{source::Access::trusted(), getpid()};
  const job::PipelineOwner owner{.uid = shown_uid(self.uid), .shared = true};
  request.reader = self;
  SPDLD_ASSIGN(const pipeline::PipelineText text, catalogue_.text_of(owner.uid, request, nullptr));
  store::Store& store = sessions_.deps().store;
  const bool known = pipelines_.has(text.name);
  const auto applied = store.file_digest(file);
  if (known && !applied) return applied.error();
  if (known && *applied == text.digest) return {};
  SPDLD_ASSIGN(const pipeline::PipelinePtr built, catalogue_.build(owner, request, nullptr));
  auto done = sessions_.swaps().change(self, built, "from " + file, std::nullopt, nullptr);
  if (done) return store.put_file(file, text.digest);
  // It can be read at each start, whatever can be kept; the next one is to apply it again.
  SPDLD_ASSIGN(const pipeline::PipelinePtr put, pipelines_.put(self.uid, built));
  Status kept = store.put_file(file, {});
  return kept.with_context("pipeline '" + put->id() + "' is applied until the daemon restarts");
}

PipelineView SessionService::view(const job::Caller& caller,
                                  const pipeline::PipelineVersion& pipeline) const {
  std::uint32_t jobs = 0;
  for (const auto& [version, running] : sessions_.table().jobs_on(pipeline.id())) jobs += running;
  return {.name = pipelines_.name_for(caller.uid, pipeline.id()),
          .version = pipeline.version,
          .owner = pipeline.owner.uid,
          .state = "ready",
          .error = {},
          .indexed = pipeline.source->size(),
          .items = pipeline.source->size(),
          .classes = pipeline.classes,
          .order_digest = pipeline.order().digest(),
          .content_digest = pipeline.content_digest,
          .batch_size = static_cast<std::uint64_t>(pipeline.plan->spec.batch.size),
          .tensors = pipeline.plan->tensors,
          .jobs = jobs,
          .staying = {},
          .warnings = pipeline.warnings()};
}

std::vector<GpuView> SessionService::gpus() const {
  std::vector<GpuView> views;
  for (delivery::DeviceFacts& facts : sessions_.deps().devices.facts())
    views.push_back({.uuid = std::move(facts.uuid),
                     .name = std::move(facts.name),
                     .mig = facts.mig,
                     .compute_mode = std::move(facts.compute_mode),
                     .memory_bytes = facts.total_bytes,
                     .why_not = std::move(facts.why_not),
                     .why_no_pinning = std::move(facts.why_no_pinning),
                     .context = facts.context,
                     .arena_used = facts.arena_bytes,
                     .arena_budget = facts.budget_bytes});
  return views;
}

Result<PipelineView> SessionService::apply(const job::Caller& caller,
                                           const job::ApplyRequest& request,
                                           const Progress& progress) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr built,
               build(caller, request, listing_progress(progress)));
  SPDLD_ASSIGN(std::vector<std::string> found,
               sessions_.new_pipelines().check(caller, built, true, listing_progress(progress)));
  const std::string no_step = engine::no_step_text(*built->plan, built->source->size(), 1);
  if (!no_step.empty()) found.push_back("pipeline '" + built->name() + "': " + no_step);
  if (request.dry_run) {
    SPDLD_ASSIGN(const pipeline::PipelinePtr numbered, pipelines_.numbered(caller.uid, built));
    PipelineView would = view(caller, *numbered);
    would.warnings.insert(would.warnings.end(), found.begin(), found.end());
    return would;
  }
  SPDLD_ASSIGN(const Swap done, sessions_.swaps().change(caller, built, {}, std::nullopt, nullptr));
  SwapRequest changing;
  for (const auto& [name, value] : request.vars) changing.vars.insert(name);
  PipelineView applied = view(caller, *done.pipeline);
  applied.warnings.insert(applied.warnings.end(), found.begin(), found.end());
  applied.staying =
      sessions_.planner().staying(caller, done.pipeline, changing, listing_progress(progress));
  return applied;
}

Result<ExplainView> SessionService::explain(const job::Caller& caller,
                                            const job::ApplyRequest& request,
                                            const Progress& progress) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr built,
               build(caller, request, listing_progress(progress)));
  const SessionsDeps& deps = sessions_.deps();
  const auto credits = static_cast<std::uint32_t>(built->plan->spec.delivery.prefetch);
  const bool bound = deps.budget.share_bytes(caller.uid).has_value();
  SPDLD_ASSIGN(const Padding padding, padding_of(*built));
  const engine::ExplainContext context{
      .items = built->source->size(),
      .classes = built->source->classes().size(),
      .num_shards = 1,
      .credits = credits,
      .cpu_threads = deps.executor.threads(),
      .io_threads = static_cast<int>(facts_.io_threads()),
      .arena_bytes = delivery::arena_bytes(sessions_.new_pipelines().arena_shape(*built->plan)),
      .arena_used = bound ? deps.budget.used_bytes(caller.uid) : deps.budget.used_bytes(),
      .arena_budget = deps.budget.limit_bytes(caller.uid),
      .arena_kind = std::string(delivery::arena_kind_name(deps.arena_kind)),
      .cache = built->cache,
      .padding = padding,
      .on_gpu = sessions_.new_pipelines().on_gpu(*built->plan)};
  return ExplainView{.facts = engine::plan_facts(*built->plan, context),
                     .text = engine::explain(*built->plan, context)};
}

Status SessionService::validate(const job::Caller& caller, const job::ApplyRequest& request,
                                const Progress& progress) {
  const auto built = build(caller, request, listing_progress(progress));
  return built ? Status() : built.error();
}

Result<pipeline::PreviewView> SessionService::preview(const job::Caller& caller,
                                                      const job::ApplyRequest& request,
                                                      std::uint64_t rows,
                                                      const Progress& progress) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr built,
               build(caller, request, listing_progress(progress)));
  return make_preview(caller.uid, *built, rows, sessions_.trials(), listing_progress(progress));
}

Result<PipelineView> SessionService::pipeline(const job::Caller& caller, std::string_view name) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr found, pipelines_.named(caller.uid, std::string(name)));
  return view(caller, *found);
}

std::vector<PipelineView> SessionService::pipelines(const job::Caller& caller) {
  std::vector<PipelineView> views;
  for (const pipeline::PipelinePtr& pipeline : pipelines_.visible_to(caller.uid))
    views.push_back(view(caller, *pipeline));
  return views;
}

Result<std::string> SessionService::pipeline_text(const job::Caller& caller,
                                                  std::string_view name) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr found, pipelines_.named(caller.uid, std::string(name)));
  return found->request.yaml;
}

Result<ClassesView> SessionService::classes(const job::Caller& caller, std::string_view name,
                                            const Progress& progress) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr found, pipelines_.named(caller.uid, std::string(name)));
  // They are names of directories or lines of a file, which the caller must be allowed to read.
  SPDLD_ASSIGN(const pipeline::PipelinePtr readable,
               catalogue_.variant(found, {.reader = caller}, listing_progress(progress)));
  const std::span<const std::int64_t> ids = readable->source->category_ids();
  return ClassesView{.names = readable->source->classes(),
                     .category_ids = {ids.begin(), ids.end()}};
}

Status SessionService::delete_pipeline(const job::Caller& caller, std::string_view name) {
  SPDLD_ASSIGN(const std::string id, pipelines_.resolve(caller.uid, std::string(name)));
  SPDLD_TRY(pipelines_.check_remove(caller.uid, id));
  std::uint32_t jobs = 0;
  for (const auto& [version, running] : sessions_.table().jobs_on(id)) jobs += running;
  if (jobs > 0)
    return Status(Code::kFailedPrecondition,
                  "pipeline '" + pipelines_.name_for(caller.uid, id) + "' is run by " +
                      counted(jobs, "job") + ": delete " +
                      (jobs == 1 ? "it or let it" : "them or let them") + " end first");
  JobTable& table = sessions_.table();
  MutexLock writing(table.records());
  (void)sessions_.keeper().keep_brought(table);
  SPDLD_TRY(sessions_.deps().store.remove_pipeline(id));
  SPDLD_TRY(pipelines_.remove(caller.uid, id));
  log::info({.pipeline = id, .uid = caller.uid}, "pipeline '{}' deleted by uid {}", id, caller.uid);
  return {};
}

SwapView SessionService::view(const job::Caller& caller, const Swap& swap) const {
  return {.pipeline = view(caller, *swap.pipeline),
          .jobs = shown_to(pipelines_, caller, swap.jobs),
          .unchanged = swap.unchanged};
}

bool SessionService::is_run(const pipeline::PipelineVersion& pipeline) const {
  return !sessions_.table().jobs_on(pipeline.id()).empty();
}

Result<SwapView> SessionService::swap(const job::Caller& caller, const job::ApplyRequest& request,
                                      const SwapRequest& jobs, const Progress& progress) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr built,
               build(caller, request, listing_progress(progress)));
  SPDLD_ASSIGN(
      const std::vector<std::string> found,
      sessions_.new_pipelines().check(caller, built, !is_run(*built), listing_progress(progress)));
  const SwapRequest changing = with_vars(jobs, request);
  SPDLD_ASSIGN(
      const Swap done,
      request.dry_run
          ? sessions_.swaps().ask(caller, built, changing, listing_progress(progress))
          : sessions_.swaps().change(caller, built, {}, changing, listing_progress(progress)));
  return with_warnings(view(caller, done), found);
}

Result<std::vector<RevisionView>> SessionService::history(const job::Caller& caller,
                                                          std::string_view pipeline) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr current,
               pipelines_.named(caller.uid, std::string(pipeline)));
  SPDLD_ASSIGN(const std::vector<store::StoredRevision> revisions,
               sessions_.deps().store.history(current->id()));
  const auto jobs = sessions_.table().jobs_on(current->id());
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
               pipelines_.named(caller.uid, std::string(pipeline)));
  SPDLD_ASSIGN(const std::vector<store::StoredRevision> revisions,
               sessions_.deps().store.history(current->id()));
  const std::string name = pipelines_.name_for(caller.uid, current->id());
  const store::StoredRevision* target = nullptr;
  if (version) {
    target = find_revision(revisions, *version);
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
               sessions_.new_pipelines().check(caller, built, !jobs || !is_run(*built), listing));
  const std::string note = rollback_note(target->version);
  std::optional<SwapRequest> changing = jobs;
  if (changing) changing->again = target->version;
  SPDLD_ASSIGN(const Swap done,
               sessions_.swaps().roll_back(caller, built, note, changing, listing));
  SwapView told = with_warnings(view(caller, done), found);
  told.repeats = target->version;
  if (done.dropped) told.repeats = done.unchanged ? 0 : done.pipeline->version;
  if (changing) return told;
  SwapRequest would;
  would.again = target->version;
  told.pipeline.staying = sessions_.planner().staying(caller, done.pipeline, would, listing);
  return told;
}

Result<JobName> SessionService::job_name(const job::Caller& caller, std::string_view job,
                                         std::string_view pipeline) const {
  JobName name{.job = std::string(job)};
  const std::size_t slash = name.job.find('/');
  if (slash != std::string::npos && pipelines_.is_admin(caller.uid)) {
    if (const auto user = find_user(name.job.substr(0, slash)))
      name.of_user = {.uid = *user, .job = name.job.substr(slash + 1)};
  }
  if (pipeline.empty()) return name;
  const std::string text(pipeline);
  SPDLD_ASSIGN(name.pipelines, pipelines_.known_ids(caller.uid, text));
  // As everywhere, one's own pipeline hides the shared one; a job may outlive its pipeline.
  if (!name.pipelines.empty()) {
    name.pipelines.resize(1);
  } else {
    SPDLD_ASSIGN(name.pipelines, pipelines_.ids(caller.uid, text));
  }
  return name;
}

Result<job::JobView> SessionService::create_job(const job::Caller& caller,
                                                const JobRequest& request,
                                                const Progress& progress) {
  return shown_to(pipelines_, caller,
                  sessions_.operate().create_job(caller, request, listing_progress(progress)));
}

Result<job::JobView> SessionService::job(const job::Caller& caller, std::string_view job,
                                         std::string_view pipeline) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(pipelines_, caller, sessions_.reports().job(caller, name));
}

std::vector<job::JobView> SessionService::jobs(const job::Caller& caller) {
  return shown_to(pipelines_, caller, sessions_.reports().jobs(caller));
}

Result<std::vector<DiagnosisView>> SessionService::diagnose(const job::Caller& caller,
                                                            std::string_view job,
                                                            std::string_view pipeline) {
  std::optional<JobName> name;
  if (!job.empty()) {
    SPDLD_ASSIGN(name, job_name(caller, job, pipeline));
  }
  SPDLD_ASSIGN(std::vector<DiagnosisFacts> all, sessions_.reports().diagnosis_facts(caller, name));
  const DaemonView daemon = daemon_facts(caller);
  std::vector<DiagnosisView> views;
  for (DiagnosisFacts& facts : all) {
    facts.job = shown_to(pipelines_, caller, std::move(facts.job));
    if (job.empty() && !pipeline.empty() && facts.job.pipeline != pipeline) continue;
    views.push_back(session::diagnose(facts, daemon));
  }
  return views;
}

Result<StepView> SessionService::show(const job::Caller& caller, std::string_view job,
                                      std::string_view pipeline, job::StepAt at,
                                      std::uint32_t shard, const Progress& progress) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  SPDLD_ASSIGN(JobStep step, sessions_.reports().step(caller, name, at, shard));
  const pipeline::Catalogue::Progress listing = listing_progress(progress);
  // The data is read with the rights of the caller, who gets to see it.
  SPDLD_ASSIGN(const pipeline::PipelinePtr readable,
               catalogue_.variant(step.phase->pipeline, {.reader = caller}, listing));
  auto batch = pipeline::show_step(caller.uid, *readable, step.phase->seed, at, step.rows,
                                   sessions_.trials(), listing);
  if (!batch)
    return tl::unexpected<Status>(batch.error().with_context(place_text(at) + " of job '" +
                                                             step.view.job + "' cannot be made"));
  step.view.batch = *std::move(batch);
  return shown_to(pipelines_, caller, std::move(step.view));
}

Result<HeadspaceView> SessionService::headspace(const job::Caller& caller, std::string_view job,
                                                std::string_view pipeline, std::uint32_t steps,
                                                const Progress& progress) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(pipelines_, caller,
                  sessions_.headspace().measure(caller, name, steps,
                                                [&progress](std::uint64_t done, std::uint64_t total,
                                                            const std::string& what) {
                                                  return progress(done, total, what, {});
                                                }));
}

std::vector<job::JobView> SessionService::ended_jobs(const job::Caller& caller) {
  std::vector<job::JobView> views;
  for (store::StoredEnd& end : sessions_.reports().ended(caller)) {
    views.push_back(std::move(end.view));
    views.back().end = std::move(end.end);
  }
  return shown_to(pipelines_, caller, std::move(views));
}

Result<job::JobView> SessionService::advance_epoch(const job::Caller& caller, std::string_view job,
                                                   std::string_view pipeline,
                                                   std::optional<std::uint64_t> to) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(pipelines_, caller, sessions_.operate().advance_epoch(caller, name, to));
}

Result<job::JobView> SessionService::seek(const job::Caller& caller, std::string_view job,
                                          std::string_view pipeline, std::uint64_t epoch,
                                          std::uint64_t step) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(pipelines_, caller, sessions_.operate().seek_job(caller, name, {epoch, step}));
}

Result<job::JobView> SessionService::resize_job(const job::Caller& caller, std::string_view job,
                                                std::string_view pipeline,
                                                std::uint32_t num_shards) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(pipelines_, caller, sessions_.operate().resize_job(caller, name, num_shards));
}

Result<job::JobView> SessionService::skip(const job::Caller& caller, std::string_view job,
                                          std::string_view pipeline, std::uint64_t steps) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(pipelines_, caller, sessions_.operate().skip_steps(caller, name, steps));
}

Result<std::vector<LiveValue>> SessionService::tune_job(const job::Caller& caller,
                                                        std::string_view job,
                                                        std::string_view pipeline,
                                                        const TuneRequest& request) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return sessions_.operate().tune_job(caller, name, request);
}

Result<std::vector<LiveValue>> SessionService::tune_daemon(const job::Caller& caller,
                                                           const TuneRequest& request) {
  return daemon_values_.tune(caller, pipelines_.trusted(), request);
}

Result<DeletedJob> SessionService::delete_job(const job::Caller& caller, std::string_view job,
                                              std::string_view pipeline) {
  SPDLD_ASSIGN(const JobName name, job_name(caller, job, pipeline));
  return shown_to(pipelines_, caller, sessions_.operate().delete_job(caller, name));
}

std::vector<SessionView> SessionService::sessions(const job::Caller& caller) {
  return shown_to(pipelines_, caller, sessions_.reports().sessions(caller));
}

Status SessionService::evict(const job::Caller& caller, std::uint64_t session,
                             const std::string& reason) {
  return sessions_.operate().evict(caller, session, reason);
}

std::vector<job::StageView> SessionService::stages(const job::Caller& caller) {
  return shown_to(pipelines_, caller, sessions_.reports().stages(caller));
}

std::vector<job::StageView> SessionService::ended_stages(const job::Caller& caller) {
  std::vector<job::StageView> views;
  for (store::StoredEnd& end : sessions_.reports().ended(caller)) {
    for (job::StageView& stage : end.stages) views.push_back(std::move(stage));
  }
  return shown_to(pipelines_, caller, std::move(views));
}

std::vector<FailureView> SessionService::failures(const job::Caller& caller,
                                                  const std::string& job) {
  return shown_to(pipelines_, caller, sessions_.reports().failures(caller, job));
}

DataPlaneView SessionService::data_plane() const {
  DataPlaneView view;
  const delivery::SlotTable::Counts slots = sessions_.reports().slot_counts();
  view.slots_free = slots.free;
  view.slots_loaned = slots.loaned;
  view.slots_ready = slots.ready;
  view.slots_leased = slots.leased;
  view.slots_retired = slots.retired;
  view.bad_releases = slots.bad_releases;
  const delivery::DataServer* const data = data_.load(std::memory_order_acquire);
  if (data == nullptr) return view;
  const delivery::DataServer::Stats stats = data->stats();
  view.connections = stats.connections;
  view.watched_processes = stats.watched_processes;
  view.accepted = stats.accepted;
  view.refused = stats.refused;
  view.protocol_errors = stats.protocol_errors;
  view.overflows = stats.overflows;
  view.hello_timeouts = stats.hello_timeouts;
  view.accept_failures = stats.accept_failures;
  return view;
}

Result<DrainBegun> SessionService::drain(const job::Caller& caller) {
  return sessions_.drain().begin(caller);
}

Result<std::optional<DrainView>> SessionService::undrain(const job::Caller& caller) {
  return sessions_.drain().end(caller);
}

DaemonView SessionService::daemon(const job::Caller& caller) {
  DaemonView view = daemon_facts(caller);
  view.priority = sessions_.deps().executor.priority();
  view.pss_bytes = own_memory_.bytes();
  view.cpu_pressure = cpu_pressure();
  return view;
}

DaemonView SessionService::daemon_facts(const job::Caller& caller) {
  const SessionsDeps& deps = sessions_.deps();
  const Reports::Totals totals = sessions_.reports().totals();
  DaemonView view{.version = facts_.version,
                  .pid = getpid(),
                  .uptime_s = std::chrono::duration<double>(deps.clock.now() - started_).count(),
                  .cpu_threads = deps.executor.threads(),
                  .io_threads = facts_.io_threads(),
                  .arena_used = deps.budget.used_bytes(),
                  .arena_idle = deps.arenas.idle_bytes(),
                  .arena_budget = deps.budget.limit_bytes(),
                  .arena_kind = std::string(delivery::arena_kind_name(deps.arena_kind)),
                  .arena_note = note_of(deps.arena_kind),
                  .sessions = totals.sessions,
                  .jobs = totals.jobs,
                  .pipelines = static_cast<std::uint32_t>(pipelines_.all().size()),
                  .batches = totals.batches,
                  .rows = totals.rows,
                  .batches_per_s = totals.batches_per_s,
                  .rows_per_s = totals.rows_per_s,
                  .warnings = deps.store.warnings()};
  for (std::string& warning : catalogue_.warnings(caller.uid))
    view.warnings.push_back(std::move(warning));
  for (std::string& warning : sessions_.keeper().warnings())
    view.warnings.push_back(std::move(warning));
  view.data = data_plane();
  view.gpus = gpus();
  view.gpu_driver = deps.devices.driver_text();
  view.no_gpu = deps.devices.why_none();
  for (const engine::SampleCache::Snapshot& cache : catalogue_.cache_snapshots(caller.uid))
    view.caches.push_back(view_of(cache));
  if (facts_.jpeg) view.jpeg = facts_.jpeg();
  // Of other users' data, too.
  if (facts_.storage && pipelines_.is_admin(caller.uid)) view.storage = facts_.storage();
  if (facts_.runners) view.runners = facts_.runners();
  std::erase_if(view.runners, [&](const RunnerView& runner) {
    return runner.owner != caller.uid && !pipelines_.is_admin(caller.uid);
  });
  view.workers = sessions_.reports().workers();
  view.workers_lately = sessions_.reports().workers_lately();
  view.drain = sessions_.drain().view();
  MutexLock lock(mutex_);
  view.warnings.insert(view.warnings.end(), warnings_.begin(), warnings_.end());
  return view;
}

std::vector<UserView> SessionService::users(const job::Caller& caller,
                                            const std::set<uid_t>& also) {
  std::map<uid_t, UserView> users;
  users[caller.uid];
  for (const uid_t uid : also) users[uid];
  const delivery::DataServer* const data = data_.load(std::memory_order_acquire);
  if (data != nullptr) {
    for (const auto& [uid, use] : data->users()) {
      users[uid].connections.used = use.connections;
      users[uid].unattached_bytes.used = use.unattached_bytes;
      users[uid].unread_bytes.used = use.unread_bytes;
    }
  }
  for (const auto& [uid, taken] : catalogue_.listings().users())
    users[shown_uid(uid)].listings.used += static_cast<std::uint64_t>(taken);
  if (const BufferMemory* const buffers = catalogue_.options().buffers.get()) {
    for (const auto& [uid, bytes] : buffers->used()) users[shown_uid(uid)].file_bytes.used += bytes;
  }
  for (const auto& [uid, bytes] : catalogue_.options().memory->used())
    users[shown_uid(uid)].listing_bytes.used += bytes;
  for (const auto& [uid, applied] : pipelines_.applied_by_users())
    users[uid].pipelines.used = applied;
  const SessionsDeps& deps = sessions_.deps();
  for (const auto& [uid, bytes] : deps.budget.used_by_users()) users[uid].arena_bytes.used = bytes;
  sessions_.reports().count_users(users);
  for (const auto& [uid, waiting] : sessions_.attacher().waiting())
    users[uid].attaches.used = waiting;

  std::vector<UserView> views;
  for (auto& [uid, user] : users) {
    if (uid != caller.uid && !pipelines_.is_admin(caller.uid)) continue;
    user.uid = uid;
    user.arena_bytes.limit = deps.budget.share_bytes(uid);
    if (const BufferMemory* const buffers = catalogue_.options().buffers.get())
      user.file_bytes.limit = buffers->limit();
    user.listing_bytes.limit = catalogue_.options().memory->limit(uid);
    user.listings.limit = static_cast<std::uint64_t>(catalogue_.listings().most_per_user());
    if (!pipelines_.trusted().contains(uid)) {
      user.pipelines.limit = pipelines_.pipelines_per_user();
      user.jobs.limit = deps.jobs_per_user;
    }
    if (data != nullptr) {
      const delivery::DataServerOptions& options = data->options();
      user.connections.limit = options.connections.per_user;
      user.unattached_bytes.limit = options.max_unattached_bytes_per_uid;
      user.unread_bytes.limit = options.max_unread_bytes_per_uid;
    }
    views.push_back(user);
  }
  return views;
}

}  // namespace spdld::session
