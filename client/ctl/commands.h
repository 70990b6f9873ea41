// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "ctl/cli_fwd.h"
#include "ctl/daemon.h"
#include "spdld/loader.h"

namespace spdld::ctl {

// What all commands share. Filled by the parser before a command runs.
struct Context {
  std::ostream& out;
  std::ostream& err;
  std::vector<std::string> addresses = {};  // as --address names them
  std::optional<double> timeout_s = {};     // as --timeout says

  // The runtime directories that are meant: what --address says, else the default, each once.
  // Throws Failure (kWrongUsage).
  std::vector<std::string> directories() const;
  // The one that is meant; throws Failure (kWrongUsage) if there are several, which only a command
  // that asks for directories() can take.
  std::string directory() const;
  std::chrono::milliseconds timeout() const;  // of a call; 30 s if --timeout does not say
  // Makes --timeout, if it is given, count for a loader, too.
  void limit(LoaderOptions& loader) const;

  Daemon connect() const;  // to directory()
  // Shows how far the daemon has come, on one line of the terminal, if there is one.
  Daemon::OnProgress progress() const;
};

// -o table|json, for what reads.
struct Output {
  std::string format = "table";
  bool json() const { return format == "json"; }
};
std::shared_ptr<Output> add_output(CLI::App& command);
// What a command has done: `facts` as JSON, or else the sentence.
void tell(const nlohmann::ordered_json& facts, const std::string& sentence, const Output& output,
          const Context& context);

// The options that name one job: its name and, where that is not enough, its pipeline.
std::shared_ptr<v1::JobKey> add_job_key(CLI::App& command);
// One job with all that is known of it.
void show_job(const v1::Job& job, const Output& output, const Context& context);

// Each adds its commands; a command runs in its callback and throws Failure or spdld::Error. What a
// callback needs it owns, but for `context`, which outlives the parser.
void add_control_commands(CLI::App& app,
                          const Context& context);             // status, metrics, get, evict, drain
void add_job_commands(CLI::App& app, const Context& context);  // job
void add_apply_commands(CLI::App& app, const Context& context);     // apply, rollback
void add_pipeline_commands(CLI::App& app, const Context& context);  // delete, explain, index
void add_preview_commands(CLI::App& app, const Context& context);   // preview, show
void add_consumer_commands(CLI::App& app, const Context& context);  // consume, bench
void add_init_command(CLI::App& app, const Context& context);
void add_diagnose_command(CLI::App& app, const Context& context);
void add_headspace_command(CLI::App& app, const Context& context);
void add_tune_command(CLI::App& app, const Context& context);
void add_probe_command(CLI::App& app, const Context& context);
void add_service_commands(CLI::App& app, const Context& context);  // service
void add_completion_command(CLI::App& app, const Context& context);

// What a shell's completion asks for by `spdlctl __complete WORDS...`: what the last of the words,
// as they were typed, may become. completion/ says how it is written.
void print_completions(const CLI::App& app, std::vector<std::string> words, const Context& context);

}  // namespace spdld::ctl
