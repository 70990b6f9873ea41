// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/memory/byte_buffer.h"
#include "base/status.h"
#include "source/item/source.h"

namespace spdld::engine {

inline constexpr std::uint64_t kEntryAlignment = 64;  // what an entry's bytes are rounded up to

// Of memory, for an entry of so many bytes.
constexpr std::uint64_t taken_by(std::uint64_t bytes) {
  return std::max((bytes + kEntryAlignment - 1) / kEntryAlignment * kEntryAlignment,
                  kEntryAlignment);
}

// Where a sample cache keeps its bytes: appended, read often, never changed, and given back as a
// whole, so that nothing fragments. In memory (sample_cache_memory.h) or in a file
// (sample_cache_disk.h). Owned by one SampleCache; thread-safe. What it may take is the cache's
// matter.
class CacheLog {
 public:
  // Told what became of what was appended, once for each, by the appending thread or another.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual void appended(std::uint64_t item, std::uint64_t location) = 0;
    virtual void dropped(std::uint64_t item) = 0;
  };

  virtual ~CacheLog() = default;

  // Keeps a copy, or drops it: what is in the way is no reason to keep the caller waiting.
  virtual void append(std::uint64_t item, std::span<const std::byte> bytes, Sink& sink) = 0;

  // The bytes, where they can be read in place, for as long as the log lives; or null.
  virtual const std::byte* view(std::uint64_t location) const = 0;
  // Where they cannot: brings `size_bytes` into `out`, as a Source does, from its threads if it
  // takes a wait. Fewer bytes than were kept are an error.
  virtual Result<source::FetchState> read(std::uint64_t location, std::uint64_t size_bytes,
                                          source::ItemBytes& out, source::FetchSink& sink,
                                          std::uint64_t token) = 0;

  // Why nothing more is kept, once that is so.
  virtual Status failure() const = 0;
};

}  // namespace spdld::engine
