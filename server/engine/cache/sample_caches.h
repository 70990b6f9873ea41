// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/cache/sample_cache.h"
#include "engine/cache/sample_cache_cost.h"
#include "engine/plan/plan.h"
#include "source/file/io_pool.h"
#include "source/item/source.h"

namespace spdld::engine {

struct SampleCachesOptions {
  std::uint64_t ram_bytes = 0;   // of all caches in memory together
  std::uint64_t disk_bytes = 0;  // of all caches on disk together; 0: there may be none
  std::string dir = {};          // for those; made when first needed
  bool has_seek_indexes = true;  // the daemon keeps those of JPEG files
  source::IoPool& io;            // reads and writes the caches on disk; outlives all caches
  // What this process may still take, and what `dir` has left; for tests.
  std::function<std::uint64_t()> free_memory = nullptr;
  std::function<std::uint64_t(const std::string& dir)> free_disk = nullptr;
};

// The sample caches of a daemon: one for each prefix of fetch and decode, shared by all runs that
// begin with it. Their sizes together stay within the bounds; a cache that nobody uses any more
// stays until another one needs its room, the longest unused first.
//
// Owned by the daemon; outlives no run's cache, which may go on without it. Thread-safe.
// estimate(), and open() without one, may block on the source: some items are looked at to tell
// what a cache would do.
class SampleCaches {
 public:
  explicit SampleCaches(SampleCachesOptions options);

  // The bound of all caches in memory, from now on. Those that nobody uses go where they are over
  // it; those in use stay.
  void set_ram(std::uint64_t bytes) SPDLD_EXCLUDES(mutex_);
  std::uint64_t ram() const { return ram_bytes_.load(std::memory_order_relaxed); }

  // Whether the bounds allow the cache that the plan asks for, were it alone: for apply.
  Status check(const Plan& plan) const;

  // The cache for a run of this plan on this source; null: it asks for none, or one would cost more
  // than it saves. An error has the numbers and the way out.
  Result<std::shared_ptr<SampleCache>> open(const Plan& plan, source::Source& source)
      SPDLD_EXCLUDES(mutex_);

  // The same with an estimate made before: quick, and for callers that may not wait for a source.
  Result<std::shared_ptr<SampleCache>> open(const Plan& plan, const source::Source& source,
                                            const CacheEstimate& estimate) SPDLD_EXCLUDES(mutex_);

  // What the plan's cache would hold and save, and whether it is used: for explain. Only for a plan
  // that asks for one.
  CacheEstimate estimate(const Plan& plan, source::Source& source) const;

  std::vector<SampleCache::Snapshot> snapshots() const SPDLD_EXCLUDES(mutex_);
  // Of pipelines of these names: whose cache is not used, and why.
  std::vector<std::string> unused(const std::set<std::string>& pipelines) const
      SPDLD_EXCLUDES(mutex_);

 private:
  struct Prefix {
    std::string key;
    std::shared_ptr<SampleCache> cache;
    std::uint64_t last_used = 0;
  };

  std::uint64_t bound(spec::CacheSpec::Where where) const;
  // Makes `bytes` of room within the bound, or says who has it.
  Status make_room(const Plan& plan, std::uint64_t bytes, std::vector<Prefix>& evicted)
      SPDLD_REQUIRES(mutex_);
  // Lets caches go that nobody holds, the longest unused first, until the others take no more than
  // `most`, or are all held.
  void evict(spec::CacheSpec::Where where, std::uint64_t most, const std::string& why,
             std::vector<Prefix>& evicted) SPDLD_REQUIRES(mutex_);
  Result<std::unique_ptr<CacheLog>> make_log(const Plan& plan) const;
  void note(const Plan& plan, const CacheEstimate& estimate) SPDLD_EXCLUDES(mutex_);

  const SampleCachesOptions options_;     // but for `ram_bytes`
  std::atomic<std::uint64_t> ram_bytes_;  // relaxed: a bound by itself
  mutable Mutex mutex_;
  std::vector<Prefix> prefixes_ SPDLD_GUARDED_BY(mutex_);
  std::map<std::string, std::string> unused_ SPDLD_GUARDED_BY(mutex_);  // why, by pipeline
  std::uint64_t uses_ SPDLD_GUARDED_BY(mutex_) = 0;
};

}  // namespace spdld::engine
