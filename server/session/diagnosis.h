// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "session/views.h"

namespace spdld::session {

// A figure that speaks for a finding.
struct Evidence {
  std::string name;  // "fetch.in_flight"
  double value = 0;
  std::string unit;  // "s", "rows/s", "share" (0 to 1); empty: a count
};

// One thing that keeps ranks waiting, or spoils what they get.
struct Finding {
  std::string cause;  // a word for programs: "fetch_concurrency"
  std::string says;   // for people
  std::vector<Evidence> evidence = {};
  std::string command = {};  // to be pasted; empty: there is none
  std::string brings = {};   // what that, or what `says` advises, should bring; empty: cannot tell
};

struct DiagnosisView {
  std::string job;
  std::string pipeline;
  // Of the time of the rank that waits most, in the last seconds; none: no rank is known for long
  // enough.
  std::optional<double> waited_share = std::nullopt;
  // Training would be so many times as fast, if every batch were there when it is wanted; 1: ranks
  // are not kept waiting.
  double faster = 1;
  std::uint32_t ranks = 0;             // that are attached
  std::vector<Finding> findings = {};  // what counts most is first
};

// The figures that a diagnosis goes by: all of the last seconds.
struct DiagnosisFacts {
  job::JobView job;
  std::vector<SessionView> ranks;
  job::StageView fetch;
  job::StageView process;
  double others_served = 0;  // as process.served, of all other jobs together
  // Of items that a source has and a rank's next batch waits for, the one that it has longest.
  std::string oldest_read = {};
  double oldest_read_s = 0;
  // Run::waits_for_runners() of its rows.
  std::string lacks_runners = {};
  // Rows that took more than ten times as long to make as most: their share of the rows, and of the
  // time; and the row that took longest.
  double slow_rows = 0;
  double slow_time = 0;
  std::string slowest = {};
  double slowest_s = 0;
};

// Says why a job's ranks wait, by figures alone: docs/tuning.md has each rule. Where no rule fits
// it says so.
DiagnosisView diagnose(const DiagnosisFacts& facts, const DaemonView& daemon);

}  // namespace spdld::session
