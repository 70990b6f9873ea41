// SPDX-License-Identifier: Apache-2.0
#include "session/job_rates.h"

namespace spdld::session {
namespace {

std::uint64_t busy_ns(const engine::StageStats& stats) {
  return static_cast<std::uint64_t>(stats.busy().count());
}

}  // namespace

void JobRates::add(std::chrono::nanoseconds now, std::uint64_t rows, const RunPtr& run) {
  rows_.add(now, {rows});
  if (!is_now(run)) {
    stages_.clear();
    run_ = run;
  }
  const engine::StageStats& fetch = run->fetch_stats();
  const engine::StageStats& process = run->process_stats();
  stages_.add(now, {fetch.tasks(), busy_ns(fetch), fetch.failures(), process.tasks(),
                    busy_ns(process), process.failures()});
}

std::optional<JobRates::Stage> JobRates::stage(const RunPtr& run, std::size_t first) const {
  const auto rates = stages_.per_second();
  if (!rates || !is_now(run)) return std::nullopt;
  return Stage{.rows_per_s = (*rates)[first],
               .busy = (*rates)[first + 1] * 1e-9,
               .failures_per_s = (*rates)[first + 2]};
}

}  // namespace spdld::session
