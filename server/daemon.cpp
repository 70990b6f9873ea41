// SPDX-License-Identifier: Apache-2.0
#include "daemon.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/cpu_priority.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/mounts.h"
#include "base/reaper.h"
#include "base/text/counted.h"
#include "control/control_server.h"
#include "delivery/arena_pool.h"
#include "delivery/data_server.h"
#include "delivery/liveness.h"
#include "delivery/memory_probe.h"
#include "delivery/peer.h"
#include "delivery/runners/runner_server.h"
#include "delivery/systemd.h"
#include "engine/cache/sample_caches.h"
#include "engine/executor.h"
#include "engine/file_prober.h"
#include "engine/plan/builtin_ops.h"
#include "live_config.h"
#include "media/jpeg_scan/seek_indexes.h"
#include "observe/http_listener.h"
#include "observe/http_pages.h"
#include "observe/http_server.h"
#include "observe/metrics.h"
#include "pipeline/catalogue.h"
#include "pipeline/file_applies.h"
#include "session/session_service.h"
#include "session/sessions.h"
#include "source/file/access.h"
#include "source/file/disk.h"
#include "source/file/io_pool.h"
#include "source/item/read_windows.h"
#include "spec/connection_bounds.h"
#include "store/store.h"

namespace spdld {
namespace {

// Whoever may enter the runtime directory may connect: who they are is checked at accept.
constexpr mode_t kSocketMode = 0666;
constexpr std::chrono::milliseconds kControlGrace{2000};
constexpr std::chrono::seconds kHeartbeat{2};
// A pipeline file whose data have not answered for so long lets the next one begin, and the daemon
// serve.
constexpr std::chrono::seconds kFilePatience{2};
constexpr std::chrono::milliseconds kFilesPoll{100};
// What a healthy disk is given to answer a last read.
constexpr std::chrono::milliseconds kReadGrace{200};
// Of all sources together: 64 MiB.
constexpr std::size_t kReadWindows = 256;

delivery::ArenaKind arena_kind(spec::ArenaConfig::Kind kind) {
  switch (kind) {
    case spec::ArenaConfig::Kind::kMemfd: return delivery::ArenaKind::kMemfd;
    case spec::ArenaConfig::Kind::kPosix: return delivery::ArenaKind::kPosix;
    case spec::ArenaConfig::Kind::kHugetlb: return delivery::ArenaKind::kHugetlb;
  }
  return delivery::ArenaKind::kMemfd;
}

std::uint64_t row_memory(const spec::DaemonConfig& config) {
  if (config.limits.row_memory) return bytes_of(*config.limits.row_memory);
  return 2 * bytes_of(config.executor.decode_memory);
}

spec::ConnectionBounds connection_bounds_of(const spec::LimitsConfig& limits) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) files.rlim_cur = 1024;
  return spec::connection_bounds(limits, files.rlim_cur);
}

TrustedUsers trusted_users(const spec::AccessConfig& access) {
  return TrustedUsers(access.admins, access.trust_root);
}

delivery::UserShare user_share(const spec::DaemonConfig& config) {
  delivery::UserShare of_user{.bytes = bytes_of(config.limits.arena, bytes_of(config.arena.budget)),
                              .unbound = config.access.admins};
  if (trusted_users(config.access).is_admin(geteuid())) of_user.unbound.push_back(geteuid());
  return of_user;
}

source::AccessRules access_rules(const spec::DaemonConfig& config) {
  source::AccessRules rules{
      .roots = {},
      .own_directories = {config.state_dir, config.runtime_dir, config.cache.dir},
      .trust_root = config.access.trust_root};
  for (const spec::AccessConfig::Root& root : config.access.roots)
    rules.roots.push_back({.path = root.path, .groups = root.groups});
  return rules;
}

struct Listeners {
  UniqueFd data;
  UniqueFd control;
  bool activated = false;  // systemd owns the sockets and their files
};

Result<Listeners> make_listeners(const delivery::RuntimeLock& lock, const std::string& directory) {
  Listeners listeners;
  SPDLD_ASSIGN(std::vector<delivery::ActivatedSocket> activated, delivery::activated_sockets());
  for (delivery::ActivatedSocket& socket : activated) {
    listeners.activated = true;
    if (socket.name == "data") listeners.data = std::move(socket.fd);
    if (socket.name == "control") listeners.control = std::move(socket.fd);
  }
  if (listeners.activated) {
    if (!listeners.data || !listeners.control)
      return error(Code::kFailedPrecondition,
                   "systemd passed sockets, but not both: spdld.socket must name one "
                   "FileDescriptorName=data and one FileDescriptorName=control");
    return listeners;
  }
  SPDLD_ASSIGN(listeners.data,
               delivery::listen_unix(lock, directory + "/data.sock", SOCK_SEQPACKET, kSocketMode));
  SPDLD_ASSIGN(listeners.control,
               delivery::listen_unix(lock, directory + "/control.sock", SOCK_STREAM, kSocketMode));
  return listeners;
}

// What is allowed, and may yet surprise.
void warn_of_surprises(const spec::AccessConfig& access, std::uint64_t budget) {
  if (geteuid() == 0 && access.admins.empty() && !access.trust_root)
    spdlog::warn(
        "access.trust_root is false, the daemon runs as root, and access.admins names nobody: "
        "nobody may administer it");
  if (const std::uint64_t total = delivery::memory_total(); budget > total)
    spdlog::warn(
        "arena.budget is {}, and there are {} of memory: an arena is refused when memory "
        "is short, whatever the budget says",
        delivery::format_bytes(budget), delivery::format_bytes(total));
}

std::vector<session::StorageView> storage_views(const source::IoPool& io) {
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  const std::map<dev_t, std::string> mounts = mount_points();
  std::vector<session::StorageView> views;
  for (const source::IoPool::DeviceUse& use : io.devices()) {
    session::StorageView& view = views.emplace_back();
    view.device = source::is_elsewhere(use.device)
                      ? "elsewhere"
                      : fmt::format("{}:{}", major(use.device), minor(use.device));
    if (const auto mount = mounts.find(use.device); mount != mounts.end())
      view.mount = mount->second;
    view.reading = static_cast<std::uint32_t>(use.running);
    view.stuck = static_cast<std::uint32_t>(use.stuck);
    view.most = static_cast<std::uint32_t>(use.most);
    view.waiting = use.waiting;
    view.reads = use.ended;
    view.queued_s = seconds(use.queued);
    view.served_s = seconds(use.served);
    view.longest_s = seconds(use.longest);
  }
  return views;
}

std::vector<session::RunnerView> runner_views(const delivery::RunnerServer& server) {
  std::vector<session::RunnerView> views;
  for (delivery::RunnerView& runner : server.runners()) {
    session::RunnerView& view =
        views.emplace_back(session::RunnerView{.owner = runner.uid,
                                               .call = std::move(runner.call),
                                               .pool = std::move(runner.key),
                                               .supervisor = runner.supervisor,
                                               .number = runner.number,
                                               .pid = runner.pid,
                                               .calls = runner.calls,
                                               .rows = runner.rows,
                                               .restarts = runner.restarts,
                                               .p50_us = std::nullopt,
                                               .p99_us = std::nullopt,
                                               .pss_bytes = std::nullopt,
                                               .why = std::move(runner.why)});
    if (runner.rows > 0) {
      const auto us = [&](double share) {
        return std::chrono::ceil<std::chrono::microseconds>(runner.times.percentile(share)).count();
      };
      view.p50_us = us(0.50);
      view.p99_us = us(0.99);
    }
    if (runner.own_pid > 0)
      view.pss_bytes =
          delivery::own_memory({.smaps = fmt::format("/proc/{}/smaps_rollup", runner.own_pid)});
  }
  return views;
}

session::JpegView view_of(const media::SeekIndexes& indexes) {
  const media::SeekIndexes::Snapshot now = indexes.snapshot();
  return {.limit_bytes = now.limit_bytes,
          .bytes = now.bytes,
          .files = now.files,
          .refused = now.refused,
          .contradicted = now.contradicted,
          .compared = now.compared,
          .different = now.different,
          .images = now.images};
}

}  // namespace

// In the order in which they are made; what is below may use what is above.
struct Daemon::Parts {
  Parts(const spec::DaemonConfig& daemon_config, DaemonOptions daemon_options,
        delivery::RuntimeLock runtime_lock, std::unique_ptr<store::Store> opened)
      : config(daemon_config),
        options(std::move(daemon_options)),
        lock(std::move(runtime_lock)),
        store(std::move(opened)),
        executor(
            {.threads = cpu_threads_of(config.executor),
             .most_threads = engine::available_cpus(),
             .cpus = config.executor.cpus.value_or(std::vector<int>()),
             .nice = config.executor.nice,
             .decode_memory_bytes = bytes_of(config.executor.decode_memory),
             .row_memory_bytes = row_memory(config),
             .ahead = engine::workers_ahead(config.executor.nice, config.executor.cpus.has_value(),
                                            engine::available_cpus())}),
        io({.threads = config.executor.io_threads}),
        caches({.ram_bytes = bytes_of(config.cache.ram),
                .disk_bytes = config.cache.disk_bytes,
                .dir = config.cache.dir,
                .has_seek_indexes = bytes_of(config.decoder.index) > 0,
                .io = io}),
        seek_indexes(std::make_shared<media::SeekIndexes>(bytes_of(config.decoder.index))),
        catalogue(
            {.state_dir = config.state_dir,
             .trusted = trusted_users(config.access),
             .listings_per_user = config.limits.listings,
             .pipelines_per_user = static_cast<std::size_t>(config.limits.pipelines),
             .build = {.access = access_rules(config),
                       .max_pixels = config.limits.max_pixels,
                       .row_memory_bytes = row_memory(config),
                       .buffers = std::make_shared<BufferMemory>(config.limits.file_bytes),
                       .windows = std::make_shared<source::ReadWindows>(kReadWindows),
                       .memory = std::make_shared<ListingMemory>(
                           bytes_of(config.limits.listing_memory), trusted_users(config.access)),
                       .prober = &prober,
                       .reaper = &reaper,
                       .code = user_code()}},
            engine::builtin_ops(seek_indexes), io, caches),
        budget(bytes_of(config.arena.budget), {}, user_share(config)),
        arenas(
            budget,
            {.bytes = budget.limit_bytes() / 4, .age = std::chrono::seconds(config.arena.idle_s)},
            clock),
        devices(delivery::find_devices(config.cuda.budget_bytes)),
        sessions({.catalogue = catalogue,
                  .executor = executor,
                  .arenas = arenas,
                  .budget = budget,
                  .devices = *devices,
                  .store = *store,
                  .clock = clock,
                  .arena_kind = arena_kind(config.arena.kind),
                  .retain = std::chrono::seconds(config.job.retain_s),
                  .jobs_per_user = static_cast<std::size_t>(config.limits.jobs),
                  .address = config.runtime_dir,
                  .launched = options.launched,
                  .code = user_code(),
                  .files_pending = [this] { return files.pending(); }}),
        service(
            sessions,
            {.version = options.version,
             .io_threads = [this] { return static_cast<std::uint32_t>(io.most_threads()); },
             .jpeg = [indexes = seek_indexes] { return view_of(*indexes); },
             .storage = [this] { return storage_views(io); },
             .runners = [this] { return runner_views(*runners); },
             .values = live_values(config, {executor, io, caches, *seek_indexes, budget, arenas})}),
        files([this](const std::string& file) { service.reload({file}); },
              [this] { return files_stall(); }, [this] { sessions.pipelines().look_again(); }) {}

  pipeline::UserCode user_code() {
    return {.open = [this](uid_t user, const CallSpec& call) { return runners->open(user, call); },
            .trusts_root = config.access.trust_root};
  }
  // Whether the data of the file that was begun last do not answer.
  bool files_stall() {
    return catalogue.listings().stalled_for(source::Access::trusted().uid, kFilePatience);
  }
  // Until the files are applied, or those that are left do not come on.
  void await_files() {
    while (!files.idle_within(kFilesPoll)) {
      if (!files_stall()) continue;
      spdlog::warn(
          "the daemon serves without some pipelines of its configuration: their data do not "
          "answer");
      return;
    }
  }

  // Why ranks and jobs that come now are not served; none: they are. Any thread.
  std::optional<std::string> not_ready() {
    switch (phase.load(std::memory_order_relaxed)) {
      case Phase::kStarting:
        return "the daemon starts: it lists the datasets of its configuration's pipelines";
      case Phase::kStopping: return "the daemon stops";
      case Phase::kServing: break;
    }
    if (const auto drain = sessions.drain().view())
      return fmt::format(
          "the daemon is drained: it takes no new jobs until 'spdlctl undrain'; {} attached",
          counted(drain->ranks, "rank is", "ranks are"));
    return std::nullopt;
  }

  // Whether no thread is left that waits for storage.
  bool is_idle() {
    return io.idle_within(kReadGrace) && catalogue.listings().idle_within(kReadGrace);
  }

  const spec::DaemonConfig config;
  const DaemonOptions options;
  const SystemClock clock;
  delivery::RuntimeLock lock;
  std::unique_ptr<store::Store> store;
  Reaper reaper;
  engine::Executor executor;
  const engine::FileProber prober;  // reads in `io` compare files by it
  source::IoPool io;
  engine::SampleCaches caches;
  const std::shared_ptr<media::SeekIndexes> seek_indexes;
  pipeline::Catalogue catalogue;
  delivery::ArenaBudget budget;
  delivery::ArenaPool arenas;
  std::unique_ptr<delivery::RunnerServer> runners;
  const std::unique_ptr<delivery::Devices> devices;
  session::Sessions sessions;
  session::SessionService service;
  pipeline::FileApplies files;
  delivery::PidfdLiveness liveness;
  std::unique_ptr<delivery::DataServer> data;
  std::unique_ptr<control::ControlServer> control;
  enum class Phase { kStarting, kServing, kStopping };
  std::atomic<Phase> phase{Phase::kStarting};  // told by /readyz, and guards nothing
  std::unique_ptr<observe::HttpServer> http;   // none: not configured
  delivery::SocketFile http_socket;            // of a Unix one
  bool owns_socket_files = false;
  bool stopped = false;
  bool used = false;
  std::chrono::nanoseconds idle_since{0};
  std::uint64_t seen_shortages = 0;
  std::chrono::nanoseconds last_heartbeat{0};
};

Daemon::Daemon(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Daemon::~Daemon() { (void)stop(); }

Result<std::unique_ptr<Daemon>> Daemon::start(const spec::DaemonConfig& config,
                                              const DaemonOptions& options) {
  SPDLD_ASSIGN(delivery::RuntimeLock lock, delivery::RuntimeLock::take(config.runtime_dir));
  SPDLD_ASSIGN(std::unique_ptr<store::Store> store, store::Store::open(config.state_dir));
  SPDLD_ASSIGN(const std::vector<std::string> files, spec::pipeline_files(config));
  SPDLD_ASSIGN(Listeners listeners, make_listeners(lock, config.runtime_dir));

  std::unique_ptr<Daemon> daemon(
      new Daemon(std::make_unique<Parts>(config, options, std::move(lock), std::move(store))));
  Parts& parts = *daemon->parts_;
  if (const Status niced =
          config.executor.nice == 0 ? Status() : nice_session(config.executor.nice);
      !niced.ok())
    spdlog::warn("executor.nice {}: {}; it counts only among the threads of the daemon's session",
                 config.executor.nice, niced.message());
  parts.owns_socket_files = !listeners.activated;
  const TrustedUsers trusted = trusted_users(config.access);
  if (config.http.is_served()) {
    SPDLD_ASSIGN(UniqueFd listener, observe::listen_http(config.http));
    parts.http_socket = delivery::socket_file_at(config.http.unix_path);
    SPDLD_ASSIGN(parts.http, observe::HttpServer::start(
                                 std::move(listener),
                                 observe::http_pages(
                                     parts.service, config.http.jobs,
                                     [&parts] { return parts.not_ready(); }, parts.clock)));
    spdlog::info("http: /metrics, /healthz and /readyz at {}",
                 config.http.address.empty()
                     ? config.http.unix_path
                     : fmt::format("{} port {}", config.http.address, config.http.port));
  }
  // systemd needs to keep none for these: a runner that finds no daemon comes again.
  SPDLD_ASSIGN(UniqueFd runner_listener,
               delivery::listen_unix(parts.lock, config.runtime_dir + "/runner.sock",
                                     SOCK_SEQPACKET, kSocketMode));
  const spec::ConnectionBounds bounds = connection_bounds_of(config.limits);
  SPDLD_ASSIGN(parts.runners,
               delivery::RunnerServer::start(std::move(runner_listener),
                                             {.address = config.runtime_dir,
                                              .connections = {.in_all = bounds.runners,
                                                              .reserved = bounds.runners_reserved,
                                                              .per_user = bounds.runners_per_user,
                                                              .trusted = trusted}},
                                             parts.budget));
  // Consumers that come while datasets are listed wait in the sockets' backlog.
  parts.service.configure(live_texts(config));
  parts.service.restore();
  parts.files.begin(files);
  parts.await_files();
  SPDLD_ASSIGN(parts.data, delivery::DataServer::start(
                               std::move(listeners.data),
                               {.server_name = "spdld " + options.version,
                                .connections = {.in_all = bounds.data,
                                                .reserved = bounds.data_reserved,
                                                .per_user = bounds.data_per_user,
                                                .trusted = trusted},
                                .max_unattached_bytes_per_uid = config.limits.unattached_bytes,
                                .max_unread_bytes_per_uid = config.limits.unread_bytes},
                               parts.liveness, parts.sessions));
  parts.service.watch(parts.data.get());
  const auto metrics = [&service = parts.service](const job::Caller& caller) {
    return observe::metrics_text(observe::observed_by(caller, service));
  };
  SPDLD_ASSIGN(parts.control,
               control::ControlServer::start(std::move(listeners.control), parts.service,
                                             {.max_connections = bounds.control,
                                              .max_connections_per_uid = bounds.control_per_user,
                                              .max_long_calls_per_uid = config.limits.long_calls,
                                              .trusted = trusted,
                                              .metrics = metrics}));
  parts.phase = Parts::Phase::kServing;
  parts.idle_since = parts.clock.now();
  warn_of_surprises(config.access, parts.budget.limit_bytes());
  spdlog::info("spdld {} serves in {}: {} CPU workers, up to {} I/O threads, {} of {} for arenas",
               options.version, config.runtime_dir, parts.executor.threads(),
               config.executor.io_threads, delivery::arena_kind_name(arena_kind(config.arena.kind)),
               delivery::format_bytes(parts.budget.limit_bytes()));
  return daemon;
}

void Daemon::reload(const spec::DaemonConfig& config) {
  parts_->service.configure(live_texts(config));
  auto files = spec::pipeline_files(config);
  if (!files) {
    spdlog::error("{}", files.error().message());
    return;
  }
  spdlog::info("{} read again", counted(files->size(), "pipeline file"));
  parts_->files.begin(*std::move(files));
}

void Daemon::tick() {
  log::tick();
  parts_->arenas.tick();
  // Something failed for want of a descriptor: idle arenas have some.
  if (const std::uint64_t shortages = descriptor_shortages();
      std::exchange(parts_->seen_shortages, shortages) != shortages)
    parts_->arenas.release_idle();
  const bool came_and_went = !parts_->used && parts_->sessions.reports().totals().batches > 0;
  if (parts_->sessions.attached() > 0 || came_and_went) {
    parts_->used = true;
    parts_->idle_since = parts_->clock.now();
  }
  parts_->catalogue.listings().tick();
  parts_->sessions.tick();
  const auto now = parts_->clock.now();
  if (now - parts_->last_heartbeat < kHeartbeat) return;
  parts_->last_heartbeat = now;
  parts_->sessions.heartbeat();
}

std::chrono::nanoseconds Daemon::idle_for() const {
  if (parts_->sessions.attached() > 0) return std::chrono::nanoseconds(0);
  return parts_->clock.now() - parts_->idle_since;
}

bool Daemon::was_used() const { return parts_->used; }

bool Daemon::stop() {
  Parts& parts = *parts_;
  if (std::exchange(parts.stopped, true)) return parts.is_idle();
  parts.phase = Parts::Phase::kStopping;
  // While the lock is held: nobody else's sockets can be there.
  unlink((parts.config.runtime_dir + "/runner.sock").c_str());
  if (parts.owns_socket_files) {
    for (const char* name : {"/data.sock", "/control.sock"})
      unlink((parts.config.runtime_dir + name).c_str());
  }
  if (parts.control != nullptr) parts.control->stop(kControlGrace);
  if (parts.http != nullptr) {
    delivery::remove_socket(parts.http_socket);
    parts.http->stop();
  }
  parts.service.watch(nullptr);
  parts.sessions.suspend();
  if (parts.data != nullptr) parts.data->stop();
  parts.catalogue.listings().stop();
  parts.files.stop();
  parts.sessions.stop();
  if (parts.runners != nullptr) parts.runners->stop();  // rows at functions come back
  parts.io.stop();
  parts.executor.stop();
  if (parts.options.own_runtime_dir) {
    std::error_code failed;
    std::filesystem::remove_all(parts.config.runtime_dir, failed);
    if (failed) spdlog::warn("{} was not removed: {}", parts.config.runtime_dir, failed.message());
  }
  return parts.is_idle();
}

void Daemon::release_locks() const noexcept {
  parts_->store->release_lock();
  parts_->lock.release();
}

}  // namespace spdld
