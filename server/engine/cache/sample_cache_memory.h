// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "base/mutex.h"
#include "engine/cache/sample_cache_log.h"

namespace spdld::engine {

// A log in anonymous memory: slabs, mapped one after the other and filled from the front. A page
// is taken when it is first written, so that a slab's unused end costs nothing. The lock is held
// for a few instructions, or for mapping a slab; the bytes are copied without it.
//
// Owned by a SampleCache; thread-safe. It stops growing, and says why, when the memory left would
// not hold another slab.
class MemoryLog final : public CacheLog {
 public:
  struct Options {
    std::uint64_t slab_bytes = std::uint64_t{64} << 20;
    std::function<std::uint64_t()> free_bytes;  // what this process may still take
  };

  explicit MemoryLog(Options options);
  ~MemoryLog() override;
  MemoryLog(const MemoryLog&) = delete;
  MemoryLog& operator=(const MemoryLog&) = delete;

  void append(std::uint64_t item, std::span<const std::byte> bytes, Sink& sink) override
      SPDLD_EXCLUDES(mutex_);
  const std::byte* view(std::uint64_t location) const override;
  Result<source::FetchState> read(std::uint64_t location, std::uint64_t size_bytes,
                                  source::ItemBytes& out, source::FetchSink& sink,
                                  std::uint64_t token) override;
  Status failure() const override SPDLD_EXCLUDES(mutex_);

 private:
  struct Slab {
    std::byte* data = nullptr;
    std::uint64_t size_bytes = 0;
  };

  // Room for so many bytes, or null.
  std::byte* take(std::uint64_t size_bytes) SPDLD_EXCLUDES(mutex_);
  bool map_slab(std::uint64_t at_least_bytes) SPDLD_REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  std::vector<Slab> slabs_ SPDLD_GUARDED_BY(mutex_);       // the last one is being filled
  std::uint64_t used_bytes_ SPDLD_GUARDED_BY(mutex_) = 0;  // of the last one
  Status failure_ SPDLD_GUARDED_BY(mutex_);
};

}  // namespace spdld::engine
