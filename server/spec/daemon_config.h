// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace spdld::spec {

struct ExecutorConfig {
  std::optional<int> cpu_threads;  // none: auto, from the cgroup's quota and the affinity
  int io_threads = 16;
  std::optional<std::vector<int>> cpus;  // sorted, each once; none: wherever the daemon may run
  int nice = 0;
};

// A bound on memory: a fixed size, or a fraction of what the machine or the cgroup has.
struct MemoryBound {
  std::optional<double> fraction;
  std::uint64_t bytes = 0;  // without `fraction`
};

using ArenaBudget = MemoryBound;

struct ArenaConfig {
  enum class Kind { kMemfd, kPosix, kHugetlb };
  Kind kind = Kind::kMemfd;
  ArenaBudget budget{.fraction = 0.25};  // what all arenas together may take
};

// What the sample caches of all pipelines together may take.
struct CacheConfig {
  MemoryBound ram{.fraction = 0.10};
  std::uint64_t disk_bytes = 0;  // 0: no pipeline may keep anything on a disk
  std::string dir;               // absolute
};

struct AccessConfig {
  std::vector<std::string> roots;  // absolute
  std::vector<uid_t> admins;       // sorted, each once
};

struct JobConfig {
  std::uint64_t retain_s = 7 * 24 * 3600;  // what is known of jobs that have ended
};

struct LogConfig {
  std::string level = "info";   // as spdlog has them: trace ... critical, off
  std::string format = "text";  // text | json
};

// spdld.yaml as plain values: complete, checked, paths absolute.
struct DaemonConfig {
  std::string runtime_dir;
  std::string state_dir;
  std::vector<std::string> pipelines;  // absolute glob patterns
  ExecutorConfig executor;
  ArenaConfig arena;
  CacheConfig cache;
  AccessConfig access;
  JobConfig job;
  LogConfig log;
};

// Reads the file, then the overrides "KEY=VALUE" in their order, KEY dotted ("arena.budget") and
// VALUE in YAML; both are checked alike. An empty path means no file: the defaults, with relative
// paths from the working directory. Errors cite file:line:col, or the override.
Result<DaemonConfig> load_daemon_config(const std::string& path,
                                        const std::vector<std::string>& overrides);

// The files that config.pipelines names, sorted, each once. A pattern with a wildcard may match
// nothing; a plain path must be there.
Result<std::vector<std::string>> pipeline_files(const DaemonConfig& config);

}  // namespace spdld::spec
