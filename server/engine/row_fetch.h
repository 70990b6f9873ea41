// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "engine/cache/sample_cache.h"
#include "engine/plan/plan.h"
#include "engine/row_bytes.h"
#include "engine/stage_stats.h"
#include "source/item/source.h"

namespace spdld::engine {

struct Row;

// Fetches what a run's rows are made of. With a cache, the part that it keeps is looked for there
// first: if the item still is what was kept, the source brings the other parts alone. A cache of
// encoded parts is filled here, others by image workers (engine/cached_image.h).
//
// Thread-safe for rows that differ.
class RowFetch {
 public:
  // `cache`: null, and nothing is kept. All outlive this.
  RowFetch(const Plan& plan, source::Source& source, SampleCache* cache, const Clock& clock)
      : plan_(plan), source_(source), cache_(cache), clock_(clock) {}

  // kReady: the item's bytes are there, or bytes.status says why not. kPending: `sink` is told
  // `token`; then ended(), and bring() once more.
  source::FetchState bring(std::uint64_t item, RowBytes& bytes, source::FetchSink& sink,
                           std::uint64_t token);
  void ended(RowBytes& bytes, Status status);
  // Brings those of the rows' items that are at hand; others are left to bring().
  void bring_at_hand(std::span<Row* const> rows);

  // The bytes of the plan's request `i`, wherever they came from. A part of which a cache has
  // something else has none.
  std::span<const std::byte> part(const RowBytes& bytes, std::size_t i) const;
  // Which clip they are of; null: they are the whole part.
  const MediaClip* clip(const RowBytes& bytes, std::size_t i) const { return bytes.parts.clip(i); }
  // What the cache keeps of the item, if that is what the row is made of.
  const CachedItem* cached(const RowBytes& bytes) const {
    return bytes.cached && bytes.parts.revision.unchanged ? &*bytes.cached : nullptr;
  }
  std::span<const std::byte> cached_bytes(const RowBytes& bytes) const;

  // The cache, if image workers fill it.
  SampleCache* image_cache() const {
    return cache_ != nullptr && cache_->form() != spec::CacheSpec::Form::kEncoded ? cache_
                                                                                  : nullptr;
  }
  // By what the cache knows the item.
  std::uint64_t cache_key(std::uint64_t item) const {
    return source_.part_key(item, plan_.requests[request()].part);
  }
  // Counts a row that the cache spared something, which took this long.
  void count_hit(std::chrono::nanoseconds took);
  std::uint64_t hits() const { return hits_.load(std::memory_order_relaxed); }

  const StageStats& stats() const { return stats_; }
  const Clock& clock() const { return clock_; }

 private:
  // The request whose bytes or pixels the cache keeps.
  std::size_t request() const { return plan_.image != nullptr ? plan_.image->request : 0; }
  // False: the answer is pending, here and below.
  bool ask_source(std::uint64_t item, RowBytes& bytes, bool look_up, source::FetchSink& sink,
                  std::uint64_t token);
  bool ask_cache(RowBytes& bytes, source::FetchSink& sink, std::uint64_t token);
  template <typename Ask>
  bool ask(RowBytes& bytes, RowBytes::Stage stage, const char* what, const Ask& ask);
  // Tells the cache how it went.
  void settle(std::uint64_t item, const RowBytes& bytes);

  const Plan& plan_;
  source::Source& source_;
  SampleCache* const cache_;
  const Clock& clock_;
  StageStats stats_;
  std::atomic<std::uint64_t> hits_{0};  // relaxed: a count
};

}  // namespace spdld::engine
