// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>
#include <string>

#include "ctl/daemon.h"

namespace spdld::ctl {

// What all commands share. Filled by the parser before a command runs.
struct Context {
  std::ostream& out;
  std::ostream& err;
  std::string address = {};
  double timeout_s = 30;

  Daemon connect() const;
  // Shows how far the daemon has come, on one line of the terminal, if there is one.
  Daemon::OnProgress progress() const;
};

// -o table|json, for what reads.
struct Output {
  std::string format = "table";
  bool json() const { return format == "json"; }
};
std::shared_ptr<Output> add_output(CLI::App& command);

// Each adds its commands; a command runs in its callback and throws Failure or spdld::Error. What a
// callback needs it owns, but for `context`, which outlives the parser.
void add_control_commands(CLI::App& app, const Context& context);   // status, get, job, evict
void add_pipeline_commands(CLI::App& app, const Context& context);  // apply, delete, explain, ...
void add_consumer_commands(CLI::App& app, const Context& context);  // consume, bench

}  // namespace spdld::ctl
