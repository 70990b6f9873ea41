// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ctl/address.h"
#include "ctl/commands.h"
#include "ctl/failure.h"
#include "ctl/interrupt.h"
#include "ctl/listing.h"
#include "ctl/submission.h"

namespace spdld::ctl {
namespace {

template <typename Messages>
void print_json(const Messages& messages, std::ostream& out) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& message : messages) list.push_back(to_json(message));
  out << list.dump(2) << '\n';
}

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

std::shared_ptr<v1::JobKey> add_filter(CLI::App& command) {
  auto key = std::make_shared<v1::JobKey>();
  command.add_option_function<std::string>(
      "--job", [key](const std::string& name) { key->set_job(name); }, "of this job only");
  command.add_option_function<std::string>(
      "--pipeline", [key](const std::string& name) { key->set_pipeline(name); },
      "of this pipeline only");
  return key;
}

void print_job(const v1::Job& job, const Output& output, const Context& context) {
  if (output.json()) {
    context.out << to_json(job).dump(2) << '\n';
    return;
  }
  google::protobuf::RepeatedPtrField<v1::Job> jobs;
  *jobs.Add() = job;
  jobs_table(jobs).print(context.out);
  Table shards({">SHARD", ">SESSION", ">PID", ">EPOCH", ">STEP"});
  for (const v1::Shard& shard : job.shards()) {
    const bool attached = shard.session() != 0;
    shards.add({std::to_string(shard.shard()), attached ? std::to_string(shard.session()) : "-",
                attached ? std::to_string(shard.pid()) : "-", std::to_string(shard.epoch()),
                std::to_string(shard.step())});
  }
  if (shards.rows() > 0) {
    context.out << '\n';
    shards.print(context.out);
  }
}

void add_status(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand("status", "how the daemon is");
  const auto output = add_output(*command);
  const auto every_s = std::make_shared<double>(0);
  command->add_option("--watch", *every_s, "again every so many seconds, until Ctrl-C")
      ->check(CLI::Range(0.1, 60.0));
  command->callback([&context, output, every_s] {
    const std::string address = runtime_dir(context.address);
    const auto show = [&](const v1::Daemon& daemon) {
      if (output->json()) {
        // One line a snapshot when there is more than one.
        context.out << to_json(daemon).dump(*every_s > 0 ? -1 : 2) << '\n';
      } else {
        print_status(daemon, address, context.out);
      }
      context.out.flush();
    };
    Daemon daemon = context.connect();
    if (*every_s <= 0) return show(daemon.stats(false, false).daemon());
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

void add_get_pipelines(CLI::App& get, const Context& context) {
  CLI::App* command = get.add_subcommand("pipelines", "what is applied; with a name: one of them");
  const auto name = std::make_shared<std::string>();
  const auto format = std::make_shared<std::string>("table");
  command->add_option("NAME", *name, "of a pipeline");
  command->add_option("-o,--output", *format, "table, json, or (with NAME) yaml: as applied")
      ->check(CLI::IsMember({"table", "json", "yaml"}))
      ->capture_default_str();
  command->callback([&context, name, format] {
    if (*format == "yaml" && name->empty())
      throw Failure(kWrongUsage, "get pipelines -o yaml needs the name of a pipeline");
    Daemon daemon = context.connect();
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
  const auto output = add_output(*command);
  const auto key = std::make_shared<v1::JobKey>();
  command->add_option("NAME", *key->mutable_job(), "of a job");
  command->add_option("--pipeline", *key->mutable_pipeline(), "that the job runs");
  command->callback([&context, output, key] {
    Daemon daemon = context.connect();
    if (!key->job().empty()) return print_job(daemon.job(*key), *output, context);
    v1::ListJobsResponse jobs = daemon.jobs();
    keep(jobs.mutable_jobs(), *key);
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
  sessions->callback([&context, output = add_output(*sessions), key = add_filter(*sessions)] {
    v1::ListSessionsResponse found = context.connect().sessions();
    keep(found.mutable_sessions(), *key);
    print(found.sessions(), *output, sessions_table, "sessions", context);
  });
  CLI::App* stages = get->add_subcommand("stages", "what each stage of running jobs costs");
  stages->callback([&context, output = add_output(*stages), key = add_filter(*stages)] {
    v1::StatsSnapshot found = context.connect().stats(true, false);
    keep(found.mutable_stages(), *key);
    print(found.stages(), *output, stages_table, "stages", context);
  });
  CLI::App* failures = get->add_subcommand("failures", "items that could not be delivered");
  failures->callback([&context, output = add_output(*failures), key = add_filter(*failures)] {
    v1::StatsSnapshot found = context.connect().stats(false, true);
    keep(found.mutable_failures(), *key);
    print(found.failures(), *output, failures_table, "failures", context);
  });
  CLI::App* classes = get->add_subcommand("classes", "the names behind a pipeline's labels");
  const auto name = std::make_shared<std::string>();
  classes->add_option("PIPELINE", *name, "of which pipeline")->required();
  classes->callback([&context, output = add_output(*classes), name] {
    const v1::ClassesResponse found = context.connect().classes(*name);
    if (output->json()) {
      context.out << to_json(found)["classes"].dump(2) << '\n';
    } else {
      classes_table(found).print(context.out);
    }
  });
}

// A job's name and, where that is not enough, its pipeline.
std::shared_ptr<v1::JobKey> add_job_key(CLI::App& command) {
  auto key = std::make_shared<v1::JobKey>();
  command.add_option("NAME", *key->mutable_job(), "of the job")->required();
  command.add_option("--pipeline", *key->mutable_pipeline(), "that the job runs");
  return key;
}

void add_job_create(CLI::App& job, const Context& context) {
  struct Asked {
    v1::CreateJobRequest request;
    std::uint32_t num_shards = 1;
    std::uint32_t replicas = 1;
    std::optional<std::uint64_t> seed;
    std::optional<std::uint64_t> batch_size;
    std::uint64_t max_epochs = 0;
    std::string epochs = "auto";
    std::vector<std::string> vars;
  };
  CLI::App* command = job.add_subcommand("create", "declares a job before its ranks come");
  const auto asked = std::make_shared<Asked>();
  command->add_option("NAME", *asked->request.mutable_job(), "of the job")->required();
  command->add_option("--pipeline", *asked->request.mutable_pipeline(), "that it runs")->required();
  command->add_option("--shards", asked->num_shards, "disjoint parts of the data; one a rank")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--replicas", asked->replicas, "consumers of one shard")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--seed", asked->seed, "default: the pipeline's");
  command->add_option("--batch-size", asked->batch_size, "default: the pipeline's");
  command->add_option("--var", asked->vars, "NAME=VALUE, of the pipeline's vars")
      ->allow_extra_args(false);
  command->add_option("--epochs", asked->epochs, "auto, or manual: opened by 'job advance'")
      ->check(CLI::IsMember({"auto", "manual"}))
      ->capture_default_str();
  command->add_option("--max-epochs", asked->max_epochs, "0: no end")->capture_default_str();
  command->callback([&context, asked, output = add_output(*command)] {
    v1::CreateJobRequest& request = asked->request;
    request.set_num_shards(asked->num_shards);
    request.set_replicas(asked->replicas);
    if (asked->seed) request.set_seed(*asked->seed);
    if (asked->batch_size) request.set_batch_size(*asked->batch_size);
    for (const auto& [name, value] : parse_vars(asked->vars))
      (*request.mutable_vars())[name] = value;
    request.set_epochs(asked->epochs == "manual" ? v1::EPOCH_MODE_MANUAL : v1::EPOCH_MODE_AUTO);
    request.set_max_epochs(asked->max_epochs);
    print_job(context.connect().create_job(request), *output, context);
  });
}

void add_job(CLI::App& app, const Context& context) {
  CLI::App* job = app.add_subcommand("job", "makes and steers jobs");
  job->require_subcommand(1);
  job->fallthrough();
  add_job_create(*job, context);

  CLI::App* advance = job->add_subcommand("advance", "opens the next epoch of a manual job");
  const auto to = std::make_shared<std::optional<std::uint64_t>>();
  advance->add_option("--to", *to, "open every epoch up to and including this one");
  advance->callback([&context, to, key = add_job_key(*advance), output = add_output(*advance)] {
    print_job(context.connect().advance_epoch(*key, *to), *output, context);
  });

  CLI::App* seek = job->add_subcommand("seek", "all shards go on at a step of an epoch");
  const auto epoch = std::make_shared<std::uint64_t>(0);
  const auto step = std::make_shared<std::uint64_t>(0);
  seek->add_option("--epoch", *epoch, "from 0")->required();
  seek->add_option("--step", *step, "of the epoch, from 0")->capture_default_str();
  seek->callback([&context, epoch, step, key = add_job_key(*seek), output = add_output(*seek)] {
    print_job(context.connect().seek(*key, *epoch, *step), *output, context);
  });

  CLI::App* resize = job->add_subcommand("resize", "deals the rest of the epoch out anew");
  const auto shards = std::make_shared<std::uint32_t>(0);
  resize->add_option("--shards", *shards, "how many there are from now on")
      ->required()
      ->check(CLI::PositiveNumber);
  resize->callback([&context, shards, key = add_job_key(*resize), output = add_output(*resize)] {
    print_job(context.connect().resize(*key, *shards), *output, context);
  });
}

void add_evict(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand("evict", "ends a consumer's session");
  const auto session = std::make_shared<std::uint64_t>(0);
  const auto reason = std::make_shared<std::string>("evicted by an operator");
  command->add_option("SESSION", *session, "as 'get sessions' shows it")->required();
  command->add_option("--reason", *reason, "shown to the consumer")->capture_default_str();
  command->callback([&context, session, reason] {
    context.connect().evict(*session, *reason);
    context.out << fmt::format("session {} evicted\n", *session);
  });
}

}  // namespace

void add_control_commands(CLI::App& app, const Context& context) {
  add_status(app, context);
  add_get(app, context);
  add_job(app, context);
  add_evict(app, context);
}

}  // namespace spdld::ctl
