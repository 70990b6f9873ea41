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

// Who asks, as the kernel told it when they connected.
using Caller = Peer;

struct ApplyRequest {
  std::string yaml;
  std::string file;  // for messages and relative paths: absolute, or "-" for a text without a file
  std::map<std::string, std::string> vars;
  std::map<std::string, std::string> env;  // what the submitter resolved ${env:NAME} to
  bool dry_run = false;
  // What was listed when it was applied, by the id that the catalogue's kept listings have for it.
  // Empty in what comes from a caller: that is listed now.
  std::string dataset = {};
  // The rows of a run of its order by length (ParseOptions::bucket_run), as they were fixed when it
  // was applied. None in what comes from a caller.
  std::optional<std::uint64_t> bucket_run = std::nullopt;
  // The size that images of a field have which are stacked without a stage that gives them one, as
  // some showed when it was applied. Empty in what comes from a caller.
  std::map<std::string, Size> image_sizes = {};
  bool from_loader = false;  // a loader brought it, and nobody has applied it
  // Who submitted it: the files that it names are read with their rights. None: a record of a
  // daemon that did not know; then as the user database has the pipeline's owner.
  std::optional<Credentials> reader = std::nullopt;
};

enum class EpochMode { kAuto, kManual };

// What one job may take. Values that are not there: no limit of its own.
struct JobLimits {
  double weight = 1.0;                 // share of the CPU pool when jobs compete
  std::optional<std::uint32_t> cpus;   // workers at once
  std::optional<std::uint64_t> bytes;  // of arenas

  friend bool operator==(const JobLimits&, const JobLimits&) = default;
};

// A change of a job's version that lies ahead.
struct PlannedChange {
  std::uint32_t version = 0;
  StepAt from;

  friend bool operator==(const PlannedChange&, const PlannedChange&) = default;
};

}  // namespace spdld::job
