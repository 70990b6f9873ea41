// SPDX-License-Identifier: Apache-2.0
#include "session/job_rates.h"

#include <algorithm>
#include <functional>

namespace spdld::session {
namespace {

constexpr std::chrono::seconds kTimesSpan{5};
constexpr int kSlowTimes = 10;  // as long as most others

}  // namespace

void JobRates::add(std::chrono::nanoseconds now, std::uint64_t rows, const RunPtr& run) {
  rows_.add(now, {rows});
  const engine::StageStats& fetch = run->fetch_stats();
  const engine::StageStats& process = run->process_stats();
  const bool is_other = !is_now(run);
  if (is_other) {
    stages_.clear();
    run_ = run;
  }
  if (is_other || now - later_.at >= kTimesSpan) {
    const Taken taken{.at = now, .fetch = fetch.histogram(), .process = process.histogram()};
    before_ = is_other ? taken : later_;
    later_ = taken;
  }
  decltype(stages_)::Counts counts{};
  std::size_t first = 0;
  for (const engine::StageStats* const stage : {&fetch, &process}) {
    counts[first + kRows] = stage->tasks();
    counts[first + kBusyNs] = as_count(stage->busy());
    counts[first + kWaitNs] = as_count(stage->wait());
    counts[first + kFailures] = stage->failures();
    counts[first + kBytes] = stage->bytes();
    first += kCounters;
  }
  stages_.add(now, counts);
}

std::optional<JobRates::Stage> JobRates::fetch(const RunPtr& run) const {
  std::optional<Stage> of = stage(run, 0);
  if (of) of->times = times(run->fetch_stats(), before_.fetch);
  return of;
}

std::optional<JobRates::Stage> JobRates::process(const RunPtr& run) const {
  std::optional<Stage> of = stage(run, kCounters);
  if (of) of->times = times(run->process_stats(), before_.process);
  return of;
}

JobRates::Making JobRates::making() const {
  return {.run = run_, .rows = stages_.per_second(kCounters + kBusyNs).value_or(0) * 1e-9};
}

std::optional<JobRates::Times> JobRates::times(const engine::StageStats& stats,
                                               const TimeHistogram& before) {
  TimeHistogram lately = stats.histogram();
  std::transform(lately.tasks.begin(), lately.tasks.end(), before.tasks.begin(),
                 lately.tasks.begin(), std::minus<>());
  const auto [all, all_s] = lately.total();
  if (all == 0) return std::nullopt;
  Times times{.p50 = lately.percentile(0.50),
              .p90 = lately.percentile(0.90),
              .p99 = lately.percentile(0.99)};
  TimeHistogram slow = lately;
  const int first =
      TimeHistogram::bucket_of(static_cast<std::uint64_t>(kSlowTimes * times.p50.count())) + 1;
  std::fill_n(slow.tasks.begin(), std::min<std::size_t>(first, slow.tasks.size()), 0);
  const auto [slow_tasks, slow_s] = slow.total();
  times.slow = static_cast<double>(slow_tasks) / static_cast<double>(all);
  if (all_s > 0) times.slow_time = slow_s / all_s;
  return times;
}

std::optional<JobRates::Stage> JobRates::stage(const RunPtr& run, std::size_t first) const {
  const auto rates = stages_.per_second();
  if (!rates || !is_now(run)) return std::nullopt;
  return Stage{.rows_per_s = (*rates)[first + kRows],
               .busy = (*rates)[first + kBusyNs] * 1e-9,
               .waiting = (*rates)[first + kWaitNs] * 1e-9,
               .failures_per_s = (*rates)[first + kFailures],
               .bytes_per_s = (*rates)[first + kBytes]};
}

}  // namespace spdld::session
