// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "spdld/loader.h"

namespace spdld::ctl {

struct ConsumeOptions {
  LoaderOptions loader;
  std::optional<std::uint64_t> batches;  // stop after so many
  std::optional<std::uint64_t> epochs;   // stop after so many; without either: one
  std::uint64_t hold = 0;                // keep the last so many leases
  bool digest = false;
  bool per_row = false;
  bool read = true;  // without --digest: touch every byte
  bool print_cursor = false;
  bool json = false;
};

// The test consumer: reads a shard as a rank does. With `digest` it prints "epoch step shard rows
// digest" per batch, or "epoch step shard row index digest" per row, else its throughput at the
// end; with `json` the same as an object, with `digest` one a line. SIGINT and SIGTERM end it after
// the current batch, as if it had been asked for so many. Throws Failure and spdld::Error.
void consume(const ConsumeOptions& options, std::ostream& out, std::ostream& err);

struct HandoffOptions {
  LoaderOptions loader;
  std::uint64_t batches = 10'000;
  std::uint64_t warm_up = 200;
  std::uint32_t pause_us = 0;  // between batches, as a training step would be
  bool json = false;
};

// Measures what next() costs when the batch is released at once: over all calls, and over those
// that found a batch ready (the daemon was ahead).
void bench_handoff(const HandoffOptions& options, std::ostream& out);

}  // namespace spdld::ctl
