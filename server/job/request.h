// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/users/credentials.h"
#include "job/step_at.h"
#include "op/image.h"

namespace spdld::job {

// The user and process of a request, as the kernel gave them when it connected.
using Caller = Peer;

struct ApplyRequest {
  std::string yaml;
  std::string file;  // for messages and relative paths: absolute, or "-" for a text without a file
  std::map<std::string, std::string> vars;
  std::map<std::string, std::string> env;  // the submitter's values of ${env:NAME}
  bool dry_run = false;
  bool starts_runners = false;  // the submitter does, while it waits
  // The id of the kept listing of its dataset as of its application. Empty in a caller's request:
  // the dataset is listed now.
  std::string dataset = {};
  // The rows of a run of its order by length (ParseOptions::bucket_run), as they were fixed when it
  // was applied. None in a caller's request.
  std::optional<std::uint64_t> bucket_run = std::nullopt;
  // The size that images of a field have which are stacked without a stage that gives them one, as
  // some showed when it was applied. Empty in a caller's request.
  std::map<std::string, Size> image_sizes = {};
  bool from_loader = false;  // a loader brought it, and nobody has applied it
  // The submitter's rights, with which the files that it names are read. None: a record without
  // them; then those that the user database has for the pipeline's owner.
  std::optional<Credentials> reader = std::nullopt;
};

enum class EpochMode { kAuto, kManual };

// Whether a job may have this share of the CPU pool.
constexpr bool is_weight(double weight) { return weight >= 0.001 && weight <= 1000; }

// The resources that one job may take. An absent value: no limit of its own; of the last three:
// what its pipeline says.
struct JobLimits {
  double weight = 1.0;                           // share of the CPU pool when jobs compete
  std::optional<std::uint32_t> cpus = {};        // workers at once
  std::optional<std::uint64_t> bytes = {};       // of arenas
  std::optional<std::uint32_t> fetching = {};    // rows that are fetched at once
  std::optional<std::uint32_t> processing = {};  // rows that are processed at once
  std::optional<std::uint32_t> prefetch = {};    // batches that a consumer may hold or have waiting

  friend bool operator==(const JobLimits&, const JobLimits&) = default;
};

// A change of a job's version that lies ahead.
struct PlannedChange {
  std::uint32_t version = 0;
  StepAt from;

  friend bool operator==(const PlannedChange&, const PlannedChange&) = default;
};

}  // namespace spdld::job
