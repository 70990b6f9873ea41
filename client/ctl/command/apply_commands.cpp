// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/text/counted.h"
#include "ctl/commands.h"
#include "ctl/failure.h"
#include "ctl/joint_swap.h"
#include "ctl/listing.h"
#include "ctl/numbers.h"
#include "ctl/program/runners.h"
#include "ctl/submission.h"
#include "ctl/swap_options.h"

namespace spdld::ctl {
namespace {

using Words = std::vector<std::string>;

// What a user types to do the same again, without what is about running jobs.
Words apply_words(const Submission& submission) {
  Words words = {"apply", "-f", submission.file};
  for (const std::string& var : submission.vars) words.insert(words.end(), {"--var", var});
  return words;
}

std::string command_at(const Context& context, const Words& words, const Words& more) {
  Words all = {"spdlctl"};
  if (!context.addresses.empty()) all.insert(all.end(), {"--address", context.directory()});
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), more.begin(), more.end());
  return shell_command(all);
}

void print_pipeline(const v1::Pipeline& pipeline, const std::string& done, std::ostream& out) {
  out << fmt::format("pipeline '{}' {}: {}, {}, batches of {}\n", cell(pipeline.name()), done,
                     counted(pipeline.items(), "item"),
                     counted(pipeline.classes(), "class", "classes"), pipeline.batch_size());
  for (const v1::Tensor& tensor : pipeline.tensors())
    out << fmt::format("  {} {}\n", cell(tensor.name()), show_tensor(tensor));
}

// `version`: what was applied.
void print_job_swap(const v1::JobSwap& job, std::uint32_t version, std::ostream& out) {
  if (job.tuned()) {
    out << fmt::format("job '{}' runs version {}: changed at once, only live values differ\n",
                       cell(job.job()), job.version());
  } else if (job.runs()) {
    out << fmt::format(
        "job '{}' runs version {} already, since {}{}\n", cell(job.job()), job.version(),
        show_place(job.from()),
        job.version() == version ? "" : fmt::format("; version {} is the same for it", version));
  } else {
    out << fmt::format("job '{}' changes to version {} at {}\n", cell(job.job()), job.version(),
                       show_place(job.from()));
  }
  for (const v1::PlannedChange& change : job.replaces())
    out << fmt::format("  replaces the change to version {} that was to come at {}\n",
                       change.version(), show_place(change.from()));
  for (const v1::Override& given : job.overrides())
    out << fmt::format("job '{}' said {}={}; it runs with {}={} from {} on\n", cell(job.job()),
                       cell(given.name()), cell(given.own()), cell(given.name()),
                       cell(given.given()), show_place(job.from()));
}

void print_warnings(const v1::Pipeline& pipeline, const Context& context) {
  for (const std::string& warning : pipeline.warnings())
    context.err << fmt::format("spdlctl: warning: {}\n", cell(warning));
}

// `dropped`: nothing was applied, a change of a job does not come.
void print_swap(const v1::SwapResult& result, const std::string& done, const Context& context,
                bool dropped = false) {
  print_pipeline(result.pipeline(), done, context.out);
  print_warnings(result.pipeline(), context);
  for (const v1::JobSwap& job : result.jobs())
    print_job_swap(job, dropped ? job.version() : result.pipeline().version(), context.out);
  if (result.jobs().empty()) {
    context.out << fmt::format("no job runs it: version {} is what new ones get\n",
                               result.pipeline().version());
  }
}

// Says which jobs go on with other content than the current version has for them, and what would
// change them. `words` are the command that would, without what says which and when.
void print_who_stays(const v1::Pipeline& pipeline, const Words& words, const Context& context) {
  const auto& staying = pipeline.staying();
  if (staying.empty()) return;
  std::map<std::uint32_t, int> by_version;
  for (const v1::StayingJob& job : staying) ++by_version[job.version()];
  std::string versions;
  for (const auto& [version, jobs] : by_version) {
    if (versions.empty()) {
      versions = fmt::format("{} running {} on version {}", jobs,
                             jobs == 1 ? "job stays" : "jobs stay", version);
    } else {
      versions += fmt::format(", {} on version {}", jobs, version);
    }
  }
  const bool one = staying.size() == 1;
  Words more = one ? Words{"--job", staying[0].job()} : Words{"--all-jobs"};
  more.insert(more.end(), {"--at", "next-epoch"});
  context.out << fmt::format("{}. To change {}:\n  {}\n", versions, one ? "it" : "them",
                             command_at(context, words, more));
}

void apply_here(const Context& context, const Submission& submission, bool dry_run,
                const Output& output) {
  const v1::PipelineText text = submission.read();
  const v1::Pipeline pipeline = context.connect().apply(
      text, dry_run, starting_runners(context.progress(), submission.python, context.directory()));
  if (output.json()) {
    context.out << to_json(pipeline).dump(2) << '\n';
    return;
  }
  print_warnings(pipeline, context);
  if (dry_run) return print_pipeline(pipeline, "would be applied", context.out);
  print_pipeline(pipeline, fmt::format("version {} applied", pipeline.version()), context.out);
  print_who_stays(pipeline, apply_words(submission), context);
}

void swap_here(const Context& context, const Submission& submission, const v1::SwapRequest& swap,
               const Output& output) {
  const v1::PipelineText text = submission.read();
  const v1::SwapResult result = context.connect().swap(
      text, swap, false,
      starting_runners(context.progress(), submission.python, context.directory()));
  if (output.json()) {
    context.out << to_json(result).dump(2) << '\n';
    return;
  }
  print_swap(result, fmt::format("version {} applied", result.pipeline().version()), context);
}

void swap_at_all(const Context& context, const std::vector<std::string>& directories,
                 const Submission& submission, const v1::SwapRequest& swap, const Output& output) {
  JointSwap joint;
  joint.directories = directories;
  joint.text = submission.read();
  joint.swap = swap;
  joint.timeout = context.timeout();
  Words words = {"spdlctl"};
  for (const std::string& directory : directories)
    words.insert(words.end(), {"--address", directory});
  const Words apply = apply_words(submission);
  words.insert(words.end(), apply.begin(), apply.end());
  words.insert(words.end(), {"--job", swap.job(), "--at", at_option(swap.step())});
  if (swap.allow_schema_change()) words.push_back("--allow-schema-change");
  joint.command = shell_command(words);
  const std::vector<v1::SwapResult> results =
      swap_everywhere(joint, context.progress(), steady_now_ms());
  if (output.json()) {
    auto list = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < results.size(); ++i)
      list.push_back({{"address", directories[i]}, {"swap", to_json(results[i])}});
    context.out << list.dump(2) << '\n';
    return;
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    context.out << directories[i] << '\n';
    print_swap(results[i], fmt::format("version {} applied", results[i].pipeline().version()),
               context);
  }
}

void add_apply(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand(
      "apply", "checks, indexes and keeps a pipeline; changes running jobs to it");
  const auto dry_run = std::make_shared<bool>(false);
  command->add_flag("--dry-run", *dry_run, "all of it but keeping");
  command->callback([&context, dry_run, submission = add_tried_submission(*command),
                     swaps = add_swap_options(*command), output = add_output(*command)] {
    const std::optional<v1::SwapRequest> swap = swaps->request();
    if (swap && *dry_run) {
      throw Failure(kWrongUsage,
                    "--dry-run checks the pipeline and changes no job: leave out either --dry-run "
                    "or --job and --all-jobs");
    }
    const std::vector<std::string> directories = context.directories();
    if (directories.size() == 1) {
      if (swap) return swap_here(context, *submission, *swap, *output);
      return apply_here(context, *submission, *dry_run, *output);
    }
    if (!swap || swap->all_jobs() || swap->at() != v1::SWAP_POINT_STEP) {
      throw Failure(kWrongUsage,
                    "an apply to several daemons changes one job at one step: give --job JOB and "
                    "--at step:EPOCH/STEP; for anything else run it once for each --address");
    }
    swap_at_all(context, directories, *submission, *swap, *output);
  });
}

void print_rollback(const v1::SwapResult& result, bool swapped, const Context& context) {
  const v1::Pipeline& pipeline = result.pipeline();
  std::string done = fmt::format("rolled back, as version {}", pipeline.version());
  const bool stays = result.unchanged() && result.repeats() == 0;
  const bool is_back = !result.unchanged() && result.repeats() == pipeline.version();
  if (stays || is_back) {
    done = fmt::format("{} at version {}", stays ? "stays" : "is back", pipeline.version());
  } else if (result.unchanged()) {
    done = fmt::format("is at version {} already", pipeline.version());
    if (result.repeats() != pipeline.version())
      done += fmt::format(", which repeats version {}", result.repeats());
  }
  if (swapped) return print_swap(result, done, context, stays || is_back);
  if (result.unchanged()) {
    context.out << fmt::format("pipeline '{}' {}: nothing was changed\n", cell(pipeline.name()),
                               done);
  } else {
    print_pipeline(pipeline, done, context.out);
  }
  print_who_stays(pipeline, {"rollback", pipeline.name(), "--to", std::to_string(result.repeats())},
                  context);
}

void add_rollback(CLI::App& app, const Context& context) {
  CLI::App* command =
      app.add_subcommand("rollback", "applies an earlier version of a pipeline again");
  const auto name = std::make_shared<std::string>();
  const auto to = std::make_shared<std::optional<std::uint32_t>>();
  command->add_option("PIPELINE", *name, "which")->required();
  command
      ->add_option("--to", *to,
                   "its version, as 'get pipelines PIPELINE --history' shows it; default: one "
                   "further back than what is applied, each time")
      ->check(whole_number(1));
  command->callback(
      [&context, name, to, swaps = add_swap_options(*command), output = add_output(*command)] {
        v1::RollbackRequest request;
        request.set_pipeline(*name);
        if (*to) request.set_version(**to);
        const std::optional<v1::SwapRequest> swap = swaps->request();
        if (swap) *request.mutable_swap() = *swap;
        const v1::SwapResult result = context.connect().rollback(request, context.progress());
        if (output->json()) {
          context.out << to_json(result).dump(2) << '\n';
          return;
        }
        print_rollback(result, swap.has_value(), context);
      });
}

}  // namespace

void add_apply_commands(CLI::App& app, const Context& context) {
  add_apply(app, context);
  add_rollback(app, context);
}

}  // namespace spdld::ctl
