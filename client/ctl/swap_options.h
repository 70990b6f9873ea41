// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctl/cli_fwd.h"
#include "spdld/v1/control.pb.h"

namespace spdld::ctl {

// --job JOB | --all-jobs, --at POINT and --allow-schema-change: which running jobs change, when.
struct SwapOptions {
  std::optional<std::string> job;
  bool all_jobs = false;
  std::optional<std::string> at;
  bool allow_schema_change = false;

  // Nothing if no running job is to change. Throws Failure (kWrongUsage) for options that
  // contradict each other or mean nothing.
  std::optional<v1::SwapRequest> request() const;
};
std::shared_ptr<SwapOptions> add_swap_options(CLI::App& command);

// The words of a command as a shell takes them, quoted where they must be.
std::string shell_command(const std::vector<std::string>& words);

// Of "2/0"; nothing: the text is no place.
std::optional<v1::StepAt> parse_place(std::string_view text);
// "epoch 2, step 0"
std::string show_place(const v1::StepAt& at);
// "step:2/0", as --at takes it.
std::string at_option(const v1::StepAt& at);

}  // namespace spdld::ctl
