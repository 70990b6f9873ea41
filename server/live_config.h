// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "delivery/arena_pool.h"
#include "delivery/memory_probe.h"
#include "engine/cache/sample_caches.h"
#include "engine/executor.h"
#include "media/jpeg_scan/seek_indexes.h"
#include "session/daemon_values.h"
#include "source/file/io_pool.h"
#include "spec/daemon_config.h"

namespace spdld {

// The size that a bound has on this machine.
std::uint64_t bytes_of(const spec::MemoryBound& bound);
// The size of a share of `whole_bytes`, or the size that the bound gives.
std::uint64_t bytes_of(const spec::MemoryBound& bound, std::uint64_t whole_bytes);
unsigned cpu_threads_of(const spec::ExecutorConfig& config);

// The parts of the daemon whose bounds may be changed while they work.
struct LiveParts {
  engine::Executor& executor;
  source::IoPool& io;
  engine::SampleCaches& caches;
  media::SeekIndexes& seek_indexes;
  delivery::ArenaBudget& budget;
  delivery::ArenaPool& arenas;
};
// The values of the configuration that may be changed while the daemon runs. `config` is what the
// daemon was started with.
std::vector<session::DaemonValue> live_values(const spec::DaemonConfig& config, LiveParts parts);
// The texts that a configuration has for them, by key.
std::map<std::string, std::string> live_texts(const spec::DaemonConfig& config);

}  // namespace spdld
