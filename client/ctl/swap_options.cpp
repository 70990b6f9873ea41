// SPDX-License-Identifier: Apache-2.0
#include "ctl/swap_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <string_view>

#include "base/text/shell_word.h"
#include "ctl/failure.h"

namespace spdld::ctl {
namespace {

bool parse_number(std::string_view text, std::uint64_t& number) {
  const char* end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, number);
  return failure == std::errc() && stopped == end;
}

void parse_point(const std::string& text, v1::SwapRequest& swap) {
  constexpr std::string_view kStep = "step:";
  const std::string_view rest = text;
  if (rest == "next-epoch") return swap.set_at(v1::SWAP_POINT_NEXT_EPOCH);
  if (rest == "now") return swap.set_at(v1::SWAP_POINT_NOW);
  if (rest.starts_with(kStep)) {
    if (const auto place = parse_place(rest.substr(kStep.size()))) {
      swap.set_at(v1::SWAP_POINT_STEP);
      *swap.mutable_step() = *place;
      return;
    }
  }
  throw Failure(kWrongUsage, fmt::format("--at '{}' is none of next-epoch, now and step:EPOCH/STEP "
                                         "(step:2/0 is where epoch 2 begins)",
                                         text));
}

}  // namespace

std::optional<v1::StepAt> parse_place(std::string_view text) {
  const std::size_t slash = text.find('/');
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  if (slash == std::string_view::npos || !parse_number(text.substr(0, slash), epoch) ||
      !parse_number(text.substr(slash + 1), step))
    return std::nullopt;
  v1::StepAt place;
  place.set_epoch(epoch);
  place.set_step(step);
  return place;
}

std::optional<v1::SwapRequest> SwapOptions::request() const {
  if (!job && !all_jobs) {
    const char* lonely = at ? "--at" : allow_schema_change ? "--allow-schema-change" : nullptr;
    if (lonely == nullptr) return std::nullopt;
    throw Failure(kWrongUsage, fmt::format("{} is about running jobs: say which by --job JOB or "
                                           "--all-jobs, or leave {} out",
                                           lonely, lonely));
  }
  if (job && all_jobs) throw Failure(kWrongUsage, "give either --job or --all-jobs");
  if (job && job->empty()) throw Failure(kWrongUsage, "--job needs the name of a job");
  v1::SwapRequest swap;
  if (job) swap.set_job(*job);
  swap.set_all_jobs(all_jobs);
  parse_point(at.value_or("next-epoch"), swap);
  swap.set_allow_schema_change(allow_schema_change);
  return swap;
}

std::shared_ptr<SwapOptions> add_swap_options(CLI::App& command) {
  auto options = std::make_shared<SwapOptions>();
  command.add_option("--job", options->job, "change this running job, too")->type_name("JOB");
  command.add_flag("--all-jobs", options->all_jobs, "change all jobs that run the pipeline, too");
  command.add_option("--at", options->at, "when they change; default: next-epoch")
      ->type_name("next-epoch|now|step:EPOCH/STEP");
  command.add_flag("--allow-schema-change", options->allow_schema_change,
                   "even if their batches get other names, dtypes or shapes");
  return options;
}

std::string shell_command(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

std::string show_place(const v1::StepAt& at) {
  return fmt::format("epoch {}, step {}", at.epoch(), at.step());
}

std::string at_option(const v1::StepAt& at) {
  return fmt::format("step:{}/{}", at.epoch(), at.step());
}

}  // namespace spdld::ctl
