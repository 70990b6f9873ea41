// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "job/request.h"
#include "job/step_at.h"
#include "op/jpeg_images.h"
#include "op/op_time.h"

namespace spdld::job {

// A consumer's place in a job: one per shard and replica.
struct ShardView {
  std::uint32_t shard = 0;
  std::uint64_t session = 0;  // 0: nobody is attached
  pid_t pid = 0;
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;  // the next one to be handed out
  std::uint32_t replica = 0;
};

// The version that a job runs from a step on.
struct PhaseView {
  StepAt from;
  std::uint32_t pipeline_version = 0;
  std::uint64_t batch_size = 0;
  std::map<std::string, std::string> vars;
};

// The place behind the last step of which every shard has given its batch back: start="ledger"
// begins there.
struct LedgerView {
  StepAt at;
  std::uint64_t position = 0;
  std::uint64_t kept_unix_ms = 0;  // 0: nothing is on disk yet
  std::string conflict;            // how a consumer's own cursor differed, the last time one did
};

// How a job ended that is running no more.
struct EndView {
  std::uint64_t unix_ms = 0;
  std::string how;  // "done", or why not
  StepAt at;        // the next step that would have been handed out
};

// Up to where all ranks read on when an operator has sent the job elsewhere.
struct SeekView {
  StepAt from;
  StepAt to;  // where they go on then
};

struct JobView {
  std::string job;
  std::string pipeline;
  uid_t owner = 0;
  std::uint32_t pipeline_version = 0;
  bool declared = false;  // made over gRPC, not by its first rank
  std::uint32_t num_shards = 0;
  StepAt dealt_from;  // from where on rows are dealt out as they are now
  std::uint32_t replicas = 1;
  std::uint64_t seed = 0;
  std::uint64_t batch_size = 0;
  EpochMode epochs = EpochMode::kAuto;
  std::uint64_t open_epochs = 0;  // manual: epochs [0, open_epochs) may be read
  std::uint64_t max_epochs = 0;
  std::uint64_t steps_per_epoch = 0;
  std::uint64_t items = 0;
  std::uint64_t replaced = 0;  // distinct items that were replaced
  std::uint64_t replace_budget = 0;
  JobLimits limits = {};
  std::uint64_t arena_bytes = 0;
  double cpu_s = 0;                                 // spent on its rows
  std::uint64_t shared_rows = 0;                    // that another job had made already
  std::uint64_t cache_hits = 0;                     // rows made from samples in the cache
  double saved_cpu_s = 0;                           // the CPU time that both saved
  std::uint64_t rows = 0;                           // that its consumers were handed
  std::optional<double> rows_per_s = std::nullopt;  // in the last seconds; none: not known
  std::vector<PhaseView> phases = {};               // in order; the last ones may lie ahead
  LedgerView ledger = {};
  std::vector<SeekView> seeks = {};  // in order: that not all are known to have gone along with
  std::vector<ShardView> shards = {};
  std::optional<EndView> end = std::nullopt;  // none: it runs, or is declared
};

struct StageView {
  std::string job;
  std::string pipeline;
  uid_t owner = 0;    // of the job
  std::string stage;  // "decode_image + random_resized_crop": fused ops are one stage
  std::uint64_t tasks = 0;
  std::uint64_t failures = 0;
  double busy_s = 0;
  double wait_s = 0;  // for a worker; of `fetch`: for an I/O thread
  std::uint32_t in_flight = 0;
  std::uint32_t concurrency = 0;
  std::uint64_t p50_us = 0;
  std::uint64_t p99_us = 0;
  // In the last seconds; none: not known. `served`: rows on average at once, without those that
  // wait; the share is of `concurrency`.
  std::optional<double> rows_per_s = std::nullopt;
  std::optional<double> failures_per_s = std::nullopt;
  std::optional<double> served = std::nullopt;
  std::optional<double> waiting = std::nullopt;  // rows on average
  // What tasks took.
  std::optional<std::uint64_t> p50_lately_us = std::nullopt;
  std::optional<std::uint64_t> p90_lately_us = std::nullopt;
  std::optional<std::uint64_t> p99_lately_us = std::nullopt;
  std::optional<double> busy_share = std::nullopt;
  JpegImages jpeg = {};  // that it decoded
  // None of these of a job that has ended:
  std::map<std::string, std::uint64_t> failures_by_code = {};  // "DATA_LOSS"
  std::optional<std::uint64_t> bytes = std::nullopt;           // of `fetch`: that it brought
  std::optional<double> bytes_per_s = std::nullopt;            // in the last seconds
  std::optional<std::uint64_t> rejected = std::nullopt;        // by filters, where it has any
  std::vector<OpTime> ops = {};                                // in the order of their running
};

}  // namespace spdld::job
