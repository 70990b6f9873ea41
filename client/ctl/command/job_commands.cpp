// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text/counted.h"
#include "ctl/commands.h"
#include "ctl/failure.h"
#include "ctl/listing.h"
#include "ctl/numbers.h"
#include "ctl/submission.h"
#include "ctl/swap_options.h"

namespace spdld::ctl {
namespace {

// What a job may take, as --weight, --cpus and --memory say it.
struct Limits {
  std::optional<double> weight;
  std::optional<std::uint32_t> cpus;
  std::optional<std::uint64_t> memory;
};

void add_limits(CLI::App& command, Limits& limits) {
  command
      .add_option("--weight", limits.weight,
                  "share of the CPU workers when jobs compete; a job has 1 unless told otherwise")
      ->check(number_above_zero());
  command.add_option("--cpus", limits.cpus, "CPU workers at once; 0: no limit")
      ->check(whole_number());
  command.add_option("--memory", limits.memory, "of its arenas together, as 2GiB; 0: no limit")
      ->transform(size_in_bytes());
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
    Limits limits;
    std::vector<std::string> vars;
  };
  CLI::App* command = job.add_subcommand("create", "declares a job before its ranks come");
  const auto asked = std::make_shared<Asked>();
  command->add_option("NAME", *asked->request.mutable_job(), "of the job")->required();
  command->add_option("--pipeline", *asked->request.mutable_pipeline(), "that it runs")
      ->required()
      ->type_name("PIPELINE");
  command->add_option("--shards", asked->num_shards, "disjoint parts of the data; one a rank")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--replicas", asked->replicas, "consumers of one shard")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--seed", asked->seed, "default: the pipeline's")->check(whole_number());
  command->add_option("--batch-size", asked->batch_size, "default: the pipeline's")
      ->check(whole_number(1));
  command->add_option("--var", asked->vars, "NAME=VALUE, of the pipeline's vars")
      ->allow_extra_args(false);
  command->add_option("--epochs", asked->epochs, "auto, or manual: opened by 'job advance'")
      ->check(CLI::IsMember({"auto", "manual"}))
      ->capture_default_str();
  command->add_option("--max-epochs", asked->max_epochs, "0: no end")
      ->check(whole_number())
      ->capture_default_str();
  add_limits(*command, asked->limits);
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
    const Limits& limits = asked->limits;
    if (limits.weight) request.mutable_limits()->set_weight(*limits.weight);
    if (limits.cpus) request.mutable_limits()->set_cpus(*limits.cpus);
    if (limits.memory) request.mutable_limits()->set_arena_bytes(*limits.memory);
    show_job(context.connect().create_job(request), *output, context);
  });
}

// The job, and from where on it `does` what was asked for.
void show_dealt(const v1::Job& job, const std::string& does, const Output& output,
                const Context& context) {
  if (!output.json() && job.has_dealt_from())
    context.out << fmt::format("job '{}' {} from {} on\n\n", cell(job.job()), does,
                               show_place(job.dealt_from()));
  show_job(job, output, context);
}

// The job, and from where on it goes on elsewhere.
void show_sought(const v1::Job& job, const Output& output, const Context& context) {
  if (!output.json() && job.seeks_size() > 0) {
    const v1::Seek& last = job.seeks(job.seeks_size() - 1);
    context.out << fmt::format("job '{}' reads on to {}, and goes on at {} from there\n\n",
                               cell(job.job()), show_place(last.from()), show_place(last.to()));
  }
  show_job(job, output, context);
}

}  // namespace

std::shared_ptr<v1::JobKey> add_job_key(CLI::App& command) {
  auto key = std::make_shared<v1::JobKey>();
  command.add_option("JOB", *key->mutable_job(), "which")->required();
  command.add_option("--pipeline", *key->mutable_pipeline(), "that the job runs")
      ->type_name("PIPELINE");
  return key;
}

void show_job(const v1::Job& job, const Output& output, const Context& context) {
  if (output.json()) {
    context.out << to_json(job).dump(2) << '\n';
  } else {
    print_job(job, context.out);
  }
}

void add_job_commands(CLI::App& app, const Context& context) {
  CLI::App* job = app.add_subcommand("job", "makes and steers jobs");
  job->require_subcommand(1);
  job->fallthrough();
  add_job_create(*job, context);

  CLI::App* advance = job->add_subcommand("advance", "opens the next epoch of a manual job");
  const auto to = std::make_shared<std::optional<std::uint64_t>>();
  advance->add_option("--to", *to, "open every epoch up to and including this one")
      ->check(whole_number());
  advance->callback([&context, to, key = add_job_key(*advance), output = add_output(*advance)] {
    show_job(context.connect().advance_epoch(*key, *to), *output, context);
  });

  CLI::App* seek = job->add_subcommand("seek", "all shards go on at a step of an epoch");
  struct To {
    std::optional<std::uint64_t> epoch, step, skip;
  };
  const auto place = std::make_shared<To>();
  seek->add_option("--epoch", place->epoch, "from 0")->check(whole_number());
  seek->add_option("--step", place->step, "of the epoch, from 0; default: 0")
      ->check(whole_number());
  seek->add_option("--skip", place->skip,
                   "instead: leave out the next so many steps that no shard has begun")
      ->check(whole_number(1));
  seek->callback([&context, place, key = add_job_key(*seek), output = add_output(*seek)] {
    if (place->skip) {
      if (place->epoch || place->step) {
        throw Failure(kWrongUsage,
                      "job seek --skip counts from where the job is: leave --epoch and --step out");
      }
      const v1::Job job = context.connect().skip(*key, *place->skip);
      return show_dealt(job, fmt::format("leaves out {} of rows", counted(*place->skip, "step")),
                        *output, context);
    }
    if (!place->epoch)
      throw Failure(kWrongUsage, "job seek needs to know where: --epoch E [--step S], or --skip N");
    show_sought(context.connect().seek(*key, *place->epoch, place->step.value_or(0)), *output,
                context);
  });

  CLI::App* resize = job->add_subcommand("resize", "deals the rest of the epoch out anew");
  const auto shards = std::make_shared<std::uint32_t>(0);
  resize->add_option("--shards", *shards, "how many there are from now on")
      ->required()
      ->check(whole_number(1));
  resize->callback([&context, shards, key = add_job_key(*resize), output = add_output(*resize)] {
    const v1::Job job = context.connect().resize(*key, *shards);
    show_dealt(job, fmt::format("is dealt out to {}", counted(job.num_shards(), "shard")), *output,
               context);
  });
}

}  // namespace spdld::ctl
