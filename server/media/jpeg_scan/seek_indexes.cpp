// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/seek_indexes.h"

#include <xxhash.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
// Functions that choose the instruction set at their first call, in place of those for SSE2.
// Threads may choose at once: what they write is one pointer, and the same.
#include <xxh_x86dispatch.h>
#endif

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "base/random_bytes.h"
#include "base/rng.h"

namespace spdld::media {
namespace {

// Entries are kept in blocks of so many, fewer where the limit is small, or in one of their own
// where they are more.
constexpr std::size_t kMostBlockEntries = 8192;
constexpr std::size_t kLeastBlockEntries = 64;
constexpr std::size_t kBlocks = 8;      // of each shard at the limit, or more where it is large
constexpr std::size_t kLeastTable = 8;  // a power of two

template <std::size_t kBytes>
std::array<unsigned char, kBytes> random_secret() {
  static_assert(kBytes >= XXH3_SECRET_SIZE_MIN);
  std::array<unsigned char, kBytes> secret{};
  random_bytes(std::as_writable_bytes(std::span(secret)));
  return secret;
}

}  // namespace

// Some of the files: a hash table with open addressing, and the blocks that its entries are in.
class SeekIndexes::Shard {
 public:
  Known find(const Key& key, int mcus_across, int mcus_down) const SPDLD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (table_.empty()) return {};
    const Slot& slot = table_[place_of(key)];
    if (slot.state == State::kFree) return {};
    if (slot.state == State::kOdd) return {.index = std::nullopt, .is_odd = true};
    const SeekGrid grid{mcus_across, mcus_down, slot.step};
    // Files of one hash are equal, and so are their sizes, unless somebody has found two others.
    if (slot.count != grid.entries()) return {.index = std::nullopt, .is_odd = true};
    return {.index = SeekIndex(grid, {slot.entries, slot.count})};
  }

  void set_block_entries(std::size_t entries) { block_entries_ = entries; }

  enum class Added { kYes, kThere, kNoRoom };

  // `take` says whether so many bytes more may be used.
  template <typename Take>
  Added add(const Key& key, int step, std::span<const std::uint64_t> entries, const Take& take)
      SPDLD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (is_there(key)) return Added::kThere;
    if (!has_slot(take)) return Added::kNoRoom;
    std::uint64_t* const kept = room_for(entries.size(), take);
    if (kept == nullptr) return Added::kNoRoom;
    std::copy(entries.begin(), entries.end(), kept);
    table_[place_of(key)] = {.key = key,
                             .entries = kept,
                             .count = static_cast<std::uint32_t>(entries.size()),
                             .step = static_cast<std::uint16_t>(step),
                             .state = State::kIndexed};
    ++files_;
    return Added::kYes;
  }

  template <typename Take>
  void add_odd(const Key& key, const Take& take) SPDLD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (is_there(key) || !has_slot(take)) return;
    table_[place_of(key)] = {.key = key, .state = State::kOdd};
    ++files_;
  }

  // False: there is no index of it.
  bool make_odd(const Key& key) SPDLD_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!is_there(key)) return false;
    return std::exchange(table_[place_of(key)].state, State::kOdd) == State::kIndexed;
  }

 private:
  enum class State : std::uint8_t { kFree, kIndexed, kOdd };
  struct Slot {
    Key key = {};
    const std::uint64_t* entries = nullptr;
    std::uint32_t count = 0;
    std::uint16_t step = 0;
    State state = State::kFree;
  };

  bool is_there(const Key& key) const SPDLD_REQUIRES(mutex_) {
    return !table_.empty() && table_[place_of(key)].state != State::kFree;
  }
  // Whether there is room in the table for one more.
  template <typename Take>
  bool has_slot(const Take& take) SPDLD_REQUIRES(mutex_) {
    return 2 * (files_ + 1) <= table_.size() || grow(take);
  }

  // Where the key is, or would be.
  std::size_t place_of(const Key& key) const SPDLD_REQUIRES(mutex_) {
    std::size_t at = key.high & (table_.size() - 1);
    while (table_[at].state != State::kFree && !(table_[at].key == key))
      at = (at + 1) & (table_.size() - 1);
    return at;
  }

  template <typename Take>
  bool grow(const Take& take) SPDLD_REQUIRES(mutex_) {
    const std::size_t size = std::max(kLeastTable, 2 * table_.size());
    if (!take((size - table_.size()) * sizeof(Slot))) return false;
    std::vector<Slot> old(size);
    old.swap(table_);
    for (const Slot& slot : old) {
      if (slot.state != State::kFree) table_[place_of(slot.key)] = slot;
    }
    return true;
  }

  template <typename Take>
  std::uint64_t* room_for(std::size_t count, const Take& take) SPDLD_REQUIRES(mutex_) {
    if (count > left_) {
      const std::size_t size = std::max(count, block_entries_);
      if (!take(size * sizeof(std::uint64_t))) return nullptr;
      blocks_.push_back(std::make_unique<std::uint64_t[]>(size));
      // A block of one index alone leaves the one that others share as it is.
      if (size != block_entries_) return blocks_.back().get();
      free_ = blocks_.back().get();
      left_ = size;
    }
    std::uint64_t* const room = free_;
    free_ += count;
    left_ -= count;
    return room;
  }

  std::size_t block_entries_ = kMostBlockEntries;
  mutable Mutex mutex_;
  std::vector<Slot> table_ SPDLD_GUARDED_BY(mutex_);
  std::size_t files_ SPDLD_GUARDED_BY(mutex_) = 0;  // slots that are not free
  std::vector<std::unique_ptr<std::uint64_t[]>> blocks_ SPDLD_GUARDED_BY(mutex_);
  std::uint64_t* free_ SPDLD_GUARDED_BY(mutex_) = nullptr;
  std::size_t left_ SPDLD_GUARDED_BY(mutex_) = 0;
};

SeekIndexes::SeekIndexes(std::uint64_t limit_bytes)
    : limit_bytes_(limit_bytes),
      secret_(random_secret<kSecretBytes>()),
      shards_(std::make_unique<std::array<Shard, kShards>>()) {
  const auto entries = static_cast<std::size_t>(limit_bytes / sizeof(std::uint64_t));
  for (Shard& shard : *shards_)
    shard.set_block_entries(
        std::clamp(entries / kShards / kBlocks, kLeastBlockEntries, kMostBlockEntries));
}

SeekIndexes::~SeekIndexes() = default;

SeekIndexes::Key SeekIndexes::key_of(std::span<const std::byte> file) const {
  const XXH128_hash_t hash =
      XXH3_128bits_withSecret(file.data(), file.size(), secret_.data(), secret_.size());
  return {hash.low64, hash.high64};
}

SeekIndexes::Shard& SeekIndexes::shard_of(const Key& key) const {
  return (*shards_)[key.low % kShards];
}

SeekIndexes::Known SeekIndexes::find(const Key& key, int mcus_across, int mcus_down) const {
  return shard_of(key).find(key, mcus_across, mcus_down);
}

std::optional<SeekGrid> SeekIndexes::grid_for(int mcus_across, int mcus_down) const {
  const std::uint64_t bytes = bytes_.load(std::memory_order_relaxed);
  const std::uint64_t limit = limit_bytes_.load(std::memory_order_relaxed);
  if (bytes >= limit) return std::nullopt;
  const int step = bytes < limit / 4 ? 8 : bytes < limit / 2 ? 16 : mcus_across;
  return SeekGrid{mcus_across, mcus_down, std::min(step, mcus_across)};
}

bool SeekIndexes::add(const Key& key, const SeekGrid& grid,
                      std::span<const std::uint64_t> entries) {
  SPDLD_CHECK(entries.size() == grid.entries());
  const auto take = [this](std::uint64_t bytes) { return this->take(bytes); };
  switch (shard_of(key).add(key, grid.step, entries, take)) {
    case Shard::Added::kYes: files_.fetch_add(1, std::memory_order_relaxed); return true;
    case Shard::Added::kThere: return true;
    case Shard::Added::kNoRoom: break;
  }
  refused_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void SeekIndexes::add_odd(const Key& key) {
  shard_of(key).add_odd(key, [this](std::uint64_t bytes) { return take(bytes); });
}

void SeekIndexes::contradicted(const Key& key) {
  if (make_odd(key)) contradicted_.fetch_add(1, std::memory_order_relaxed);
}

bool SeekIndexes::is_to_compare(std::uint32_t one_in) {
  const std::uint64_t number = asked_.fetch_add(1, std::memory_order_relaxed);
  std::uint64_t seed = 0;  // nobody knows which images are compared
  std::memcpy(&seed, secret_.data(), sizeof seed);
  return number % one_in == mix64(seed, number / one_in) % one_in;
}

void SeekIndexes::compared(const Key& key, bool are_same) {
  compared_.fetch_add(1, std::memory_order_relaxed);
  if (are_same) return;
  add_odd(key);
  make_odd(key);
  different_.fetch_add(1, std::memory_order_relaxed);
}

bool SeekIndexes::make_odd(const Key& key) {
  if (!shard_of(key).make_odd(key)) return false;
  files_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

bool SeekIndexes::take(std::uint64_t bytes) {
  const std::uint64_t limit = limit_bytes_.load(std::memory_order_relaxed);
  std::uint64_t taken = bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit - std::min(taken, limit)) return false;
  } while (!bytes_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
  return true;
}

SeekIndexes::Snapshot SeekIndexes::snapshot() const {
  return {.limit_bytes = limit_bytes_.load(std::memory_order_relaxed),
          .bytes = bytes_.load(std::memory_order_relaxed),
          .files = files_.load(std::memory_order_relaxed),
          .refused = refused_.load(std::memory_order_relaxed),
          .contradicted = contradicted_.load(std::memory_order_relaxed),
          .compared = compared_.load(std::memory_order_relaxed),
          .different = different_.load(std::memory_order_relaxed),
          .images = counter_.images()};
}

}  // namespace spdld::media
