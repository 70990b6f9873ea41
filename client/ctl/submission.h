// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctl/cli_fwd.h"
#include "spdld/v1/control.pb.h"

namespace spdld::ctl {

using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;

std::optional<std::string> process_env(const std::string& name);

// The environment variables that a pipeline's text refers to by ${env:NAME}, with their values; one
// that is not set is left out, and the daemon then says where it is missing.
std::map<std::string, std::string> referenced_env(std::string_view yaml, const EnvLookup& env);

// What is sent of a pipeline: the text of `file` ("-": of standard input), its absolute path, the
// variables of --var ("NAME=VALUE" each) and of the environment. Throws Failure (kWrongUsage).
v1::PipelineText read_submission(const std::string& file, const std::vector<std::string>& vars,
                                 const EnvLookup& env);

// -f FILE and --var NAME=VALUE of a command.
struct Submission {
  std::string file;
  std::vector<std::string> vars;
  std::string python = {};  // the interpreter for the pipeline's functions; empty: none is started

  v1::PipelineText read() const;
};
std::shared_ptr<Submission> add_submission(CLI::App& command);
// Of one that makes rows: --python.
std::shared_ptr<Submission> add_tried_submission(CLI::App& command);

// "NAME=VALUE" each. Throws Failure (kWrongUsage).
std::map<std::string, std::string> parse_vars(const std::vector<std::string>& vars);

}  // namespace spdld::ctl
