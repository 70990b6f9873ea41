// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/plan/plan.h"
#include "job/request.h"

namespace spdld::session {

// A value of a job or of the daemon that may be changed while it is in force, as texts.
struct LiveValue {
  std::string key;         // "fetch.concurrency"
  std::string now;         // in force
  std::string configured;  // in force again after a reset
  std::string range;       // what it may be: "1 to 4096"
  std::string means;
};

inline constexpr std::string_view kPrefetchKey = "prefetch";

// Values to change. Nothing of either kind: they are only told.
struct TuneRequest {
  std::map<std::string, std::string> set = {};
  std::vector<std::string> reset = {};  // "all": all of them

  bool names(std::string_view key) const;
  bool changes_nothing() const { return set.empty() && reset.empty(); }
};

// "prefetch=8, weight reset".
std::string text_of(const TuneRequest& request);
// There is no value of this name; names those that there are. `of` is "a job" or "the daemon".
Status no_such_value(const std::string& key, const std::vector<std::string>& known,
                     const std::string& of);
Status not_in_range(const std::string& key, const std::string& value, const std::string& range);

// The live values of a job that was created with `first` and runs `plan`.
std::vector<LiveValue> live_values(const job::JobLimits& limits, const job::JobLimits& first,
                                   const engine::Plan& plan);
// Changes `limits`, or nothing if any of it is refused: kInvalidArgument.
Status tune(job::JobLimits& limits, const job::JobLimits& first, const TuneRequest& request);

}  // namespace spdld::session
