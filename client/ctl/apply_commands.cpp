// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/counted.h"
#include "ctl/commands.h"
#include "ctl/failure.h"
#include "ctl/joint_swap.h"
#include "ctl/listing.h"
#include "ctl/numbers.h"
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

void print_swap(const v1::SwapResult& result, const std::string& done, const Context& context) {
  print_pipeline(result.pipeline(), done, context.out);
  for (const v1::JobSwap& job : result.jobs())
    print_job_swap(job, result.pipeline().version(), context.out);
  if (result.jobs().empty()) {
    context.out << fmt::format("no job runs it: version {} is what new ones get\n",
                               result.pipeline().version());
  }
}

// The version that a job has come to, or will.
std::uint32_t last_version(const v1::Job& job) {
  return job.phases().empty() ? job.pipeline_version()
                              : job.phases(job.phases_size() - 1).pipeline_version();
}

// The versions whose content the current one has.
std::set<std::uint32_t> same_versions(const v1::HistoryResponse& history,
                                      const v1::Pipeline& current) {
  std::set<std::uint32_t> same = {current.version()};
  for (const v1::Revision& revision : history.revisions()) {
    if (revision.content_digest() == current.content_digest()) same.insert(revision.version());
  }
  return same;
}

// Says which jobs go on with other content than the current one's, and what would change them.
// `words` are the command that would, without what says which and when.
void print_who_stays(Daemon& daemon, const v1::Pipeline& pipeline, const Words& words,
                     const Context& context) {
  context.out.flush();                // what was done, before the next call
  std::map<std::uint32_t, int> stay;  // by version
  std::string last;
  int all = 0;
  try {
    const v1::ListJobsResponse found = daemon.jobs();
    std::set<std::uint32_t> same = {pipeline.version()};
    const auto stays = [&](const v1::Job& job) {
      return job.pipeline() == pipeline.name() && !same.contains(last_version(job));
    };
    if (std::any_of(found.jobs().begin(), found.jobs().end(), stays))
      same = same_versions(daemon.history(pipeline.name()), pipeline);
    for (const v1::Job& job : found.jobs()) {
      if (!stays(job)) continue;
      ++stay[last_version(job)];
      ++all;
      last = job.job();
    }
  } catch (const Failure& failure) {
    context.err << fmt::format(
        "spdlctl: applied; which jobs run another version is not known: {}\n", failure.what());
    return;
  }
  if (all == 0) return;
  std::string versions;
  for (const auto& [version, jobs] : stay) {
    if (versions.empty()) {
      versions = fmt::format("{} running {} on version {}", jobs,
                             jobs == 1 ? "job stays" : "jobs stay", version);
    } else {
      versions += fmt::format(", {} on version {}", jobs, version);
    }
  }
  const Words which = all == 1 ? Words{"--job", last} : Words{"--all-jobs"};
  Words more = which;
  more.insert(more.end(), {"--at", "next-epoch"});
  context.out << fmt::format("{}. To change {}:\n  {}\n", versions, all == 1 ? "it" : "them",
                             command_at(context, words, more));
}

void apply_here(const Context& context, const Submission& submission, bool dry_run,
                const Output& output) {
  const v1::PipelineText text = submission.read();
  Daemon daemon = context.connect();
  const v1::Pipeline pipeline = daemon.apply(text, dry_run, context.progress());
  if (output.json()) {
    context.out << to_json(pipeline).dump(2) << '\n';
    return;
  }
  if (dry_run) return print_pipeline(pipeline, "would be applied", context.out);
  print_pipeline(pipeline, fmt::format("version {} applied", pipeline.version()), context.out);
  print_who_stays(daemon, pipeline, apply_words(submission), context);
}

void swap_here(const Context& context, const Submission& submission, const v1::SwapRequest& swap,
               const Output& output) {
  const v1::PipelineText text = submission.read();
  const v1::SwapResult result = context.connect().swap(text, swap, context.progress());
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
  joint.alone = [&](const std::string& directory) {
    Words words = {"spdlctl", "--address", directory};
    const Words apply = apply_words(submission);
    words.insert(words.end(), apply.begin(), apply.end());
    words.insert(words.end(), {"--job", swap.job(), "--at",
                               fmt::format("step:{}/{}", swap.step().epoch(), swap.step().step())});
    if (swap.allow_schema_change()) words.push_back("--allow-schema-change");
    return shell_command(words);
  };
  const std::vector<v1::SwapResult> results =
      swap_everywhere(joint, context.progress(), Pace::real());
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
  command->callback([&context, dry_run, submission = add_submission(*command),
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

// The version whose content the current one repeats, which is what a user would name.
std::uint32_t repeated_version(const v1::HistoryResponse& history, const v1::Pipeline& current) {
  std::uint32_t repeated = current.version();
  for (const v1::Revision& revision : history.revisions()) {
    if (revision.version() < current.version() &&
        revision.content_digest() == current.content_digest()) {
      repeated = revision.version();
    }
  }
  return repeated;
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
        Daemon daemon = context.connect();
        const v1::SwapResult result = daemon.rollback(request, context.progress());
        if (output->json()) {
          context.out << to_json(result).dump(2) << '\n';
          return;
        }
        const v1::Pipeline& pipeline = result.pipeline();
        const std::string done = fmt::format("rolled back, as version {}", pipeline.version());
        if (swap) return print_swap(result, done, context);
        print_pipeline(pipeline, done, context.out);
        const std::uint32_t version = repeated_version(daemon.history(*name), pipeline);
        print_who_stays(daemon, pipeline, {"rollback", *name, "--to", std::to_string(version)},
                        context);
      });
}

}  // namespace

void add_apply_commands(CLI::App& app, const Context& context) {
  add_apply(app, context);
  add_rollback(app, context);
}

}  // namespace spdld::ctl
