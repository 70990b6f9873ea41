// SPDX-License-Identifier: Apache-2.0
#include "control/convert.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>

#include "base/text/utf8.h"

namespace spdld::control {
namespace {

std::string_view kind_name(FieldKind kind) {
  switch (kind) {
    case FieldKind::kDense: return "dense";
    case FieldKind::kRagged: return "ragged";
    case FieldKind::kBytes: return "bytes";
  }
  return "unknown";
}

std::string_view shuffle_name(Shuffle::Kind kind) {
  switch (kind) {
    case Shuffle::Kind::kNone: return "none";
    case Shuffle::Kind::kGlobal: return "global";
    case Shuffle::Kind::kBlock: return "block";
  }
  return "unknown";
}

void fill_in(v1::PlanOrder* message, const engine::PlanFacts& facts) {
  const Shuffle& shuffle = facts.shuffle;
  message->set_shuffle(std::string(shuffle_name(shuffle.kind)));
  if (shuffle.bucket && facts.padding) {
    v1::PlanBucket* const bucket = message->mutable_bucket();
    bucket->set_by(utf8(shuffle.bucket->by));
    bucket->set_window(shuffle.bucket->window);
    bucket->set_run(shuffle.bucket->run);
    bucket->set_padding_without(facts.padding->without);
    bucket->set_padding_with(facts.padding->with);
  }
  if (shuffle.kind != Shuffle::Kind::kBlock) return;
  message->set_block(shuffle.block);
  message->set_interleave(shuffle.interleave);
}

void fill_in(v1::PlanBatch* message, const engine::PlanFacts& facts) {
  message->set_rows(facts.batch_rows);
  message->set_slot_bytes(facts.slot_bytes);
  for (const TensorSpec& tensor : facts.tensors) {
    control::fill(message->add_tensors(), tensor);
    if (tensor.kind == FieldKind::kBytes) message->set_max_bytes(facts.max_bytes);
  }
}

void fill_in(v1::PlanArenas* message, const engine::PlanFacts& facts) {
  message->set_kind(facts.arena_kind);
  message->set_credits(facts.credits);
  message->set_slots(facts.slots);
  message->set_consumer_bytes(facts.arena_bytes);
  message->set_needed_bytes(facts.needed_bytes);
  message->set_used_bytes(facts.used_bytes);
  message->set_budget_bytes(facts.budget_bytes);
  message->set_fits(facts.missing_bytes == 0);
  message->set_missing_bytes(facts.missing_bytes);
}

void fill_in(v1::PlanGpu* message, const engine::PlanFacts::OnGpu& gpu) {
  message->set_slots(gpu.slots);
  message->set_slot_bytes(gpu.slot_bytes);
  message->set_consumer_bytes(gpu.bytes());
  message->set_host_slot_bytes(gpu.host_bytes);
  for (const std::string& field : gpu.fields) message->add_fields(utf8(field));
  message->set_budget_bytes(gpu.budget_bytes);
  message->set_fits(gpu.fits());
}

void fill_in(v1::PlanCache* message, const engine::PlanFacts::Cache& cache) {
  message->set_form(cache.form);
  message->set_where(cache.where);
  message->set_limit_bytes(cache.limit_bytes);
  message->set_probed_items(cache.probed_items);
  message->set_item_bytes(cache.item_bytes);
  message->set_held_items(cache.held_items);
  message->set_spared_us(cache.spared_us);
  message->set_hit_us(cache.hit_us);
  message->set_saved_us(cache.saved_us);
  if (cache.payback_epochs) message->set_payback_epochs(*cache.payback_epochs);
  message->set_used(cache.used);
  message->set_why_not(utf8(cache.why_not));
  message->set_better_form(cache.better_form);
  message->set_better_saved_us(cache.better_saved_us);
}

Status check_weight(const std::string& job, double weight) {
  if (std::isfinite(weight) && weight > 0) return Status();
  return Status(Code::kInvalidArgument,
                fmt::format("job '{}': weight is {}; it must be a number above 0 (a job has 1 "
                            "unless told otherwise)",
                            job, weight));
}

void fill_in(v1::StepAt* message, const session::StepAt& at) {
  message->set_epoch(at.epoch);
  message->set_step(at.step);
}

}  // namespace

Result<session::ApplyRequest> apply_request(const v1::PipelineText& text, bool dry_run) {
  if (text.yaml().empty())
    return error(Code::kInvalidArgument,
                 "the request holds no pipeline: send its YAML as text.yaml");
  const std::string& file = text.file();
  if (!file.empty() && file != "-" && file[0] != '/') {
    return error(Code::kInvalidArgument,
                 fmt::format("file '{}' is relative, and the daemon cannot know to what: send its "
                             "absolute path, or '-' for a text without a file",
                             file));
  }
  session::ApplyRequest request;
  request.yaml = text.yaml();
  request.file = file.empty() ? "-" : file;
  request.vars.insert(text.vars().begin(), text.vars().end());
  request.env.insert(text.env().begin(), text.env().end());
  request.dry_run = dry_run;
  return request;
}

Result<session::SwapRequest> swap_request(const v1::SwapRequest& message) {
  const auto refuse = [](std::string_view why) {
    return error(Code::kInvalidArgument, fmt::format("the swap {}", why));
  };
  if (message.job().empty() && !message.all_jobs())
    return refuse("names no job: set swap.job, or swap.all_jobs for all on the pipeline");
  if (!message.job().empty() && message.all_jobs())
    return refuse("names a job and asks for all: set either swap.job or swap.all_jobs");
  session::SwapRequest request;
  request.job = message.job();
  request.allow_schema_change = message.allow_schema_change();
  switch (message.at()) {
    case v1::SWAP_POINT_UNSPECIFIED:
    case v1::SWAP_POINT_NEXT_EPOCH: request.at.kind = session::SwapAt::Kind::kNextEpoch; break;
    case v1::SWAP_POINT_NOW: request.at.kind = session::SwapAt::Kind::kNow; break;
    case v1::SWAP_POINT_STEP: request.at.kind = session::SwapAt::Kind::kStep; break;
    default:
      return error(Code::kInvalidArgument,
                   fmt::format("the swap's point is {}, which is none", message.at()));
  }
  const bool absolute = request.at.kind == session::SwapAt::Kind::kStep;
  if (absolute && !message.has_step()) return refuse("is to be at a step: set swap.step");
  if (!absolute && message.has_step())
    return refuse("names a step: set swap.at to SWAP_POINT_STEP, or leave swap.step out");
  request.at.step = {message.step().epoch(), message.step().step()};
  return request;
}

Result<session::JobRequest> job_request(const v1::CreateJobRequest& message) {
  if (message.job().empty()) return error(Code::kInvalidArgument, "a job needs a name");
  if (message.pipeline().empty()) {
    return error(Code::kInvalidArgument,
                 fmt::format("job '{}' needs a pipeline to run", message.job()));
  }
  if (message.num_shards() == 0) {
    return error(Code::kInvalidArgument,
                 fmt::format("job '{}': num_shards must be at least 1", message.job()));
  }
  session::JobRequest request;
  request.job = message.job();
  request.pipeline = message.pipeline();
  request.num_shards = message.num_shards();
  request.replicas = message.replicas() == 0 ? 1 : message.replicas();
  if (message.has_seed()) request.seed = message.seed();
  if (message.has_batch_size()) request.batch_size = message.batch_size();
  request.vars.insert(message.vars().begin(), message.vars().end());
  switch (message.epochs()) {
    case v1::EPOCH_MODE_UNSPECIFIED:
    case v1::EPOCH_MODE_AUTO: request.epochs = session::EpochMode::kAuto; break;
    case v1::EPOCH_MODE_MANUAL: request.epochs = session::EpochMode::kManual; break;
    default:
      return error(Code::kInvalidArgument, fmt::format("job '{}': epochs is {}, which no mode has",
                                                       message.job(), message.epochs()));
  }
  request.max_epochs = message.max_epochs();
  const v1::Limits& limits = message.limits();
  if (limits.weight() != 0) {
    SPDLD_TRY(check_weight(message.job(), limits.weight()));
    request.limits.weight = limits.weight();
  }
  // No limit can be said by 0, too, as it is when limits change.
  if (limits.cpus() != 0) request.limits.cpus = limits.cpus();
  if (limits.arena_bytes() != 0) request.limits.bytes = limits.arena_bytes();
  return request;
}

Result<session::LimitChange> limit_change(const v1::LimitRequest& message) {
  session::LimitChange change;
  if (message.has_weight()) {
    SPDLD_TRY(check_weight(message.key().job(), message.weight()));
    change.weight = message.weight();
  }
  if (message.has_cpus()) change.cpus = message.cpus();
  if (message.has_arena_bytes()) change.bytes = message.arena_bytes();
  if (!change.weight && !change.cpus && !change.bytes) {
    return error(Code::kInvalidArgument,
                 fmt::format("job '{}': no limit is to change: set weight, cpus or arena_bytes",
                             message.key().job()));
  }
  return change;
}

void fill(v1::Progress* message, std::uint64_t done, std::uint64_t total, std::string_view what) {
  message->set_done(done);
  message->set_total(total);
  message->set_what(utf8(what));
}

void fill(v1::Tensor* message, const TensorSpec& spec) {
  message->set_name(utf8(spec.name));
  message->set_kind(std::string(kind_name(spec.kind)));
  message->set_dtype(std::string(dtype_name(spec.dtype)));
  for (const std::int64_t extent : spec.shape) message->add_shape(extent);
  message->set_text(spec.text);
}

void fill(v1::Pipeline* message, const session::PipelineView& view) {
  message->set_name(utf8(view.name));
  message->set_version(view.version);
  message->set_owner(view.owner);
  message->set_state(view.state);
  message->set_error(utf8(view.error));
  message->set_indexed(view.indexed);
  message->set_items(view.items);
  message->set_classes(view.classes);
  message->set_order_digest(view.order_digest);
  message->set_content_digest(view.content_digest);
  message->set_batch_size(view.batch_size);
  for (const TensorSpec& tensor : view.tensors) fill(message->add_tensors(), tensor);
  message->set_jobs(view.jobs);
  for (const session::StayingJob& job : view.staying) {
    v1::StayingJob* out = message->add_staying();
    out->set_job(utf8(job.job));
    out->set_version(job.version);
  }
  for (const std::string& warning : view.warnings) message->add_warnings(utf8(warning));
}

void fill(v1::SwapResult* message, const session::SwapView& view) {
  fill(message->mutable_pipeline(), view.pipeline);
  for (const session::JobSwap& job : view.jobs) {
    v1::JobSwap* out = message->add_jobs();
    out->set_job(utf8(job.job));
    out->set_pipeline(utf8(job.pipeline));
    out->set_version(job.version);
    fill_in(out->mutable_from(), job.from);
    out->set_tuned(job.tuned);
    out->set_runs(job.runs);
    for (const session::PlannedChange& change : job.replaces) {
      v1::PlannedChange* replaced = out->add_replaces();
      replaced->set_version(change.version);
      fill_in(replaced->mutable_from(), change.from);
    }
    for (const session::Override& given : job.overrides) {
      v1::Override* override = out->add_overrides();
      override->set_name(utf8(given.name));
      override->set_own(utf8(given.own));
      override->set_given(utf8(given.given));
    }
  }
  message->set_token(view.token);
  message->set_hold_ms(view.hold_ms);
  message->set_unchanged(view.unchanged);
  message->set_repeats(view.repeats);
}

void fill(v1::Revision* message, const session::RevisionView& view) {
  message->set_version(view.version);
  message->set_applied_unix_ms(view.applied_unix_ms);
  message->set_applied_by(view.applied_by);
  message->set_content_digest(view.content_digest);
  message->set_note(utf8(view.note));
  message->set_jobs(view.jobs);
  message->set_current(view.current);
}

void fill(v1::Plan* message, const engine::PlanFacts& facts) {
  message->set_pipeline(utf8(facts.pipeline));
  message->set_items(facts.items);
  message->set_classes(facts.classes);
  fill_in(message->mutable_order(), facts);
  for (const engine::PlanFacts::Task& task : facts.tasks) {
    v1::PlanTask* out = message->add_tasks();
    out->set_stages(utf8(task.stages));
    out->set_pool(task.pool == engine::PlanFacts::Task::Pool::kIo ? "io" : "cpu");
    out->set_concurrency(task.concurrency);
    for (const engine::PlanFacts::FieldStages& field : task.fields) {
      v1::PlanField* const made = out->add_fields();
      made->set_field(utf8(field.field));
      made->set_stages(utf8(field.stages));
    }
  }
  if (facts.image) {
    v1::PlanImage* image = message->mutable_image();
    image->set_layout(facts.image->layout == Layout::kNCHW ? "NCHW" : "NHWC");
    image->set_normalized(facts.image->normalized);
    image->set_resamples(facts.image->resamples);
  }
  fill_in(message->mutable_batch(), facts);
  message->set_num_shards(facts.num_shards);
  message->set_steps_per_epoch(facts.steps_per_epoch);
  fill_in(message->mutable_arenas(), facts);
  if (facts.cache) fill_in(message->mutable_cache(), *facts.cache);
  if (facts.on_gpu) fill_in(message->mutable_gpu(), *facts.on_gpu);
  for (const std::string& warning : facts.warnings) message->add_warnings(utf8(warning));
}

void fill(v1::PreviewHeader* message, const session::PreviewView& view) {
  for (const TensorSpec& tensor : view.tensors) fill(message->add_tensors(), tensor);
  for (const auto& data : view.data) message->add_tensor_bytes(data.size());
  for (const std::int64_t index : view.indices) message->add_indices(index);
  for (const std::string& uri : view.uris) message->add_uris(utf8(uri));
  for (const std::string& name : view.classes) message->add_classes(utf8(name));
  for (std::size_t i = 0; i < view.packed.size(); ++i) {
    v1::PreviewRows& rows = *message->add_packed();
    rows.mutable_begins()->Add(view.packed[i].begins.begin(), view.packed[i].begins.end());
    rows.mutable_shapes()->Add(view.packed[i].shapes.begin(), view.packed[i].shapes.end());
    rows.set_text(view.tensors[i].text);
  }
}

void fill(v1::Job* message, const session::JobView& view) {
  message->set_job(utf8(view.job));
  message->set_pipeline(utf8(view.pipeline));
  message->set_owner(view.owner);
  message->set_pipeline_version(view.pipeline_version);
  message->set_declared(view.declared);
  message->set_num_shards(view.num_shards);
  fill_in(message->mutable_dealt_from(), view.dealt_from);
  message->set_replicas(view.replicas);
  message->set_seed(view.seed);
  message->set_batch_size(view.batch_size);
  message->set_epochs(view.epochs == session::EpochMode::kManual ? v1::EPOCH_MODE_MANUAL
                                                                 : v1::EPOCH_MODE_AUTO);
  message->set_open_epochs(view.open_epochs);
  message->set_max_epochs(view.max_epochs);
  message->set_steps_per_epoch(view.steps_per_epoch);
  message->set_items(view.items);
  message->set_replaced(view.replaced);
  message->set_replace_budget(view.replace_budget);
  for (const session::ShardView& shard : view.shards) {
    v1::Shard* out = message->add_shards();
    out->set_shard(shard.shard);
    out->set_session(shard.session);
    out->set_pid(shard.pid);
    out->set_epoch(shard.epoch);
    out->set_step(shard.step);
    out->set_replica(shard.replica);
  }
  v1::Limits* limits = message->mutable_limits();
  limits->set_weight(view.limits.weight);
  if (view.limits.cpus) limits->set_cpus(*view.limits.cpus);
  if (view.limits.bytes) limits->set_arena_bytes(*view.limits.bytes);
  message->set_arena_bytes(view.arena_bytes);
  message->set_cpu_s(view.cpu_s);
  message->set_shared_rows(view.shared_rows);
  message->set_cache_hits(view.cache_hits);
  message->set_saved_cpu_s(view.saved_cpu_s);
  message->set_rows(view.rows);
  if (view.rows_per_s) message->set_rows_per_s(*view.rows_per_s);
  for (const session::PhaseView& phase : view.phases) {
    v1::Phase* out = message->add_phases();
    fill_in(out->mutable_from(), phase.from);
    out->set_pipeline_version(phase.pipeline_version);
    out->set_batch_size(phase.batch_size);
    for (const auto& [name, value] : phase.vars) (*out->mutable_vars())[utf8(name)] = utf8(value);
  }
  v1::Ledger* ledger = message->mutable_ledger();
  fill_in(ledger->mutable_at(), view.ledger.at);
  ledger->set_position(view.ledger.position);
  ledger->set_kept_unix_ms(view.ledger.kept_unix_ms);
  ledger->set_conflict(utf8(view.ledger.conflict));
  for (const session::SeekView& seek : view.seeks) {
    v1::Seek* out = message->add_seeks();
    fill_in(out->mutable_from(), seek.from);
    fill_in(out->mutable_to(), seek.to);
  }
  if (!view.end) return;
  v1::JobEnd* end = message->mutable_end();
  end->set_unix_ms(view.end->unix_ms);
  end->set_how(utf8(view.end->how));
  fill_in(end->mutable_at(), view.end->at);
}

void fill(v1::Session* message, const session::SessionView& view) {
  message->set_id(view.id);
  message->set_uid(view.uid);
  message->set_pid(view.pid);
  message->set_client(utf8(view.client));
  message->set_job(utf8(view.job));
  message->set_pipeline(utf8(view.pipeline));
  message->set_shard(view.shard);
  message->set_num_shards(view.num_shards);
  message->set_epoch(view.epoch);
  message->set_step(view.step);
  message->set_credits(view.credits);
  message->set_leases(view.leases);
  message->set_ready(view.ready);
  if (view.rows_per_s) message->set_rows_per_s(*view.rows_per_s);
  message->set_batches(view.batches);
  message->set_arena_bytes(view.arena_bytes);
  message->set_gpu(view.gpu);
  message->set_replica(view.replica);
  message->set_pipeline_version(view.pipeline_version);
  message->set_host(utf8(view.host));
  message->set_host_pid(view.host_pid);
  message->set_command(utf8(view.command));
  message->set_waited_s(view.waited_s);
  message->set_waits(view.waits);
}

void fill(v1::DataPlane* message, const session::DataPlaneView& view) {
  message->set_connections(view.connections);
  message->set_watched_processes(view.watched_processes);
  message->set_accepted(view.accepted);
  message->set_refused(view.refused);
  message->set_protocol_errors(view.protocol_errors);
  message->set_overflows(view.overflows);
  message->set_hello_timeouts(view.hello_timeouts);
  message->set_accept_failures(view.accept_failures);
  message->set_slots_free(view.slots_free);
  message->set_slots_loaned(view.slots_loaned);
  message->set_slots_ready(view.slots_ready);
  message->set_slots_leased(view.slots_leased);
  message->set_slots_retired(view.slots_retired);
  message->set_bad_releases(view.bad_releases);
}

void fill(v1::JpegImages* message, const JpegImages& images) {
  message->set_indexed(images.indexed);
  message->set_from_begin(images.from_begin);
  message->set_by_libjpeg(images.by_libjpeg);
  message->set_by_coefficients(images.by_coefficients);
  message->set_recoded(images.recoded);
}

void fill(v1::JpegIndex* message, const session::JpegView& view) {
  message->set_limit_bytes(view.limit_bytes);
  message->set_bytes(view.bytes);
  message->set_files(view.files);
  message->set_refused(view.refused);
  message->set_contradicted(view.contradicted);
  message->set_compared(view.compared);
  message->set_different(view.different);
  fill(message->mutable_images(), view.images);
}

void fill(v1::SampleCache* message, const session::CacheView& view) {
  message->set_name(utf8(view.name));
  message->set_form(view.form);
  message->set_where(view.where);
  message->set_limit_bytes(view.limit_bytes);
  message->set_bytes(view.bytes);
  message->set_items(view.items);
  message->set_hits(view.hits);
  message->set_misses(view.misses);
  message->set_changed(view.changed);
  message->set_corrupt(view.corrupt);
  message->set_dropped(view.dropped);
  message->set_saved_s(view.saved_s);
  message->set_why(utf8(view.why));
}

void fill(v1::Gpu* message, const session::GpuView& view) {
  message->set_uuid(view.uuid);
  message->set_name(utf8(view.name));
  message->set_mig(view.mig);
  message->set_compute_mode(view.compute_mode);
  message->set_memory_bytes(view.memory_bytes);
  message->set_deliverable(view.why_not.empty());
  message->set_why_not(utf8(view.why_not));
  message->set_why_no_pinning(utf8(view.why_no_pinning));
  message->set_context(view.context);
  message->set_arena_used(view.arena_used);
  message->set_arena_budget(view.arena_budget);
}

void fill(v1::Daemon* message, const session::DaemonView& view) {
  message->set_version(view.version);
  message->set_pid(view.pid);
  message->set_uptime_s(view.uptime_s);
  message->set_cpu_threads(view.cpu_threads);
  message->set_io_threads(view.io_threads);
  message->set_arena_used(view.arena_used);
  message->set_arena_idle(view.arena_idle);
  message->set_arena_budget(view.arena_budget);
  message->set_arena_kind(view.arena_kind);
  message->set_arena_note(utf8(view.arena_note));
  message->set_sessions(view.sessions);
  message->set_jobs(view.jobs);
  message->set_pipelines(view.pipelines);
  message->set_batches(view.batches);
  message->set_rows(view.rows);
  if (view.batches_per_s) message->set_batches_per_s(*view.batches_per_s);
  if (view.rows_per_s) message->set_rows_per_s(*view.rows_per_s);
  for (const std::string& warning : view.warnings) message->add_warnings(utf8(warning));
  fill(message->mutable_data(), view.data);
  for (const session::CacheView& cache : view.caches) fill(message->add_caches(), cache);
  fill(message->mutable_jpeg(), view.jpeg);
  for (const session::GpuView& gpu : view.gpus) fill(message->add_gpus(), gpu);
  message->set_gpu_driver(view.gpu_driver);
  message->set_no_gpu(utf8(view.no_gpu));
}

void fill(v1::Use* message, const session::Use& use) {
  message->set_used(use.used);
  if (use.limit) message->set_limit(*use.limit);
}

void fill(v1::User* message, const session::UserView& view) {
  message->set_uid(view.uid);
  fill(message->mutable_connections(), view.connections);
  fill(message->mutable_control_connections(), view.control_connections);
  fill(message->mutable_long_calls(), view.long_calls);
  fill(message->mutable_listings(), view.listings);
  fill(message->mutable_attaches(), view.attaches);
  fill(message->mutable_unattached_bytes(), view.unattached_bytes);
  fill(message->mutable_unread_bytes(), view.unread_bytes);
  fill(message->mutable_file_bytes(), view.file_bytes);
  fill(message->mutable_arena_bytes(), view.arena_bytes);
  fill(message->mutable_pipelines(), view.pipelines);
  fill(message->mutable_jobs(), view.jobs);
  message->set_cpu_s(view.cpu_s);
}

void fill(v1::Stage* message, const session::StageView& view) {
  message->set_job(utf8(view.job));
  message->set_pipeline(utf8(view.pipeline));
  message->set_stage(utf8(view.stage));
  message->set_tasks(view.tasks);
  message->set_failures(view.failures);
  message->set_busy_s(view.busy_s);
  message->set_wait_s(view.wait_s);
  message->set_in_flight(view.in_flight);
  message->set_concurrency(view.concurrency);
  message->set_p50_us(view.p50_us);
  message->set_p99_us(view.p99_us);
  if (view.rows_per_s) message->set_rows_per_s(*view.rows_per_s);
  if (view.busy_share) message->set_busy_share(*view.busy_share);
  if (view.jpeg.any()) fill(message->mutable_jpeg(), view.jpeg);
}

void fill(v1::Failure* message, const session::FailureView& view) {
  message->set_job(utf8(view.job));
  message->set_pipeline(utf8(view.pipeline));
  const session::FailureFacts& facts = view.facts;
  message->set_unix_ms(facts.unix_ms);
  message->set_code(facts.code);
  message->set_message(utf8(facts.message));
  message->set_ended_stream(facts.ended_stream);
  if (!facts.sample) return;
  message->set_epoch(facts.sample->epoch);
  message->set_position(facts.sample->position);
  message->set_item(facts.sample->item);
  message->set_uri(utf8(facts.sample->uri));
  if (facts.sample->replaced_by) message->set_replaced_by(*facts.sample->replaced_by);
}

}  // namespace spdld::control
