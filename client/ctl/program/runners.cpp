// SPDX-License-Identifier: Apache-2.0
#include "ctl/program/runners.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "ctl/failure.h"
#include "ctl/program/program.h"
#include "spdld/runner.h"

namespace spdld::ctl {
namespace {

constexpr std::chrono::seconds kRunnerPatience{runner::kStartPatienceS};

// As `python -m spdld.runner`, which would import from the working directory first.
constexpr char kRun[] =
    "import sys; del sys.path[0]; from spdld.runner import main; sys.exit(main())";

void start_runner(const std::string& python, const std::string& directory,
                  const std::string& pool) {
  std::error_code failed;
  const std::string here = std::filesystem::current_path(failed).string();
  const Ran ran = run_program({python, "-c", kRun, "--address", directory, "--pool", pool,
                               "--modules", here, "--detach", std::to_string(::getpid())},
                              Errors::kOurs);
  if (!ran.ok())
    throw Failure(kFailed, fmt::format("'{} -m spdld.runner' failed: it needs the package spdld, "
                                       "see that '{} -c \"import spdld\"' works",
                                       python, python));
}

}  // namespace

Daemon::OnProgress starting_runners(Daemon::OnProgress shown, std::string python,
                                    std::string directory) {
  using Clock = std::chrono::steady_clock;
  if (python.empty()) return shown;
  return
      [shown = std::move(shown), python = std::move(python), directory = std::move(directory),
       started = std::map<std::string, Clock::time_point>()](const v1::Progress& progress) mutable {
        for (const std::string& pool : progress.runners()) {
          const auto [last, is_first] = started.try_emplace(pool, Clock::now());
          if (!is_first && Clock::now() - last->second < kRunnerPatience) continue;
          last->second = Clock::now();
          start_runner(python, directory, pool);
        }
        shown(progress);
      };
}

}  // namespace spdld::ctl
