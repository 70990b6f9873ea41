// SPDX-License-Identifier: Apache-2.0
#include "observe/metrics.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "observe/exposition.h"
#include "op/op_time.h"
#include "spdld/wire.h"
#include "stream/shortage.h"

namespace spdld::observe {
namespace {

using session::WorkersView;
using stream::Shortage;

double number(std::uint64_t count) { return static_cast<double>(count); }

// The names of Workers in control.proto.
constexpr std::pair<std::string_view, double WorkersView::*> kSpent[] = {
    {"rows", &WorkersView::rows_s},
    {"batches", &WorkersView::batches_s},
    {"bytes", &WorkersView::bytes_s},
    {"memory", &WorkersView::memory_s},
    {"calls", &WorkersView::calls_s},
    {"stage_bound", &WorkersView::stage_bound_s},
    {"job_bound", &WorkersView::job_bound_s},
    {"slot", &WorkersView::slot_s},
    {"yield", &WorkersView::yield_s},
    {"left", &WorkersView::left_s},
    {"work", &WorkersView::work_s}};

// The names of Shortages in control.proto.
constexpr std::pair<std::string_view, Shortage> kShortages[] = {
    {"bytes", Shortage::kBytes},     {"worker", Shortage::kWorker}, {"memory", Shortage::kMemory},
    {"calls", Shortage::kCalls},     {"making", Shortage::kMaking}, {"slot", Shortage::kSlot},
    {"replica", Shortage::kReplica}, {"job", Shortage::kJob},       {"copy", Shortage::kCopy},
    {"epoch", Shortage::kEpoch},     {"change", Shortage::kChange}, {"disk", Shortage::kDisk}};
static_assert(std::size(kShortages) == stream::kShortages);

void add_daemon(const session::DaemonView& daemon, Exposition& to) {
  to.gauge("spdld_build_info", "1, with the version of the daemon as a label.", 1,
           {{"version", daemon.version}});
  to.gauge("spdld_uptime_seconds", "Time since the daemon's start.", daemon.uptime_s);
  to.gauge("spdld_cpu_threads", "Workers of the CPU pool.", daemon.cpu_threads);
  to.gauge("spdld_io_threads", "Threads that read while all reads are answered soon.",
           daemon.io_threads);
  to.gauge("spdld_arena_used_bytes", "Memory of all arenas.", number(daemon.arena_used));
  to.gauge("spdld_arena_idle_bytes",
           "Of spdld_arena_used_bytes: kept warm for consumers that may come back.",
           number(daemon.arena_idle));
  to.gauge("spdld_arena_budget_bytes", "Memory that all arenas may take.",
           number(daemon.arena_budget));
  to.gauge("spdld_sessions", "Attached consumers.", daemon.sessions);
  to.gauge("spdld_jobs", "Jobs that run or are declared.", daemon.jobs);
  to.gauge("spdld_pipelines", "Pipelines that the daemon has.", daemon.pipelines);
  to.counter("spdld_batches_total", "Batches handed out to all consumers since the daemon's start.",
             number(daemon.batches));
  to.counter("spdld_rows_total", "Rows handed out to all consumers since the daemon's start.",
             number(daemon.rows));
  if (daemon.pss_bytes)
    to.gauge("spdld_pss_bytes", "The daemon's memory, of pages that it shares its part.",
             number(*daemon.pss_bytes));
  if (daemon.cpu_pressure)
    to.gauge("spdld_cpu_pressure_ratio",
             "Share of the last 10 s in which some thread of the machine waited for a core, or, "
             "where that is not told, one of the daemon's cgroup.",
             *daemon.cpu_pressure);
  to.gauge("spdld_warnings", "Warnings that 'spdlctl status' shows.",
           number(daemon.warnings.size()));
  to.gauge("spdld_drained", "1 while no new jobs are taken.", daemon.drain ? 1 : 0);
}

void add_workers(const WorkersView& workers, Exposition& to) {
  for (const auto& [name, spent] : kSpent) {
    to.counter("spdld_worker_seconds_total",
               "Time of all workers of the CPU pool: making rows or opening batches; else idle, by "
               "what is lacking or what bounds them.",
               workers.*spent, {{"spent", std::string(name)}});
  }
  if (workers.core_s) {
    to.counter("spdld_worker_core_wait_seconds_total",
               "Of spdld_worker_seconds_total: ready to run, and waiting for a core.",
               *workers.core_s);
  }
  if (workers.throttled_s) {
    to.counter("spdld_throttled_seconds_total",
               "Time in which a CPU quota kept the daemon from running, on all cores together.",
               *workers.throttled_s);
  }
}

void add_storage(const session::StorageView& storage, Exposition& to) {
  const Labels labels = {{"device", storage.device}, {"mount", storage.mount}};
  to.gauge("spdld_storage_reading", "Reads that the device has not answered yet.", storage.reading,
           labels);
  to.gauge("spdld_storage_stuck", "Of spdld_storage_reading: for over a second.", storage.stuck,
           labels);
  to.gauge("spdld_storage_most", "Reads that may be made at once, as things are.", storage.most,
           labels);
  to.gauge("spdld_storage_waiting", "Reads that wait for a thread.", number(storage.waiting),
           labels);
  to.counter("spdld_storage_reads_total",
             "Reads that have ended, without those that the page cache answered.",
             number(storage.reads), labels);
  to.gauge("spdld_storage_queued_seconds",
           "Mean time for which the last reads waited for a thread.", storage.queued_s, labels);
  to.gauge("spdld_storage_served_seconds",
           "Mean time that the device took for each of the last reads.", storage.served_s, labels);
  to.gauge("spdld_storage_longest_seconds", "Age of the oldest read that is not answered.",
           storage.longest_s, labels);
}

void add_data_plane(const session::DataPlaneView& data, Exposition& to) {
  to.gauge("spdld_connections", "Open connections of the data socket.", number(data.connections));
  to.gauge("spdld_watched_processes",
           "Processes that are disconnected, live, and may still read slots.",
           number(data.watched_processes));
  to.counter("spdld_connections_accepted_total", "Connections that the data socket accepted.",
             number(data.accepted));
  to.counter("spdld_connections_refused_total",
             "Connections that were over a limit, or of another protocol.", number(data.refused));
  to.counter("spdld_protocol_errors_total", "Connections that were closed for what they sent.",
             number(data.protocol_errors));
  to.counter("spdld_overflows_total",
             "Connections that were closed as they did not read what they were sent.",
             number(data.overflows));
  to.counter("spdld_hello_timeouts_total", "Connections that never attached.",
             number(data.hello_timeouts));
  to.counter("spdld_accept_failures_total", "Connections for which no file descriptor was left.",
             number(data.accept_failures));
  const std::pair<std::string_view, std::uint32_t> states[] = {{"free", data.slots_free},
                                                               {"loaned", data.slots_loaned},
                                                               {"ready", data.slots_ready},
                                                               {"leased", data.slots_leased},
                                                               {"retired", data.slots_retired}};
  for (const auto& [state, count] : states) {
    to.gauge("spdld_slots",
             "Places of batches in all arenas: free, being written (loaned), ready, being read "
             "(leased), or taken from processes that may still read them (retired).",
             count, {{"state", std::string(state)}});
  }
}

void add_cache(const session::CacheView& cache, Exposition& to) {
  const Labels labels = {{"cache", cache.name}, {"form", cache.form}, {"where", cache.where}};
  to.gauge("spdld_cache_bytes", "What the sample cache holds.", number(cache.bytes), labels);
  to.gauge("spdld_cache_limit_bytes", "What the sample cache may hold.", number(cache.limit_bytes),
           labels);
  to.gauge("spdld_cache_items", "Items that the sample cache holds.", number(cache.items), labels);
  to.counter("spdld_cache_hits_total", "Items that the sample cache had.", number(cache.hits),
             labels);
  to.counter("spdld_cache_misses_total", "Items that the sample cache had not.",
             number(cache.misses), labels);
  to.counter("spdld_cache_corrupt_total", "Entries that did not come back as they were kept.",
             number(cache.corrupt), labels);
  to.counter("spdld_cache_dropped_total",
             "Items that were not kept as storage was slow, full or failing.",
             number(cache.dropped), labels);
  to.counter("spdld_cache_saved_cpu_seconds_total", "CPU time that hits have saved.", cache.saved_s,
             labels);
}

void add_jpeg(const session::JpegView& jpeg, Exposition& to) {
  to.gauge("spdld_jpeg_index_bytes", "Memory of the index of JPEG files.", number(jpeg.bytes));
  to.gauge("spdld_jpeg_index_limit_bytes", "Memory that the index of JPEG files may take.",
           number(jpeg.limit_bytes));
  const std::pair<std::string_view, std::uint64_t> ways[] = {
      {"indexed", jpeg.images.indexed},
      {"from_begin", jpeg.images.from_begin},
      {"by_libjpeg", jpeg.images.by_libjpeg},
      {"by_coefficients", jpeg.images.by_coefficients},
      {"recoded", jpeg.images.recoded}};
  for (const auto& [way, images] : ways) {
    to.counter("spdld_jpeg_images_total", "JPEG images, by how they were read.", number(images),
               {{"read", std::string(way)}});
  }
}

void add_gpu(const session::GpuView& gpu, Exposition& to) {
  const Labels labels = {{"gpu", gpu.uuid}};
  to.gauge("spdld_gpu_arena_used_bytes", "Memory of the GPU in arenas.", number(gpu.arena_used),
           labels);
  to.gauge("spdld_gpu_arena_budget_bytes", "Memory of the GPU that arenas may take.",
           number(gpu.arena_budget), labels);
}

// Of wire::kWaitBoundsMs.
std::span<const double> wait_bounds_s() {
  static const auto kBounds = [] {
    std::array<double, std::size(wire::kWaitBoundsMs)> bounds{};
    std::ranges::transform(wire::kWaitBoundsMs, bounds.begin(),
                           [](std::uint64_t ms) { return number(ms) / 1e3; });
    return bounds;
  }();
  return kBounds;
}

bool is_read(const job::JobView& job) {
  return std::ranges::any_of(job.shards,
                             [](const job::ShardView& shard) { return shard.session != 0; });
}

// The labels that jobs have: their own, or empty ones.
class JobLabels {
 public:
  explicit JobLabels(const std::vector<job::JobView>& jobs) {
    for (const bool read : {true, false}) {
      for (const job::JobView& job : jobs) {
        if (is_read(job) == read)
          has_own_.emplace(Key(job.owner, job.job, job.pipeline), has_own_.size() < kMostJobs);
      }
    }
  }

  // With those of a part of the job; none: there is no such job any more.
  template <typename View>
  std::optional<Labels> of(const View& view, Labels more = {}) const {
    const auto found = has_own_.find(Key(view.owner, view.job, view.pipeline));
    if (found == has_own_.end()) return std::nullopt;
    Labels labels = {
        {"job", view.job}, {"pipeline", view.pipeline}, {"owner", std::to_string(view.owner)}};
    labels.insert(labels.end(), more.begin(), more.end());
    if (!found->second) {
      for (auto& [name, value] : labels) value.clear();
    }
    return labels;
  }
  bool has_own(const job::JobView& job) const {
    return has_own_.at(Key(job.owner, job.job, job.pipeline));
  }

 private:
  using Key = std::tuple<uid_t, std::string, std::string>;
  std::map<Key, bool> has_own_;
};

void add_job(const job::JobView& job, const JobLabels& jobs, Exposition& to) {
  const Labels labels = *jobs.of(job);
  to.counter("spdld_job_rows_total", "Rows that the job's consumers were handed.", number(job.rows),
             labels);
  to.counter("spdld_job_cpu_seconds_total", "CPU time spent on the job's rows.", job.cpu_s, labels);
  to.counter("spdld_job_saved_cpu_seconds_total",
             "CPU time that other jobs' rows and the sample cache have saved.", job.saved_cpu_s,
             labels);
  to.counter("spdld_job_shared_rows_total", "Rows that another job had made already.",
             number(job.shared_rows), labels);
  to.counter("spdld_job_cache_hits_total", "Rows made from samples in the cache.",
             number(job.cache_hits), labels);
  to.gauge("spdld_job_arena_bytes", "Memory of the job's arenas.", number(job.arena_bytes), labels);
  to.counter("spdld_job_replaced_total", "Distinct items that were replaced after errors.",
             number(job.replaced), labels);
  to.gauge("spdld_job_replace_budget", "Items that may be replaced.", number(job.replace_budget),
           labels);
  if (!jobs.has_own(job)) return;  // sums of places mean nothing
  to.gauge("spdld_job_steps_per_epoch", "Steps of the epoch that the job is in.",
           number(job.steps_per_epoch), labels);
  const auto slowest = std::ranges::min_element(job.shards, {}, [](const job::ShardView& shard) {
    return std::pair(shard.epoch, shard.step);
  });
  if (slowest == job.shards.end()) return;
  to.gauge("spdld_job_epoch", "Epoch of the slowest shard.", number(slowest->epoch), labels);
  to.gauge("spdld_job_step", "Step within the epoch that the slowest shard is handed next.",
           number(slowest->step), labels);
}

void add_stage(const job::StageView& stage, const JobLabels& jobs, Exposition& to) {
  const std::optional<Labels> labels = jobs.of(stage, {{"stage", stage.stage}});
  if (!labels) return;
  to.counter("spdld_stage_tasks_total",
             "Tasks that have ended since the job began or was last changed.", number(stage.tasks),
             *labels);
  to.counter("spdld_stage_failures_total", "Tasks that have failed.", number(stage.failures),
             *labels);
  for (const auto& [code, failures] : stage.failures_by_code) {
    Labels with = *labels;
    with.emplace_back("code", code);
    to.counter("spdld_stage_failures_by_code_total",
               "Of spdld_stage_failures_total: those with this error, as gRPC names it.",
               number(failures), std::move(with));
  }
  if (stage.bytes)
    to.counter("spdld_stage_bytes_total", "What the stage 'fetch' has brought.",
               number(*stage.bytes), *labels);
  if (stage.rejected)
    to.counter("spdld_stage_rejected_total",
               "Rows that a stage 'filter' has rejected, which are no failures.",
               number(*stage.rejected), *labels);
  for (const OpTime& of : stage.ops) {
    Labels with = *labels;
    with.emplace_back("field", of.field);
    with.emplace_back("ops", of.ops);
    to.counter("spdld_op_timed_rows_total", "Rows that were timed: one in 64.", number(of.rows),
               with);
    to.counter("spdld_op_seconds_total",
               "Of spdld_op_timed_rows_total: time of the ops, which run as one.", of.spent_s,
               std::move(with));
  }
  to.counter("spdld_stage_busy_seconds_total", "Time of tasks at work.", stage.busy_s, *labels);
  to.counter("spdld_stage_wait_seconds_total",
             "Time for which tasks have waited for a worker; those that read, for an I/O thread.",
             stage.wait_s, *labels);
  to.gauge("spdld_stage_in_flight", "Tasks that have begun and not ended.", stage.in_flight,
           *labels);
  to.gauge("spdld_stage_concurrency", "Tasks that may be at work at once.", stage.concurrency,
           *labels);
}

void add_session(const session::SessionView& session, const JobLabels& jobs, Exposition& to) {
  const std::optional<Labels> labels = jobs.of(
      session,
      {{"shard", std::to_string(session.shard)}, {"replica", std::to_string(session.replica)}});
  if (!labels) return;
  to.counter("spdld_session_batches_total", "Batches that the consumer was handed.",
             number(session.batches), *labels);
  to.counter("spdld_session_rows_total", "Rows that the consumer was handed.", number(session.rows),
             *labels);
  to.counter("spdld_session_waited_seconds_total",
             "Time for which the consumer has waited for batches, as its client says.",
             session.waited_s, *labels);
  to.counter("spdld_session_waits_total",
             "Times that no batch was ready when the consumer wanted one, as its client says.",
             number(session.waits), *labels);
  to.histogram("spdld_session_wait_seconds",
               "Waits of the consumer that are over, by their length, as its client says; the sum "
               "is spdld_session_waited_seconds_total.",
               wait_bounds_s(), session.waits_by_length, session.waited_s, *labels);
  to.counter("spdld_session_steps_total", "Batches that the consumer's loop was given.",
             number(session.steps), *labels);
  to.counter("spdld_session_between_seconds_total",
             "Time for which the consumer's loop had a batch and asked for none, as its client "
             "says.",
             session.between_s, *labels);
  to.counter("spdld_session_map_seconds_total",
             "Time for which functions of map= ran in the consumer, in all their threads together, "
             "as its client says.",
             session.map_s, *labels);
  to.gauge("spdld_session_leases", "Batches that the consumer holds.", session.leases, *labels);
  to.gauge("spdld_session_credits", "Batches that the consumer may hold.", session.credits,
           *labels);
  to.gauge("spdld_session_ready", "Batches that the consumer could be handed now.", session.ready,
           *labels);
  to.counter("spdld_session_attached_seconds_total", "Time since the consumer attached.",
             session.shortages.attached_s, *labels);
  for (const auto& [name, shortage] : kShortages) {
    Labels with = *labels;
    with.emplace_back("of", name);
    to.counter("spdld_session_shortage_seconds_total",
               "Of spdld_session_attached_seconds_total: no batch lay ready though the consumer "
               "could be given one, by what was lacking.",
               session.shortages.of(shortage), std::move(with));
  }
}

}  // namespace

Observed observed_by(const job::Caller& caller, session::Service& service) {
  Observed observed;
  observed.daemon = service.daemon(caller);
  observed.stages = service.stages(caller);
  observed.sessions = service.sessions(caller);
  observed.jobs = service.jobs(caller);
  return observed;
}

Observed totals_of(const job::Caller& caller, session::Service& service) {
  Observed observed;
  observed.daemon = service.daemon(caller);
  observed.daemon.caches.clear();
  observed.daemon.storage.clear();
  observed.daemon.gpus.clear();
  return observed;
}

std::string metrics_text(const Observed& observed) {
  Exposition to;
  const session::DaemonView& daemon = observed.daemon;
  add_daemon(daemon, to);
  add_workers(daemon.workers, to);
  add_data_plane(daemon.data, to);
  add_jpeg(daemon.jpeg, to);
  for (const session::StorageView& storage : daemon.storage) add_storage(storage, to);
  for (const session::CacheView& cache : daemon.caches) add_cache(cache, to);
  for (const session::GpuView& gpu : daemon.gpus) {
    if (!gpu.uuid.empty()) add_gpu(gpu, to);
  }
  const JobLabels jobs(observed.jobs);
  for (const job::JobView& job : observed.jobs) add_job(job, jobs, to);
  for (const job::StageView& stage : observed.stages) add_stage(stage, jobs, to);
  for (const session::SessionView& session : observed.sessions) add_session(session, jobs, to);
  to.gauge("spdld_jobs_summed",
           "Jobs that have no samples of their own: the ones with empty labels are their sums.",
           number(observed.jobs.size() - std::min(observed.jobs.size(), kMostJobs)));
  return to.text();
}

}  // namespace spdld::observe
