// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "session/service.h"

// What Prometheus is told of the daemon: `spdlctl metrics`, /metrics. Any thread.
namespace spdld::observe {

// So many jobs have samples of their own: those that are read come first. The samples of all others
// are summed, with empty labels.
inline constexpr std::size_t kMostJobs = 200;

// What a caller may see of the daemon. The jobs were looked at last: what is told of one that is
// not among them is of one that has ended since.
struct Observed {
  session::DaemonView daemon = {};
  std::vector<job::StageView> stages = {};
  std::vector<session::SessionView> sessions = {};
  std::vector<job::JobView> jobs = {};
};

Observed observed_by(const job::Caller& caller, session::Service& service);
// Nothing of single jobs, pipelines and devices: for callers of unknown users.
Observed totals_of(const job::Caller& caller, session::Service& service);

// In Prometheus' text format.
std::string metrics_text(const Observed& observed);

}  // namespace spdld::observe
