// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "base/text/counted.h"
#include "ctl/commands.h"
#include "ctl/failure.h"
#include "ctl/interrupt.h"
#include "ctl/listing.h"
#include "ctl/numbers.h"

namespace spdld::ctl {
namespace {

template <typename Messages>
void print(const Messages& messages, const Output& output, Table (*table)(const Messages&),
           const char* what, const Context& context) {
  if (output.json()) return print_json(messages, context.out);
  const Table shown = table(messages);
  if (shown.rows() == 0) {
    context.out << "no " << what << '\n';
  } else {
    shown.print(context.out);
  }
}

// Keeps what belongs to the job and the pipeline that were asked for; empty ones ask for all.
template <typename Message>
void keep(google::protobuf::RepeatedPtrField<Message>* messages, const v1::JobKey& key) {
  for (int i = messages->size() - 1; i >= 0; --i) {
    const Message& message = messages->Get(i);
    if ((!key.job().empty() && message.job() != key.job()) ||
        (!key.pipeline().empty() && message.pipeline() != key.pipeline())) {
      messages->DeleteSubrange(i, 1);
    }
  }
}

// With the pipeline's name as lists show it.
v1::JobKey as_listed(Daemon& daemon, v1::JobKey key) {
  if (key.pipeline().find('/') != std::string::npos)
    key.set_pipeline(daemon.pipeline(key.pipeline(), false).pipeline().name());
  return key;
}

bool is_pipeline(Daemon& daemon, const std::string& name) {
  const v1::ListPipelinesResponse applied = daemon.pipelines();
  return std::ranges::any_of(applied.pipelines(),
                             [&name](const v1::Pipeline& one) { return one.name() == name; });
}

bool has_any(v1::ListJobsResponse jobs, const v1::JobKey& key) {
  keep(jobs.mutable_jobs(), key);
  return !jobs.jobs().empty();
}

// Throws Failure if the daemon has no job, or no pipeline, of the name that was given. `what` was
// asked for, as `spdlctl get` calls it.
void check_names(Daemon& daemon, const v1::JobKey& key, const std::string& what) {
  if (key.job().empty()) {
    if (key.pipeline().empty() || is_pipeline(daemon, key.pipeline()) ||
        has_any(daemon.jobs(false), key) || has_any(daemon.jobs(true), key))
      return;
    throw Failure(kFailed,
                  fmt::format("there is no pipeline '{}': 'spdlctl get pipelines' lists them",
                              key.pipeline()));
  }
  try {
    (void)daemon.job(key);
  } catch (const Failure& refused) {
    if (refused.transient() || has_any(daemon.jobs(true), key)) return;
    if (is_pipeline(daemon, key.job()))
      throw Failure(kWrongUsage, fmt::format("'{0}' is a pipeline, and no job has that name: "
                                             "'spdlctl get {1} --pipeline {0}' lists those of its "
                                             "jobs",
                                             key.job(), what));
    throw;
  }
}

// Keeps what belongs to the job and the pipeline that were asked for; throws Failure if there is
// nothing because they are not there.
template <typename Message>
void keep_asked(Daemon& daemon, google::protobuf::RepeatedPtrField<Message>* messages,
                const v1::JobKey& asked, const std::string& what) {
  const v1::JobKey key = as_listed(daemon, asked);
  keep(messages, key);
  if (messages->empty()) check_names(daemon, key, what);
}

std::shared_ptr<v1::JobKey> add_filter(CLI::App& command) {
  auto key = std::make_shared<v1::JobKey>();
  command
      .add_option_function<std::string>(
          "--job", [key](const std::string& name) { key->set_job(name); }, "of this job only")
      ->type_name("JOB");
  command
      .add_option_function<std::string>(
          "--pipeline", [key](const std::string& name) { key->set_pipeline(name); },
          "of this pipeline only")
      ->type_name("PIPELINE");
  return key;
}

// Of a daemon that may be starting: for `wait_s` at most.
v1::Daemon status_of(const Context& context, double wait_s) {
  constexpr std::chrono::milliseconds kPause{50};
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(wait_s);
  while (true) {
    try {
      return context.connect().stats().daemon();
    } catch (const Failure& failure) {
      if (failure.exit_code() != kUnreachable || std::chrono::steady_clock::now() >= until) throw;
    }
    std::this_thread::sleep_for(kPause);
  }
}

void add_status(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand("status", "how the daemon is");
  const auto output = add_output(*command);
  const auto every_s = std::make_shared<double>(0);
  command->add_option("--watch", *every_s, "again every so many seconds, until Ctrl-C")
      ->check(CLI::Range(0.1, 60.0));
  const auto wait_s = std::make_shared<double>(0);
  command->add_option("--wait", *wait_s, "for a daemon that is starting: so many seconds at most")
      ->check(CLI::Range(0.0, 86'400.0));
  command->callback([&context, output, every_s, wait_s] {
    const std::string address = context.directory();
    const auto show = [&](const v1::Daemon& daemon) {
      if (output->json()) {
        // One line a snapshot when there is more than one.
        context.out << to_json(daemon).dump(*every_s > 0 ? -1 : 2) << '\n';
      } else {
        print_status(daemon, address, context.out);
      }
      context.out.flush();
    };
    const v1::Daemon first = status_of(context, *wait_s);
    if (*every_s <= 0) return show(first);
    Daemon daemon = context.connect();
    v1::WatchStatsRequest request;
    request.set_interval_ms(static_cast<std::uint32_t>(*every_s * 1000));
    const Interrupt interrupt;
    daemon.watch(request, [&](const v1::StatsSnapshot& snapshot) {
      if (interrupt.requested()) return false;
      show(snapshot.daemon());
      return !interrupt.requested();
    });
  });
}

void add_metrics(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand(
      "metrics", "what Prometheus scrapes, in its text format: for node_exporter");
  command->callback([&context] { context.out << context.connect().metrics(); });
}

void add_get_pipelines(CLI::App& get, const Context& context) {
  CLI::App* command = get.add_subcommand("pipelines", "what is applied; with a name: one of them");
  command->alias("pipeline");
  const auto name = std::make_shared<std::string>();
  const auto format = std::make_shared<std::string>("table");
  const auto history = std::make_shared<bool>(false);
  command->add_option("PIPELINE", *name, "this one only");
  command->add_flag("--history", *history, "its versions, oldest first");
  command->add_option("-o,--output", *format, "table, json, or (with PIPELINE) yaml: as applied")
      ->check(CLI::IsMember({"table", "json", "yaml"}))
      ->capture_default_str();
  command->callback([&context, name, format, history] {
    if (*format == "yaml" && name->empty())
      throw Failure(kWrongUsage, "get pipelines -o yaml needs the name of a pipeline");
    if (*history && name->empty())
      throw Failure(kWrongUsage, "get pipelines --history needs the name of a pipeline");
    if (*history && *format == "yaml") {
      throw Failure(kWrongUsage,
                    "get pipelines --history is a list: print it with -o table or -o json");
    }
    Daemon daemon = context.connect();
    if (*history) {
      return print(daemon.history(*name).revisions(), Output{*format}, history_table, "versions",
                   context);
    }
    if (name->empty()) {
      return print(daemon.pipelines().pipelines(), Output{*format}, pipelines_table, "pipelines",
                   context);
    }
    const v1::GetPipelineResponse found = daemon.pipeline(*name, *format == "yaml");
    if (*format == "yaml") {
      context.out << found.yaml();
    } else if (*format == "json") {
      context.out << to_json(found.pipeline()).dump(2) << '\n';
    } else {
      google::protobuf::RepeatedPtrField<v1::Pipeline> one;
      *one.Add() = found.pipeline();
      pipelines_table(one).print(context.out);
    }
  });
}

void add_get_jobs(CLI::App& get, const Context& context) {
  CLI::App* command = get.add_subcommand("jobs", "jobs; with a name: one of them, with its shards");
  command->alias("job");
  const auto output = add_output(*command);
  const auto key = std::make_shared<v1::JobKey>();
  const auto ended = std::make_shared<bool>(false);
  command->add_option("JOB", *key->mutable_job(), "this one only");
  command->add_option("--pipeline", *key->mutable_pipeline(), "that the job runs")
      ->type_name("PIPELINE");
  command->add_flag("--ended", *ended, "how each job ended the last time, the latest first");
  command->callback([&context, output, key, ended] {
    Daemon daemon = context.connect();
    if (!key->job().empty() && !*ended) return show_job(daemon.job(*key), *output, context);
    v1::ListJobsResponse jobs = daemon.jobs(*ended);
    const v1::JobKey of = as_listed(daemon, *key);
    keep(jobs.mutable_jobs(), of);
    if (jobs.jobs().empty() && key->job().empty()) check_names(daemon, of, "jobs");
    if (*ended) {
      const char* const what =
          key->job().empty() ? "jobs have ended" : "job of this name has ended";
      return print(jobs.jobs(), *output, ended_jobs_table, what, context);
    }
    print(jobs.jobs(), *output, jobs_table, "jobs", context);
  });
}

void add_get(CLI::App& app, const Context& context) {
  CLI::App* get = app.add_subcommand("get", "lists what the daemon has");
  get->require_subcommand(1);
  get->fallthrough();
  add_get_pipelines(*get, context);
  add_get_jobs(*get, context);

  CLI::App* sessions = get->add_subcommand("sessions", "attached consumers");
  sessions->alias("session");
  sessions->callback([&context, output = add_output(*sessions), key = add_filter(*sessions)] {
    Daemon daemon = context.connect();
    v1::ListSessionsResponse found = daemon.sessions();
    keep_asked(daemon, found.mutable_sessions(), *key, "sessions");
    print(found.sessions(), *output, sessions_table, "sessions", context);
  });
  CLI::App* users = get->add_subcommand("users", "what users have of the daemon, and may have");
  users->alias("user");
  users->callback([&context, output = add_output(*users)] {
    print(context.connect().users().users(), *output, users_table, "users", context);
  });
  CLI::App* runners = get->add_subcommand("runners", "processes that call users' own functions");
  runners->alias("runner");
  runners->callback([&context, output = add_output(*runners)] {
    print(context.connect().stats({}).daemon().runners(), *output, runners_table, "runners",
          context);
  });
  CLI::App* storage =
      get->add_subcommand("storage", "devices that reads wait for, and for how long");
  storage->callback([&context, output = add_output(*storage)] {
    print(context.connect().stats({}).daemon().storage(), *output, storage_table, "storage",
          context);
  });
  CLI::App* stages = get->add_subcommand("stages", "what each stage of running jobs costs");
  stages->alias("stage");
  const auto ended = std::make_shared<bool>(false);
  stages->add_flag("--ended", *ended, "of jobs that have ended, instead");
  stages->callback([&context, output = add_output(*stages), key = add_filter(*stages), ended] {
    v1::GetStatsRequest wanted;
    wanted.set_stages(true);
    wanted.set_ended(*ended);
    Daemon daemon = context.connect();
    v1::StatsSnapshot found = daemon.stats(wanted);
    keep_asked(daemon, found.mutable_stages(), *key, "stages");
    print(found.stages(), *output, stages_table, "stages", context);
  });
  CLI::App* failures = get->add_subcommand(
      "failures",
      "items that could not be delivered, and what ended jobs; also of jobs that ended");
  failures->alias("failure");
  const auto failures_key = add_filter(*failures);
  failures->add_option_function<std::string>(
      "JOB", [failures_key](const std::string& name) { failures_key->set_job(name); },
      "of this job only");
  failures->callback([&context, output = add_output(*failures), key = failures_key] {
    v1::GetStatsRequest wanted;
    wanted.set_failures(true);
    wanted.set_job(key->job());
    Daemon daemon = context.connect();
    v1::StatsSnapshot found = daemon.stats(wanted);
    keep_asked(daemon, found.mutable_failures(), *key, "failures");
    print(found.failures(), *output, failures_table, "failures", context);
  });
  CLI::App* classes = get->add_subcommand("classes", "the names behind a pipeline's labels");
  classes->alias("class");
  const auto name = std::make_shared<std::string>();
  classes->add_option("PIPELINE", *name, "of which pipeline")->required();
  classes->callback([&context, output = add_output(*classes), name] {
    const v1::ClassesResponse found = context.connect().classes(*name);
    if (output->json()) {
      context.out << classes_json(found).dump(2) << '\n';
    } else {
      classes_table(found).print(context.out);
    }
  });
}

void add_evict(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand("evict", "ends a consumer's session");
  const auto session = std::make_shared<std::uint64_t>(0);
  const auto reason = std::make_shared<std::string>("evicted by an operator");
  command->add_option("SESSION", *session, "as 'get sessions' shows it")
      ->required()
      ->check(whole_number());
  command->add_option("--reason", *reason, "shown to the consumer")->capture_default_str();
  command->callback([&context, session, reason, output = add_output(*command)] {
    context.connect().evict(*session, *reason);
    tell({{"session", *session}, {"evicted", true}, {"reason", *reason}},
         fmt::format("session {} evicted", *session), *output, context);
  });
}

// Returns once no rank is attached, nor awaited. Throws Failure if that is not to be.
v1::Drain await_ranks(Daemon& daemon, v1::Drain drain, const Interrupt& interrupt) {
  const auto is_done = [&drain] { return drain.ranks() == 0 && drain.awaited_jobs() == 0; };
  constexpr std::uint32_t kLookEveryMs = 200;
  v1::WatchStatsRequest request;
  request.set_interval_ms(kLookEveryMs);
  bool drained = true;
  try {
    daemon.watch(request, [&](const v1::StatsSnapshot& snapshot) {
      drained = snapshot.daemon().has_drain();
      if (drained) drain = snapshot.daemon().drain();
      return drained && !is_done() && !interrupt.requested();
    });
  } catch (const Failure& gone) {
    if (!gone.transient()) throw;
    throw Failure(gone.exit_code(),
                  fmt::format("{}; this was while its ranks were waited for. A daemon that comes "
                              "back is still drained: 'spdlctl drain --wait' waits again",
                              gone.what()));
  }
  if (!drained)
    throw Failure(kFailed, fmt::format("the daemon is drained no more: somebody has ended that "
                                       "while its ranks were waited for; {} attached the last time",
                                       counted(drain.ranks(), "rank was", "ranks were")));
  if (!is_done())
    throw Failure(kFailed,
                  fmt::format("interrupted; the daemon stays drained {}; 'spdlctl undrain' "
                              "has it take new jobs again",
                              show_drain(drain)));
  return drain;
}

void add_drain(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand(
      "drain", "for admins: no new jobs, also after a restart; those that are there go on");
  const auto wait = std::make_shared<bool>(false);
  command->add_flag("--wait", *wait,
                    "until no rank is attached any more; Ctrl-C leaves the daemon drained");
  command->callback([&context, wait, output = add_output(*command)] {
    Daemon daemon = context.connect();
    std::optional<Interrupt> interrupt;
    if (*wait) interrupt.emplace();
    v1::DrainResponse told = daemon.drain();
    if (!output->json())
      context.out << (told.began() ? "drained " : "drained already, ") << show_drain(told.drain())
                  << std::endl;
    if (interrupt) {
      *told.mutable_drain() = await_ranks(daemon, told.drain(), *interrupt);
      if (!output->json()) context.out << "no rank is attached any more\n";
    }
    if (output->json()) context.out << to_json(told).dump(2) << '\n';
  });
  CLI::App* back = app.add_subcommand("undrain", "for admins: takes new jobs again");
  back->callback([&context, output = add_output(*back)] {
    const v1::UndrainResponse told = context.connect().undrain();
    if (output->json()) {
      context.out << to_json(told).dump(2) << '\n';
    } else if (told.has_ended()) {
      context.out << fmt::format("new jobs are taken again; it was drained since {} by uid {}\n",
                                 show_time(told.ended().since_unix_ms()), told.ended().by());
    } else {
      context.out << "it is not drained: new jobs are taken\n";
    }
  });
}

}  // namespace

void add_control_commands(CLI::App& app, const Context& context) {
  add_status(app, context);
  add_metrics(app, context);
  add_get(app, context);
  add_evict(app, context);
  add_drain(app, context);
}

}  // namespace spdld::ctl
