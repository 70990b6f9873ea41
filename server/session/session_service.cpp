// SPDX-License-Identifier: Apache-2.0
#include "session/session_service.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text/counted.h"
#include "delivery/device_layout.h"
#include "engine/explain.h"
#include "pipeline/preview.h"
#include "session/records.h"
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

// Why the daemon can deliver to none of its GPUs; empty: to one it can.
std::string why_no_gpu(const delivery::Devices& devices) {
  if (std::string why = devices.why_none(); !why.empty()) return why;
  std::string why;
  for (const delivery::DeviceFacts& gpu : devices.facts()) {
    if (gpu.why_not.empty()) return {};
    why += (why.empty() ? "" : "; ") + gpu.name + ": " + gpu.why_not;
  }
  return why;
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

}  // namespace

pipeline::Catalogue::Progress SessionService::listing_progress(const Progress& progress) {
  if (!progress) return nullptr;
  return [&progress](std::uint64_t items, const std::string& what) {
    return progress(items, 0, what);
  };
}

Result<pipeline::PipelinePtr> SessionService::build(const job::Caller& caller,
                                                    job::ApplyRequest request,
                                                    const pipeline::Catalogue::Progress& progress) {
  request.reader = caller;
  return catalogue_.build(catalogue_.owner_for(caller.uid), request, progress);
}

SessionService::SessionService(Sessions& sessions, Facts facts)
    : sessions_(sessions),
      catalogue_(sessions.deps().catalogue),
      swaps_(sessions),
      facts_(std::move(facts)),
      started_(sessions.deps().clock.now()) {
  sessions_.set_replacing(
      [this](const job::Caller& caller, const pipeline::PipelinePtr& pipeline,
             const pipeline::Catalogue::Progress& progress) -> Result<pipeline::PipelinePtr> {
        SPDLD_ASSIGN(const std::vector<std::string> found,
                     check_new(caller, pipeline, true, progress));
        for (const std::string& warning : found) spdlog::warn("{}", warning);
        SPDLD_ASSIGN(Swap done, swaps_.replace(caller, pipeline, "from a loader"));
        return std::move(done.pipeline);
      });
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
      catalogue_.put_lost(
          stored.id, stored.owner, stored.version,
          why.with_context("pipeline '" + stored.id + "' was applied, and cannot be opened again"));
  };
  auto built = catalogue_.build(job::owner_of(stored.id, stored.owner), stored.request, nullptr);
  if (!built) return failed(built.error());
  const auto put = catalogue_.put(stored.owner, std::move(*built), stored.version);
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

void SessionService::restore(const std::vector<std::string>& files) {
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
  reload(files);
  if (Status jobs = sessions_.restore([this](std::string warning) { warn(std::move(warning)); });
      !jobs.ok())
    warn("the jobs that were declared before are not restored: " + jobs.message());
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
  job::ApplyRequest request;
  request.file = file;
  SPDLD_ASSIGN(request.yaml, spec::read_text_file(file));
  request.env = environment_for(request.yaml);
  const job::Caller self{Credentials::own(), getpid()};
  request.reader = source::Access::trusted();
  SPDLD_ASSIGN(const pipeline::PipelineText text, catalogue_.text_of(self.uid, request));
  store::Store& store = sessions_.deps().store;
  const bool known = catalogue_.find(text.name) != nullptr || catalogue_.is_lost(text.name);
  const auto applied = store.file_digest(file);
  if (known && !applied) return applied.error();
  if (known && *applied == text.digest) return {};
  SPDLD_ASSIGN(const pipeline::PipelinePtr built,
               catalogue_.build(catalogue_.owner_for(self.uid), request, nullptr));
  auto done = swaps_.change(self, built, "from " + file, std::nullopt, nullptr);
  if (done) return store.put_file(file, text.digest);
  // It can be read at each start, whatever can be kept; the next one is to apply it again.
  SPDLD_ASSIGN(const pipeline::PipelinePtr put, catalogue_.put(self.uid, built));
  Status kept = store.put_file(file, {});
  return kept.with_context("pipeline '" + put->id() + "' is applied until the daemon restarts");
}

PipelineView SessionService::view(const job::Caller& caller,
                                  const pipeline::PipelineVersion& pipeline) const {
  std::uint32_t jobs = 0;
  for (const auto& [version, running] : sessions_.jobs_on(pipeline.id())) jobs += running;
  return {.name = catalogue_.name_for(caller.uid, pipeline.id()),
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

delivery::ArenaShape SessionService::arena_shape(const engine::Plan& plan) const {
  const auto credits = static_cast<std::uint32_t>(plan.spec.delivery.prefetch);
  return {.kind = sessions_.deps().arena_kind,
          .slot_bytes = plan.layout.slot_bytes(),
          .slot_count = plan.slots_for(credits)};
}

std::optional<engine::PlanFacts::OnGpu> SessionService::on_gpu(const engine::Plan& plan) const {
  const spec::DeliverySpec& wanted = plan.spec.delivery;
  if (wanted.device != spec::DeliverySpec::Device::kCuda) return std::nullopt;
  const delivery::DeviceLayout layout(plan.layout.fields(), plan.layout.rows());
  engine::PlanFacts::OnGpu facts{
      .slots = plan.device_slots_for(static_cast<std::uint32_t>(wanted.prefetch)),
      .slot_bytes = layout.device_bytes(),
      .host_bytes = layout.host_bytes(),
      .budget_bytes = sessions_.deps().devices.budget_bytes(),
      .or_host = wanted.on_unavailable == spec::DeliverySpec::Unavailable::kHost,
      .why_none = why_no_gpu(sessions_.deps().devices)};
  for (const wire::FieldLayout& field : layout.fields()) {
    if ((field.flags & wire::kFieldOnDevice) != 0) facts.fields.emplace_back(field.name);
  }
  return facts;
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

Status SessionService::check_fits(const job::Caller& caller, const engine::Plan& plan) const {
  const delivery::ArenaBudget& budget = sessions_.deps().budget;
  const delivery::ArenaShape shape = arena_shape(plan);
  const std::uint64_t needed = delivery::arena_bytes(shape);
  if (needed <= budget.limit_bytes(caller.uid)) return {};
  return Status(
      Code::kResourceExhausted,
      "pipeline '" + plan.spec.name + "' does not fit: each consumer needs " +
          delivery::format_bytes(needed) + " (" + std::to_string(shape.slot_count) + " slots of " +
          delivery::format_bytes(shape.slot_bytes) + "), and " +
          (budget.share_bytes(caller.uid) ? "your share of arena.budget is " : "arena.budget is ") +
          delivery::format_bytes(budget.limit_bytes(caller.uid)) +
          "; lower batch.size or delivery.prefetch, or have arena.budget raised in the daemon's "
          "configuration");
}

Result<std::vector<std::string>> SessionService::check_fits_gpu(const engine::Plan& plan) const {
  const auto gpu = on_gpu(plan);
  std::vector<std::string> warnings;
  if (!gpu) return warnings;
  if (const std::string no_gpu = engine::no_gpu_text(*gpu); !no_gpu.empty())
    warnings.push_back("pipeline '" + plan.spec.name + "': " + no_gpu);
  if (gpu->fits()) return warnings;
  const std::string why =
      "pipeline '" + plan.spec.name + "' does not fit on a GPU: each consumer needs " +
      delivery::format_bytes(gpu->bytes()) + " there (" + std::to_string(gpu->slots) +
      " slots of " + delivery::format_bytes(gpu->slot_bytes) + "), and cuda.budget is " +
      delivery::format_bytes(gpu->budget_bytes) +
      "; lower batch.size or delivery.prefetch, or have cuda.budget raised in "
      "the daemon's configuration";
  if (!gpu->or_host) return error(Code::kResourceExhausted, why);
  warnings.push_back(why + "; until then its batches lie in main memory");
  return warnings;
}

Result<std::vector<std::string>> SessionService::check_new(
    const job::Caller& caller, const pipeline::PipelinePtr& built, bool makes_batch,
    const pipeline::Catalogue::Progress& progress) {
  std::vector<std::string> nothing;
  SPDLD_ASSIGN(const pipeline::PipelinePtr numbered, catalogue_.numbered(caller.uid, built));
  const pipeline::PipelinePtr current = catalogue_.find(built->id());
  if (current != nullptr && current->version == numbered->version) return nothing;
  SPDLD_TRY(check_fits(caller, *built->plan));
  SPDLD_ASSIGN(std::vector<std::string> warnings, check_fits_gpu(*built->plan));
  if (!makes_batch) return warnings;
  SPDLD_ASSIGN(const std::vector<std::string> found,
               sessions_.trials().first_batch(caller.uid, *built, progress));
  warnings.insert(warnings.end(), found.begin(), found.end());
  return warnings;
}

Result<PipelineView> SessionService::apply(const job::Caller& caller,
                                           const job::ApplyRequest& request,
                                           const Progress& progress) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr built,
               build(caller, request, listing_progress(progress)));
  SPDLD_ASSIGN(std::vector<std::string> found,
               check_new(caller, built, true, listing_progress(progress)));
  const std::string no_step = engine::no_step_text(*built->plan, built->source->size(), 1);
  if (!no_step.empty()) found.push_back("pipeline '" + built->name() + "': " + no_step);
  if (request.dry_run) {
    SPDLD_ASSIGN(const pipeline::PipelinePtr numbered, catalogue_.numbered(caller.uid, built));
    PipelineView would = view(caller, *numbered);
    would.warnings.insert(would.warnings.end(), found.begin(), found.end());
    return would;
  }
  SPDLD_ASSIGN(const Swap done, swaps_.change(caller, built, {}, std::nullopt, nullptr));
  SwapRequest changing;
  for (const auto& [name, value] : request.vars) changing.vars.insert(name);
  PipelineView applied = view(caller, *done.pipeline);
  applied.warnings.insert(applied.warnings.end(), found.begin(), found.end());
  applied.staying = sessions_.staying(caller, done.pipeline, changing, listing_progress(progress));
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
      .arena_bytes = delivery::arena_bytes(arena_shape(*built->plan)),
      .arena_used = bound ? deps.budget.used_bytes(caller.uid) : deps.budget.used_bytes(),
      .arena_budget = deps.budget.limit_bytes(caller.uid),
      .arena_kind = std::string(delivery::arena_kind_name(deps.arena_kind)),
      .cache = built->cache,
      .padding = padding,
      .on_gpu = on_gpu(*built->plan)};
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
  SPDLD_ASSIGN(const pipeline::PipelinePtr found, catalogue_.named(caller.uid, std::string(name)));
  return view(caller, *found);
}

std::vector<PipelineView> SessionService::pipelines(const job::Caller& caller) {
  std::vector<PipelineView> views;
  for (const pipeline::PipelinePtr& pipeline : catalogue_.visible_to(caller.uid))
    views.push_back(view(caller, *pipeline));
  return views;
}

Result<std::string> SessionService::pipeline_text(const job::Caller& caller,
                                                  std::string_view name) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr found, catalogue_.named(caller.uid, std::string(name)));
  return found->request.yaml;
}

Result<ClassesView> SessionService::classes(const job::Caller& caller, std::string_view name) {
  SPDLD_ASSIGN(const pipeline::PipelinePtr found, catalogue_.named(caller.uid, std::string(name)));
  // They are names of directories or lines of a file, which the caller must be allowed to read.
  SPDLD_ASSIGN(const pipeline::PipelinePtr readable,
               catalogue_.variant(found, {}, std::nullopt, caller, {}));
  const std::span<const std::int64_t> ids = readable->source->category_ids();
  return ClassesView{.names = readable->source->classes(),
                     .category_ids = {ids.begin(), ids.end()}};
}

Status SessionService::delete_pipeline(const job::Caller& caller, std::string_view name) {
  SPDLD_ASSIGN(const std::string id, catalogue_.resolve(caller.uid, std::string(name)));
  std::uint32_t jobs = 0;
  for (const auto& [version, running] : sessions_.jobs_on(id)) jobs += running;
  if (jobs > 0)
    return Status(Code::kFailedPrecondition,
                  "pipeline '" + catalogue_.name_for(caller.uid, id) + "' is run by " +
                      counted(jobs, "job") + ": delete " +
                      (jobs == 1 ? "it or let it" : "them or let them") + " end first");
  MutexLock writing(sessions_.records());
  (void)sessions_.keep_brought();
  SPDLD_TRY(catalogue_.check_remove(caller.uid, id));
  SPDLD_TRY(sessions_.deps().store.remove_pipeline(id));
  SPDLD_TRY(catalogue_.remove(caller.uid, id));
  log::info({.pipeline = id, .uid = caller.uid}, "pipeline '{}' deleted by uid {}", id, caller.uid);
  return {};
}

DataPlaneView SessionService::data_plane() const {
  DataPlaneView view;
  const delivery::SlotTable::Counts slots = sessions_.slot_counts();
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

DaemonView SessionService::daemon(const job::Caller& caller) {
  const SessionsDeps& deps = sessions_.deps();
  const Sessions::Totals totals = sessions_.totals();
  DaemonView view{.version = facts_.version,
                  .pid = getpid(),
                  .uptime_s = std::chrono::duration<double>(deps.clock.now() - started_).count(),
                  .cpu_threads = deps.executor.threads(),
                  .io_threads = facts_.io_threads,
                  .arena_used = deps.budget.used_bytes(),
                  .arena_idle = deps.arenas.idle_bytes(),
                  .arena_budget = deps.budget.limit_bytes(),
                  .arena_kind = std::string(delivery::arena_kind_name(deps.arena_kind)),
                  .arena_note = note_of(deps.arena_kind),
                  .sessions = totals.sessions,
                  .jobs = totals.jobs,
                  .pipelines = static_cast<std::uint32_t>(catalogue_.all().size()),
                  .batches = totals.batches,
                  .rows = totals.rows,
                  .batches_per_s = totals.batches_per_s,
                  .rows_per_s = totals.rows_per_s,
                  .warnings = deps.store.warnings()};
  for (std::string& warning : catalogue_.warnings(caller.uid))
    view.warnings.push_back(std::move(warning));
  for (std::string& warning : sessions_.warnings()) view.warnings.push_back(std::move(warning));
  view.data = data_plane();
  view.gpus = gpus();
  view.gpu_driver = deps.devices.driver_text();
  view.no_gpu = deps.devices.why_none();
  for (const engine::SampleCache::Snapshot& cache : catalogue_.cache_snapshots(caller.uid))
    view.caches.push_back(view_of(cache));
  if (facts_.jpeg) view.jpeg = facts_.jpeg();
  MutexLock lock(mutex_);
  view.warnings.insert(view.warnings.end(), warnings_.begin(), warnings_.end());
  return view;
}

}  // namespace spdld::session
