// SPDX-License-Identifier: Apache-2.0
// Flags, signals, exit codes. What the daemon is made of stands in daemon.cpp.
#include <link.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/text/counted.h"
#include "daemon.h"
#include "delivery/systemd.h"
#include "engine/plan/builtin_ops.h"
#include "media/libraries.h"
#include "observe/http_listener.h"
#include "posix/unique_fd.h"
#include "probe_file.h"
#include "spec/daemon_config.h"
#include "spec/ops_page.h"
#include "spec/parse.h"
#include "spec/schema.h"
#include "version.h"

namespace {

using namespace std::chrono_literals;

// 0 done, 1 the operation failed, 2 wrong usage or config.
constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kUsage = 2;

// A daemon that somebody started and forgot leaves after this time even if nobody ever came.
constexpr auto kUnusedGrace = 60s;
// Nothing that hangs in the kernel may keep a stopping daemon from making room for the next one for
// longer.
constexpr unsigned kStopDeadlineS = 30;
// Nor may whoever does not read the log.
constexpr auto kLogPatience = 2s;

struct Flags {
  bool version = false;
  bool verbose = false;
  std::string config;
  std::vector<std::string> overrides;
  bool check = false;
  std::string schema;
  bool ops = false;
  std::string probe;
  double exit_when_idle_s = -1;
  bool own_runtime_dir = false;
  int parent_fd = -1;
};

int complain(const spdld::Status& status) {
  spdld::log::last_words("spdld: " + status.message());
  return status.code() == spdld::Code::kInvalidArgument ? kUsage : kFailed;
}

int print_version(bool verbose) {
  std::puts("spdld " SPDLD_VERSION);
  if (!verbose) return kDone;
  std::fputs(spdld::media::describe_libraries().c_str(), stdout);
  std::puts("loaded:");
  const auto print_file = [](dl_phdr_info* loaded, std::size_t /*size*/, void* /*none*/) {
    if (loaded->dlpi_name[0] == '/') std::printf("  %s\n", loaded->dlpi_name);
    return 0;
  };
  dl_iterate_phdr(print_file, nullptr);
  return kDone;
}

int print_schema(const std::string& which) {
  const nlohmann::json schema = which == "daemon"
                                    ? spdld::spec::daemon_schema()
                                    : spdld::spec::pipeline_schema(spdld::engine::builtin_ops());
  std::printf("%s\n", schema.dump(2).c_str());
  return kDone;
}

int print_ops() {
  std::fputs(spdld::spec::ops_page(spdld::engine::builtin_ops()).c_str(), stdout);
  return kDone;
}

// As JSON: `spdlctl probe` shows it to people.
int print_probe(const std::string& path) {
  const auto facts = spdld::probe_file(path);
  const nlohmann::ordered_json shown =
      facts ? *facts : nlohmann::ordered_json{{"error", facts.error().message()}};
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  std::printf("%s\n", shown.dump(2, ' ', false, kReplace).c_str());
  return facts ? kDone : kFailed;
}

// The configuration, and every pipeline that it names.
int check(const spdld::spec::DaemonConfig& config) {
  if (const auto status = spdld::observe::check_http(config.http); !status.ok())
    return complain(status);
  const auto files = spdld::spec::pipeline_files(config);
  if (!files) return complain(files.error());
  const spdld::Registry registry = spdld::engine::builtin_ops();
  int result = kDone;
  for (const std::string& file : *files) {
    spdld::spec::ParseOptions options;
    options.env = spdld::spec::process_env;
    options.read_file = spdld::spec::read_text_file;
    const auto parsed = spdld::spec::parse_pipeline_file(file, registry, options);
    if (!parsed) result = complain(parsed.error());
  }
  if (result == kDone)
    std::printf("the configuration and %s are fine\n",
                spdld::counted(files->size(), "pipeline").c_str());
  return result;
}

// Signals that the main loop takes by reading, blocked in every thread made from now on.
spdld::Result<spdld::UniqueFd> take_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  if (const int failed = pthread_sigmask(SIG_BLOCK, &set, nullptr); failed != 0)
    return tl::unexpected<spdld::Status>(spdld::errno_status(failed, "pthread_sigmask"));
  std::signal(SIGPIPE, SIG_IGN);
  spdld::UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC));
  if (!fd) return tl::unexpected<spdld::Status>(spdld::errno_status(errno, "signalfd"));
  return fd;
}

bool should_leave(const spdld::Daemon& daemon, const Flags& flags) {
  if (flags.exit_when_idle_s < 0) return false;
  const std::chrono::duration<double> wanted(flags.exit_when_idle_s);
  const std::chrono::duration<double> idle = daemon.idle_for();
  return daemon.was_used() ? idle >= wanted
                           : idle >= std::max(wanted, decltype(wanted)(kUnusedGrace));
}

// Until a signal, the starter's end, or idleness ends it.
void serve(spdld::Daemon& daemon, const Flags& flags, int signals) {
  const bool may_leave = flags.exit_when_idle_s >= 0;
  while (true) {
    pollfd watched[2] = {{.fd = signals, .events = POLLIN, .revents = 0},
                         {.fd = flags.parent_fd, .events = POLLIN, .revents = 0}};
    constexpr int kTickMs = 1000;
    constexpr int kIdleTickMs = 200;
    poll(watched, 2, may_leave ? kIdleTickMs : kTickMs);
    if ((watched[0].revents & POLLIN) != 0) {
      signalfd_siginfo info{};
      if (read(signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo != SIGHUP) {
          spdlog::info("stops on signal {}", info.ssi_signo);
          return;
        }
        spdld::delivery::notify_systemd("RELOADING=1");
        if (const auto config = spdld::spec::load_daemon_config(flags.config, flags.overrides)) {
          daemon.reload(*config);
        } else {
          spdlog::error("not reloaded: {}", config.error().message());
        }
        spdld::delivery::notify_systemd("READY=1");
      }
    }
    if (watched[1].revents != 0) {
      spdlog::info("stops with the process that started it");
      return;
    }
    daemon.tick();
    spdld::delivery::notify_systemd("WATCHDOG=1");
    if (should_leave(daemon, flags)) {
      spdlog::info("leaves: nobody is attached any more");
      return;
    }
  }
}

const spdld::Daemon* stopping = nullptr;

// On SIGALRM. A thread that hangs in the kernel keeps even an ended process, and all that it has
// open.
extern "C" void end_without_it(int) {
  stopping->release_locks();
  std::_Exit(kFailed);
}

int run(const Flags& flags) {
  if (const auto armed = SPDLD_ARM_FAILPOINTS(); !armed.ok()) return complain(armed);
  const auto config = spdld::spec::load_daemon_config(flags.config, flags.overrides);
  if (!config) return complain(config.error());
  if (flags.check) return check(*config);
  if (const auto status = spdld::log::configure(config->log.level, config->log.format);
      !status.ok())
    return complain(status);
  const auto signals = take_signals();
  if (!signals) return complain(signals.error());
  auto daemon = spdld::Daemon::start(
      *config, {.version = SPDLD_VERSION,
                .own_runtime_dir = flags.own_runtime_dir,
                .launched = flags.exit_when_idle_s >= 0 || flags.parent_fd >= 0});
  if (!daemon) return complain(daemon.error());
  spdld::delivery::notify_systemd("READY=1");
  serve(**daemon, flags, signals->get());
  spdld::delivery::notify_systemd("STOPPING=1");
  stopping = daemon->get();
  std::signal(SIGALRM, end_without_it);
  alarm(kStopDeadlineS);
  if (!(*daemon)->stop()) {
    // All is written and everybody has been told; the threads that are left own what they touch.
    spdlog::info("leaves behind reads that their storage has not answered");
    (void)spdld::log::drain(kLogPatience);
    (*daemon)->release_locks();  // those threads may not end with the process
    std::_Exit(kDone);
  }
  alarm(0);
  return kDone;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"spdld: feeds every training process of this machine"};
  Flags flags;
  auto* const version = app.add_flag("--version", flags.version, "print the version, then exit");
  app.add_flag("--verbose", flags.verbose, "with --version: also print libraries and codecs")
      ->needs(version);
  app.add_option("--config", flags.config, "the daemon's YAML; without it, the defaults")
      ->type_name("FILE");
  app.add_option("--set", flags.overrides, "override one value of it, such as arena.budget=4GiB")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--check", flags.check, "check the configuration and its pipelines, then exit");
  app.add_option("--print-schema", flags.schema,
                 "print a JSON Schema for editors: pipeline or daemon")
      ->check(CLI::IsMember({"pipeline", "daemon"}))
      ->expected(0, 1)
      ->default_str("pipeline");
  app.add_flag("--print-ops", flags.ops, "print all ops and their parameters, as Markdown");
  app.add_option("--probe", flags.probe,
                 "print what a file of video or sound holds, as JSON: for spdlctl probe")
      ->type_name("FILE");
  app.add_option("--exit-when-idle", flags.exit_when_idle_s,
                 "leave this long after the last consumer did")
      ->type_name("SECONDS")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--own-runtime-dir", flags.own_runtime_dir, "remove runtime_dir when leaving");
  app.add_option("--parent-fd", flags.parent_fd, "leave when this pipe ends")->type_name("FD");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& parsed) {
    if (parsed.get_exit_code() == 0) return app.exit(parsed) == 0 ? kDone : kUsage;  // --help
    std::fprintf(stderr, "spdld: %s; 'spdld --help' lists the options\n", parsed.what());
    return kUsage;
  }
  if (flags.version) return print_version(flags.verbose);
  if (app.count("--print-schema") > 0) return print_schema(flags.schema);
  if (flags.ops) return print_ops();
  if (app.count("--probe") > 0) return print_probe(flags.probe);
  const int result = run(flags);
  (void)spdld::log::drain(kLogPatience);
  return result;
}
