// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/text/counted.h"
#include "ctl/commands.h"
#include "ctl/complete/complete.h"
#include "ctl/complete/completion_scripts.h"
#include "ctl/complete/shell_value.h"
#include "ctl/listing.h"
#include "ctl/swap_options.h"
#include "ctl/table.h"

namespace spdld::ctl {
namespace {

// For so long Tab waits for the daemon.
constexpr std::chrono::milliseconds kTabPatience{1000};

std::vector<Candidate> pipeline_names(Daemon& daemon) {
  std::vector<Candidate> names;
  const auto reply = daemon.pipelines();
  for (const v1::Pipeline& pipeline : reply.pipelines())
    names.push_back({.word = pipeline.name(),
                     .means = fmt::format("version {}, {}", pipeline.version(),
                                          counted(pipeline.items(), "item"))});
  return names;
}

std::vector<Candidate> job_names(Daemon& daemon, bool ended) {
  std::vector<Candidate> names;
  const auto reply = daemon.jobs(ended);
  for (const v1::Job& job : reply.jobs())
    names.push_back({.word = job.job(), .means = fmt::format("on pipeline {}", job.pipeline())});
  return names;
}

std::vector<Candidate> session_numbers(Daemon& daemon) {
  std::vector<Candidate> numbers;
  const auto reply = daemon.sessions();
  for (const v1::Session& session : reply.sessions())
    numbers.push_back(
        {.word = std::to_string(session.id()),
         .means = fmt::format("shard {}/{} of job {}, pid {}", session.shard(),
                              session.num_shards(), session.job(), show_process(session))});
  return numbers;
}

// The keys that 'tune' may change of the typed job, or the daemon. `to_set`: a value is to follow.
std::vector<Candidate> live_keys(Daemon& daemon, const Typed& typed, bool to_set) {
  const auto word = [&](const char* name) {
    const auto found = typed.find(name);
    return found == typed.end() || found->second.empty() ? std::string() : found->second.front();
  };
  v1::TuneRequest request;
  if (word("JOB") != "daemon") {
    request.mutable_key()->set_job(word("JOB"));
    request.mutable_key()->set_pipeline(word("--pipeline"));
  }
  std::vector<Candidate> keys;
  const auto reply = daemon.tune(request);
  const auto is_given = [&](const std::string& key) {
    const auto begins = [&](const char* name, const std::string& with) {
      const auto found = typed.find(name);
      return found != typed.end() &&
             std::ranges::any_of(found->second,
                                 [&](const std::string& word) { return word.starts_with(with); });
    };
    return begins("VALUES", key + "=") || begins("--reset", key);
  };
  for (const v1::LiveValue& value : reply.values()) {
    if (is_given(value.key())) continue;
    keys.push_back({.word = value.key() + (to_set ? "=" : ""),
                    .means = fmt::format("now {}; {}", value.now(), value.range()),
                    .goes_on = to_set});
  }
  return keys;
}

std::vector<Candidate> names_of(Daemon& daemon, const std::string& kind, const Typed& typed) {
  if (kind == "VALUES" || kind == "KEY") return live_keys(daemon, typed, kind == "VALUES");
  if (kind == "PIPELINE") return pipeline_names(daemon);
  if (kind == "JOB") return job_names(daemon, typed.contains("--ended"));
  return session_numbers(daemon);
}

// Names are other users', too, and the shell reads what is completed: one that it would take for
// more than a word is not offered.
bool is_one_word(const Candidate& candidate) {
  return !candidate.word.starts_with('-') && shell_command({candidate.word}) == candidate.word;
}

std::vector<Candidate> ask_daemon(const std::string& kind, const Typed& typed,
                                  const Context& context) {
  const std::string kinds[] = {"PIPELINE", "JOB", "SESSION", "VALUES", "KEY"};
  if (std::ranges::find(kinds, kind) == std::end(kinds)) return {};
  Context of_line{context.out, context.err};
  if (const auto given = typed.find("--address"); given != typed.end())
    of_line.addresses = given->second;
  std::vector<Candidate> names;
  try {
    Daemon daemon(of_line.directory(), kTabPatience);
    names = names_of(daemon, kind, typed);
  } catch (const std::exception&) {
    return {};  // there is nobody to read a message: the cursor is in the middle of a line
  }
  std::erase_if(names, [](const Candidate& name) { return !is_one_word(name); });
  // Jobs of one name may run on several pipelines.
  std::stable_sort(names.begin(), names.end(),
                   [](const Candidate& a, const Candidate& b) { return a.word < b.word; });
  const auto same = [](const Candidate& a, const Candidate& b) { return a.word == b.word; };
  names.erase(std::unique(names.begin(), names.end(), same), names.end());
  return names;
}

}  // namespace

void print_completions(const CLI::App& app, std::vector<std::string> words,
                       const Context& context) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i) words[i] = shell_value(words[i], process_env);
  const Completion completion =
      complete(app, words, [&](const std::string& kind, const Typed& typed) {
        return ask_daemon(kind, typed, context);
      });
  bool goes_on = false;
  for (const Candidate& candidate : completion.candidates) {
    context.out << fmt::format("{}\t{}\n", candidate.word,
                               candidate.means.empty() ? "" : cell(candidate.means));
    goes_on = goes_on || candidate.goes_on;
  }
  context.out << ':'
              << (goes_on                  ? "nospace"
                  : completion.files       ? "files"
                  : completion.directories ? "directories"
                                           : "")
              << '\n';
}

void add_completion_command(CLI::App& app, const Context& context) {
  CLI::App* command = app.add_subcommand(
      "completion", "a script for your shell: source <(spdlctl completion bash)");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "which completes by it")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  command->callback(
      [&context, shell] { context.out << (*shell == "bash" ? kBashCompletion : kZshCompletion); });
}

}  // namespace spdld::ctl
