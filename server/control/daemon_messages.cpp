// SPDX-License-Identifier: Apache-2.0
#include "control/messages.h"

#include <string>
#include <string_view>

#include "base/text/utf8.h"

namespace spdld::control {
namespace {

void fill_in(v1::DataPlane* message, const session::DataPlaneView& view) {
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

void fill_in(v1::JpegIndex* message, const session::JpegView& view) {
  message->set_limit_bytes(view.limit_bytes);
  message->set_bytes(view.bytes);
  message->set_files(view.files);
  message->set_refused(view.refused);
  message->set_contradicted(view.contradicted);
  message->set_compared(view.compared);
  message->set_different(view.different);
  fill(message->mutable_images(), view.images);
}

void fill_in(v1::SampleCache* message, const session::CacheView& view) {
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

void fill_in(v1::Gpu* message, const session::GpuView& view) {
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

void fill_in(v1::Workers* message, const session::WorkersView& view) {
  message->set_rows_s(view.rows_s);
  message->set_batches_s(view.batches_s);
  message->set_bytes_s(view.bytes_s);
  message->set_memory_s(view.memory_s);
  message->set_calls_s(view.calls_s);
  message->set_stage_bound_s(view.stage_bound_s);
  message->set_job_bound_s(view.job_bound_s);
  message->set_slot_s(view.slot_s);
  message->set_yield_s(view.yield_s);
  message->set_left_s(view.left_s);
  message->set_work_s(view.work_s);
  if (view.core_s) message->set_core_s(*view.core_s);
  if (view.throttled_s) message->set_throttled_s(*view.throttled_s);
}

std::string_view name_of(CpuPriority::By by) {
  switch (by) {
    case CpuPriority::By::kNiceness: return "niceness";
    case CpuPriority::By::kAutogroup: return "autogroup";
    case CpuPriority::By::kWeight: break;
  }
  return "cpu_weight";
}

void fill_in(v1::Priority* message, const CpuPriority& priority) {
  message->set_by(std::string(name_of(priority.by)));
  message->set_value(priority.value);
  message->set_cgroup(utf8(priority.cgroup));
  message->set_niceness(priority.niceness);
}

void fill_in(v1::Storage* message, const session::StorageView& view) {
  message->set_device(view.device);
  message->set_mount(utf8(view.mount));
  message->set_reading(view.reading);
  message->set_stuck(view.stuck);
  message->set_most(view.most);
  message->set_waiting(view.waiting);
  message->set_reads(view.reads);
  message->set_queued_s(view.queued_s);
  message->set_served_s(view.served_s);
  message->set_longest_s(view.longest_s);
}

void fill_in(v1::Runner* message, const session::RunnerView& view) {
  message->set_owner(view.owner);
  message->set_call(utf8(view.call));
  message->set_pool(view.pool);
  message->set_supervisor(view.supervisor);
  message->set_number(view.number);
  message->set_pid(view.pid);
  message->set_calls(view.calls);
  message->set_rows(view.rows);
  message->set_restarts(view.restarts);
  if (view.p50_us) message->set_p50_us(*view.p50_us);
  if (view.p99_us) message->set_p99_us(*view.p99_us);
  if (view.pss_bytes) message->set_pss_bytes(*view.pss_bytes);
  message->set_why(utf8(view.why));
}

void fill_in(v1::Use* message, const session::Use& use) {
  message->set_used(use.used);
  if (use.limit) message->set_limit(*use.limit);
}

}  // namespace

void fill(v1::JpegImages* message, const JpegImages& images) {
  message->set_indexed(images.indexed);
  message->set_from_begin(images.from_begin);
  message->set_by_libjpeg(images.by_libjpeg);
  message->set_by_coefficients(images.by_coefficients);
  message->set_recoded(images.recoded);
}

void fill(v1::Drain* message, const session::DrainView& view) {
  message->set_since_unix_ms(view.since_unix_ms);
  message->set_by(view.by);
  message->set_ranks(view.ranks);
  message->set_awaited_jobs(view.awaited_jobs);
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
  fill_in(message->mutable_data(), view.data);
  for (const session::CacheView& cache : view.caches) fill_in(message->add_caches(), cache);
  fill_in(message->mutable_jpeg(), view.jpeg);
  fill_in(message->mutable_workers(), view.workers);
  if (view.workers_lately) fill_in(message->mutable_workers_lately(), *view.workers_lately);
  if (view.priority) fill_in(message->mutable_priority(), *view.priority);
  if (view.pss_bytes) message->set_pss_bytes(*view.pss_bytes);
  if (view.cpu_pressure) message->set_cpu_pressure(*view.cpu_pressure);
  for (const session::StorageView& of : view.storage) fill_in(message->add_storage(), of);
  for (const session::RunnerView& of : view.runners) fill_in(message->add_runners(), of);
  for (const session::GpuView& gpu : view.gpus) fill_in(message->add_gpus(), gpu);
  message->set_gpu_driver(view.gpu_driver);
  message->set_no_gpu(utf8(view.no_gpu));
  if (view.drain) fill(message->mutable_drain(), *view.drain);
}

void fill(v1::User* message, const session::UserView& view) {
  message->set_uid(view.uid);
  fill_in(message->mutable_connections(), view.connections);
  fill_in(message->mutable_control_connections(), view.control_connections);
  fill_in(message->mutable_long_calls(), view.long_calls);
  fill_in(message->mutable_listings(), view.listings);
  fill_in(message->mutable_attaches(), view.attaches);
  fill_in(message->mutable_unattached_bytes(), view.unattached_bytes);
  fill_in(message->mutable_unread_bytes(), view.unread_bytes);
  fill_in(message->mutable_file_bytes(), view.file_bytes);
  fill_in(message->mutable_listing_bytes(), view.listing_bytes);
  fill_in(message->mutable_arena_bytes(), view.arena_bytes);
  fill_in(message->mutable_pipelines(), view.pipelines);
  fill_in(message->mutable_jobs(), view.jobs);
  message->set_cpu_s(view.cpu_s);
}

}  // namespace spdld::control
