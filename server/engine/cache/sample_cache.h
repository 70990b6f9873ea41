// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/memory/byte_buffer.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/cache/sample_cache_log.h"
#include "op/image.h"
#include "source/item/source.h"
#include "spec/pipeline_spec.h"

namespace spdld::engine {

// What a cache has of an item. `stamp` says of which content; whoever uses the bytes must know that
// it still holds (Source::fetch_revision).
struct CachedItem {
  source::ItemStamp stamp;
  Size size;  // of an image, if pixels or coefficients are kept; none: bytes as they were fetched
  std::uint64_t bytes = 0;
  std::uint64_t location = 0;
  std::uint64_t checksum = 0;
};

// What one run of fetches and decodes has made so far, for all who would make the same: parts of
// the items of one origin in one form. An item is named here by its part's Source::part_key(). What
// came first is kept and nothing gives way while the cache lives: a shuffled epoch asks for each
// item once, so that any other would be as good.
//
// Shared by the runs that use it and by SampleCaches, which makes it. Thread-safe: the index is
// split over many locks, each held for a look-up. Bytes that were found may be read until the
// cache is destroyed. Failing to keep something is never an error of the sample; why() says what
// is wrong with the cache.
class SampleCache final : private CacheLog::Sink {
 public:
  struct Options {
    std::string name;         // for people: "decoded files /data/train"
    std::string origin = {};  // of the parts, as sources have it
    spec::CacheSpec::Form form = spec::CacheSpec::Form::kDecoded;
    spec::CacheSpec::Where where = spec::CacheSpec::Where::kRam;
    std::uint64_t limit_bytes = 0;
  };

  // Each number stands alone.
  struct Snapshot {
    std::string name;
    std::string origin;
    spec::CacheSpec::Form form = spec::CacheSpec::Form::kDecoded;
    spec::CacheSpec::Where where = spec::CacheSpec::Where::kRam;
    std::uint64_t limit_bytes = 0;
    std::uint64_t bytes = 0;  // with the index
    std::uint64_t items = 0;
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t fills = 0;            // of these, what took as much as keeping an item takes
    std::uint64_t changed = 0;          // items that were kept and are no more what they were
    std::uint64_t corrupt = 0;          // entries that did not come back as they were kept
    std::uint64_t dropped = 0;          // items not kept because storage was slow, full or failing
    std::chrono::nanoseconds saved{0};  // what hits took less than their rows without the cache
    std::string why;  // nothing more is kept, or nothing at all; empty: all is well
  };

  // An entry's share of the index: a hash node with its bucket.
  static constexpr std::uint64_t kEntryBytes = 144;
  // Nothing larger is kept: it would need scratch of its size in each worker.
  static constexpr std::uint64_t kMaxItemBytes = std::uint64_t{128} << 20;

  // Somebody wants it to stay. Without any it is at most held by runs that come to their end.
  class Use {
   public:
    explicit Use(std::shared_ptr<SampleCache> cache) : cache_(std::move(cache)) { ++cache_->uses_; }
    ~Use() { end(); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    void end() {
      if (!ended_.exchange(true)) --cache_->uses_;
    }

   private:
    const std::shared_ptr<SampleCache> cache_;
    std::atomic<bool> ended_{false};
  };
  bool is_used() const { return uses_ > 0; }

  SampleCache(Options options, std::unique_ptr<CacheLog> log);
  ~SampleCache() override;
  SampleCache(const SampleCache&) = delete;
  SampleCache& operator=(const SampleCache&) = delete;

  spec::CacheSpec::Form form() const { return options_.form; }
  spec::CacheSpec::Where where() const { return options_.where; }
  const std::string& name() const { return options_.name; }
  std::uint64_t limit_bytes() const { return limit_bytes_.load(std::memory_order_relaxed); }
  // Never less than it was.
  void raise_limit(std::uint64_t bytes);

  std::optional<CachedItem> find(std::uint64_t item) const;

  // The bytes in place, or null: then read() brings them, as a Source would, and holds() says
  // whether they are what was kept.
  const std::byte* view(const CachedItem& cached) const { return log_->view(cached.location); }
  Result<source::FetchState> read(const CachedItem& cached, source::ItemBytes& out,
                                  source::FetchSink& sink, std::uint64_t token) {
    return log_->read(cached.location, cached.bytes, out, sink, token);
  }
  static bool holds(const CachedItem& cached, std::span<const std::byte> bytes);

  // The most bytes that keep() would take of this item; 0: it is kept already, or refused.
  std::uint64_t room_for(std::uint64_t item) const;
  // Keeps a copy if there is room. Of two who bring the same item the first one's is kept.
  void keep(std::uint64_t item, const source::ItemStamp& stamp, Size size,
            std::span<const std::byte> bytes);
  // Do not ask for this item again: it cannot be had in this form.
  void refuse(std::uint64_t item);
  // What was found is not what the item is any more, or not what was kept.
  void forget_changed(std::uint64_t item, const CachedItem& found);
  // What read() brought, or could not bring, is not what was kept. Storage that fails turns the
  // whole cache off.
  void forget_lost(std::uint64_t item, const CachedItem& found, const Status& why)
      SPDLD_EXCLUDES(failure_mutex_);

  // What a row took with and without what is kept.
  void count_hit(std::chrono::nanoseconds took);
  // `fills`: it took what keeping its item takes.
  void count_miss(std::chrono::nanoseconds took, bool fills);
  // For Snapshot::saved: CacheEstimate::saved_share(), estimated when a run opened the cache. The
  // last one holds.
  void set_saved_share(double share) { saved_share_.store(share, std::memory_order_relaxed); }

  Snapshot snapshot() const SPDLD_EXCLUDES(failure_mutex_);

 private:
  enum class State : std::uint8_t { kFilling, kKept, kRefused };
  struct Entry {
    CachedItem cached;
    State state = State::kFilling;
  };
  static constexpr std::size_t kShards = 64;
  struct Shard {
    mutable Mutex mutex;
    std::unordered_map<std::uint64_t, Entry> entries SPDLD_GUARDED_BY(mutex);
  };

  void appended(std::uint64_t item, std::uint64_t location) override;
  void dropped(std::uint64_t item) override;

  bool take(std::uint64_t bytes);
  void give_back(std::uint64_t bytes) { used_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  bool forget(std::uint64_t item, const CachedItem& found);
  Shard& shard(std::uint64_t item) { return shards_[item % kShards]; }
  const Shard& shard(std::uint64_t item) const { return shards_[item % kShards]; }

  const Options options_;
  std::array<Shard, kShards> shards_;
  // Relaxed, here and below: bounds and counts, which order nothing else.
  std::atomic<std::uint64_t> limit_bytes_;
  std::atomic<std::uint64_t> used_bytes_{0};
  std::atomic<std::uint64_t> items_{0};
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> misses_{0};
  std::atomic<std::uint64_t> hit_ns_{0};
  std::atomic<std::uint64_t> fills_{0};
  std::atomic<std::uint64_t> fill_ns_{0};
  std::atomic<double> saved_share_{1};
  std::atomic<int> uses_{0};
  std::atomic<std::uint64_t> changed_{0};
  std::atomic<std::uint64_t> corrupt_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<bool> off_{false};
  mutable Mutex failure_mutex_;
  Status failure_ SPDLD_GUARDED_BY(failure_mutex_);
  // Last: it may call until it is gone.
  const std::unique_ptr<CacheLog> log_;
};

}  // namespace spdld::engine
