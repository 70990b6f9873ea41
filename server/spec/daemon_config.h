// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace spdld::spec {

// A bound on memory: a fixed size, or a fraction of what the machine or the cgroup has.
struct MemoryBound {
  std::optional<double> fraction;
  std::uint64_t bytes = 0;  // without `fraction`
};

struct ExecutorConfig {
  std::optional<int> cpu_threads;  // none: auto, from the cgroup's quota and the affinity
  int io_threads = 256;
  std::optional<std::vector<int>> cpus;  // sorted, each once; none: wherever the daemon may run
  int nice = 10;
  MemoryBound decode_memory{.fraction = 0.10};  // of large images at work
};

using ArenaBudget = MemoryBound;

struct ArenaConfig {
  enum class Kind { kMemfd, kPosix, kHugetlb };
  Kind kind = Kind::kMemfd;
  ArenaBudget budget{.fraction = 0.25};  // what all arenas together may take
  std::uint64_t idle_s = 30;             // for how long one that nobody reads is kept
};

struct CudaConfig {
  std::uint64_t budget_bytes = std::uint64_t{2} << 30;  // of arenas on each GPU
};

struct DecoderConfig {
  MemoryBound index{.fraction = 0.02};  // of JPEG files: where in them decoding may begin
};

// What the sample caches of all pipelines together may take.
struct CacheConfig {
  MemoryBound ram{.fraction = 0.10};
  std::uint64_t disk_bytes = 0;  // 0: no pipeline may keep anything on a disk
  std::string dir;               // absolute
};

struct AccessConfig {
  struct Root {
    std::string path;                // absolute
    std::vector<gid_t> groups = {};  // whose members may read all below it; sorted, each once

    friend bool operator==(const Root&, const Root&) = default;
  };
  std::vector<Root> roots;
  std::vector<uid_t> admins;  // sorted, each once
  bool trust_root = true;
};

struct JobConfig {
  std::uint64_t retain_s = 7 * 24 * 3600;  // what is known of jobs that have ended
};

// What one user may have of the daemon at a time, so that nobody leaves too little for others.
struct LimitsConfig {
  std::optional<int> connections;  // to data.sock; none: auto, from the limit of descriptors
  int control_connections = 64;
  int long_calls = 8;                     // of commands that list or decode
  int listings = 4;                       // datasets that are listed
  int pipelines = 256;                    // that it has applied; this one and the next bind neither
  int jobs = 1024;                        // root nor admins nor the daemon's own user
  std::uint64_t unattached_bytes = 0;     // of pipelines that came with attaches not yet answered
  std::uint64_t unread_bytes = 0;         // of answers that its processes have not read
  std::uint64_t file_bytes = 0;           // read from files and not yet processed
  std::int64_t max_pixels = 500'000'000;  // of decode_image.max_pixels
  // Of one row while it is made; none: twice executor.decode_memory.
  std::optional<MemoryBound> row_memory;
  // What the items of its datasets take, and a quarter of what those of all users may take.
  MemoryBound listing_memory{.fraction = 0.10};
  // Of arena.budget: all its arenas together. Binds neither admins nor the daemon's own user.
  MemoryBound arena{.fraction = 0.75};
};

// Where metrics and the daemon's health are served: on one of two, or nowhere.
struct HttpConfig {
  std::string unix_path = {};  // absolute
  std::string address = {};    // of IPv4 or IPv6
  std::uint16_t port = 0;      // at `address`
  bool jobs = false;           // whether whoever reaches `address` sees the jobs of all users

  bool is_served() const { return !unix_path.empty() || !address.empty(); }
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
  CudaConfig cuda;
  DecoderConfig decoder;
  CacheConfig cache;
  AccessConfig access;
  JobConfig job;
  LimitsConfig limits;
  HttpConfig http;
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
