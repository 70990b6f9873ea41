// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/sample_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/memory/no_memory.h"

namespace spdld::engine {
namespace {

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

void add(std::atomic<std::uint64_t>& counter, std::uint64_t amount) {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

std::uint64_t get(const std::atomic<std::uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

std::uint64_t count_of(std::chrono::nanoseconds took) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0));
}

}  // namespace

SampleCache::SampleCache(Options options, std::unique_ptr<CacheLog> log)
    : options_(std::move(options)), limit_bytes_(options_.limit_bytes), log_(std::move(log)) {}

SampleCache::~SampleCache() = default;

void SampleCache::raise_limit(std::uint64_t bytes) {
  std::uint64_t limit = get(limit_bytes_);
  while (limit < bytes &&
         !limit_bytes_.compare_exchange_weak(limit, bytes, std::memory_order_relaxed)) {
  }
}

std::optional<CachedItem> SampleCache::find(std::uint64_t item) const {
  if (off_.load(std::memory_order_relaxed)) return std::nullopt;
  const Shard& shard = this->shard(item);
  MutexLock lock(shard.mutex);
  const auto found = shard.entries.find(item);
  if (found == shard.entries.end() || found->second.state != State::kKept) return std::nullopt;
  return found->second.cached;
}

bool SampleCache::holds(const CachedItem& cached, std::span<const std::byte> bytes) {
  return bytes.size() == cached.bytes && checksum_of(bytes) == cached.checksum;
}

bool SampleCache::take(std::uint64_t bytes) {
  std::uint64_t used = get(used_bytes_);
  do {
    const std::uint64_t limit = get(limit_bytes_);
    if (used > limit || bytes > limit - used) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

std::uint64_t SampleCache::room_for(std::uint64_t item) const {
  if (off_.load(std::memory_order_relaxed)) return 0;
  const std::uint64_t used = get(used_bytes_) + kEntryBytes;
  const std::uint64_t limit = get(limit_bytes_);
  // Less than the alignment would not hold an entry that is rounded up.
  if (used + kEntryAlignment > limit) return 0;
  {
    const Shard& shard = this->shard(item);
    MutexLock lock(shard.mutex);
    if (shard.entries.contains(item)) return 0;
  }
  return std::min((limit - used) / kEntryAlignment * kEntryAlignment, kMaxItemBytes);
}

void SampleCache::keep(std::uint64_t item, const source::ItemStamp& stamp, Size size,
                       std::span<const std::byte> bytes) {
  if (off_.load(std::memory_order_relaxed) || bytes.size() > kMaxItemBytes) return;
  const std::uint64_t taken = taken_by(bytes.size()) + kEntryBytes;
  if (!take(taken)) return;
  // What can be read in place is not checked: memory is trusted.
  const bool checked = options_.where == spec::CacheSpec::Where::kDisk;
  const Entry entry{.cached = {.stamp = stamp,
                               .size = size,
                               .bytes = bytes.size(),
                               .location = 0,
                               .checksum = checked ? checksum_of(bytes) : 0},
                    .state = State::kFilling};
  bool first = false;
  {
    Shard& shard = this->shard(item);
    MutexLock lock(shard.mutex);
    first = shard.entries.try_emplace(item, entry).second;
  }
  if (!first) return give_back(taken);
  log_->append(item, bytes, *this);
}

void SampleCache::appended(std::uint64_t item, std::uint64_t location) {
  Shard& shard = this->shard(item);
  MutexLock lock(shard.mutex);
  const auto found = shard.entries.find(item);
  SPDLD_CHECK(found != shard.entries.end() && found->second.state == State::kFilling);
  found->second.cached.location = location;
  found->second.state = State::kKept;
  add(items_, 1);
}

void SampleCache::dropped(std::uint64_t item) {
  std::uint64_t bytes = 0;
  {
    Shard& shard = this->shard(item);
    MutexLock lock(shard.mutex);
    const auto found = shard.entries.find(item);
    SPDLD_CHECK(found != shard.entries.end() && found->second.state == State::kFilling);
    bytes = found->second.cached.bytes;
    shard.entries.erase(found);
  }
  give_back(taken_by(bytes) + kEntryBytes);
  add(dropped_, 1);
}

void SampleCache::refuse(std::uint64_t item) {
  if (!take(kEntryBytes)) return;
  Shard& shard = this->shard(item);
  MutexLock lock(shard.mutex);
  if (!shard.entries.try_emplace(item, Entry{.cached = {}, .state = State::kRefused}).second)
    give_back(kEntryBytes);
}

// The entry's bytes stay where they are until the log goes: others may be reading them.
bool SampleCache::forget(std::uint64_t item, const CachedItem& found) {
  Shard& shard = this->shard(item);
  MutexLock lock(shard.mutex);
  const auto entry = shard.entries.find(item);
  if (entry == shard.entries.end() || entry->second.state != State::kKept ||
      entry->second.cached.location != found.location)
    return false;
  shard.entries.erase(entry);
  give_back(kEntryBytes);
  items_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void SampleCache::forget_changed(std::uint64_t item, const CachedItem& found) {
  if (forget(item, found)) add(changed_, 1);
}

void SampleCache::forget_lost(std::uint64_t item, const CachedItem& found, const Status& why) {
  if (why.code() == Code::kCancelled || why.code() == Code::kResourceExhausted ||
      why.code() == kNoMemory)
    return;
  if (forget(item, found)) add(corrupt_, 1);
  if (why.ok() || why.code() == Code::kDataLoss) return;
  off_.store(true, std::memory_order_relaxed);
  MutexLock lock(failure_mutex_);
  if (failure_.ok())
    failure_ = Status(why.code(), "it is off, as its storage fails: " + why.message());
}

void SampleCache::count_hit(std::chrono::nanoseconds took) {
  add(hits_, 1);
  add(hit_ns_, count_of(took));
}

void SampleCache::count_miss(std::chrono::nanoseconds took, bool fills) {
  add(misses_, 1);
  if (!fills) return;
  add(fills_, 1);
  add(fill_ns_, count_of(took));
}

SampleCache::Snapshot SampleCache::snapshot() const {
  Snapshot result{.name = options_.name,
                  .origin = options_.origin,
                  .form = options_.form,
                  .where = options_.where,
                  .limit_bytes = get(limit_bytes_),
                  .bytes = get(used_bytes_),
                  .items = get(items_),
                  .hits = get(hits_),
                  .misses = get(misses_),
                  .fills = get(fills_),
                  .changed = get(changed_),
                  .corrupt = get(corrupt_),
                  .dropped = get(dropped_),
                  .saved = {},
                  .why = {}};
  if (result.hits > 0 && result.fills > 0) {
    const auto hits = static_cast<double>(result.hits);
    const double filling = static_cast<double>(get(fill_ns_)) / static_cast<double>(result.fills);
    const double longer = filling * hits - static_cast<double>(get(hit_ns_));
    const double saved = std::max(longer, 0.0) * saved_share_.load(std::memory_order_relaxed);
    result.saved = std::chrono::nanoseconds(static_cast<std::int64_t>(saved));
  }
  Status failure;
  {
    MutexLock lock(failure_mutex_);
    failure = failure_;
  }
  if (failure.ok()) failure = log_->failure();
  if (!failure.ok()) result.why = failure.message();
  return result;
}

}  // namespace spdld::engine
