// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "source/bytes/file_bytes.h"
#include "source/tar/index_query.h"
#include "source/tar/shard_index.h"

namespace spdld::source {

// How far all the scans of an index are. Any thread; relaxed: for progress and a limit.
struct ScanMeter {
  std::atomic<std::uint64_t> samples = 0;
  std::atomic<std::uint64_t> bytes = 0;        // of shards, read or passed over
  std::atomic<std::uint64_t> value_bytes = 0;  // of what IndexQuery takes out of JSON
};

struct ShardScanOptions {
  ScanMeter* meter = nullptr;                              // outlives the scan
  std::uint64_t max_samples = 0;                           // of all scans with that meter
  std::uint64_t max_value_bytes = std::uint64_t{4} << 30;  // likewise
  std::function<bool()> stopped = {};  // asked now and then; then the scan ends with kCancelled
  std::vector<std::string>* warnings = nullptr;  // gets what is no error
};

// Reads the headers of a shard and what `query` asks of its samples. The index lacks the stamp. An
// error names the shard, the place in it, and the sample or member. Blocks.
Result<ShardIndex> scan_shard(FileBytes& file, const IndexQuery& query,
                              const ShardScanOptions& options);

}  // namespace spdld::source
