// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/sample_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/cache/sample_cache_memory.h"
#include "tests/unit/engine/content_of.h"

namespace spdld::engine {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMany = std::uint64_t{1} << 40;

source::ItemStamp stamp_of(std::uint64_t item, std::int64_t revision = 1) {
  source::ItemStamp stamp;
  stamp.inode = item;
  stamp.mtime_ns = revision;
  return stamp;
}

class SampleCacheTest : public ::testing::Test {
 protected:
  void start(std::uint64_t limit_bytes, std::uint64_t slab_bytes = 1 << 16) {
    cache_ = std::make_unique<SampleCache>(
        SampleCache::Options{.name = "test",
                             .form = spec::CacheSpec::Form::kEncoded,
                             .where = spec::CacheSpec::Where::kRam,
                             .limit_bytes = limit_bytes},
        std::make_unique<MemoryLog>(MemoryLog::Options{
            .slab_bytes = slab_bytes, .free_bytes = [this] { return free_bytes_.load(); }}));
  }
  void keep(std::uint64_t item, std::size_t size = 1000) {
    cache_->keep(item, stamp_of(item), {}, content_of(item, size));
  }
  // Whether it has the item, with the right bytes.
  bool has(std::uint64_t item, std::size_t size = 1000) const {
    const auto found = cache_->find(item);
    if (!found) return false;
    const std::vector<std::byte> expected = content_of(item, size);
    EXPECT_EQ(found->stamp, stamp_of(item));
    EXPECT_EQ(found->bytes, size);
    EXPECT_EQ(std::memcmp(cache_->view(*found), expected.data(), size), 0);
    return true;
  }

  std::atomic<std::uint64_t> free_bytes_ = kMany;
  std::unique_ptr<SampleCache> cache_;
};

TEST_F(SampleCacheTest, GivesBackWhatWasKept) {
  start(1 << 20);
  EXPECT_FALSE(cache_->find(3));
  for (std::uint64_t item = 0; item < 300; ++item) keep(item);
  for (std::uint64_t item = 0; item < 300; ++item) EXPECT_TRUE(has(item)) << item;
  EXPECT_FALSE(cache_->find(300));
  EXPECT_EQ(cache_->snapshot().items, 300U);
}

TEST_F(SampleCacheTest, KeepsItemsOfNoBytesAndOfMoreThanASlab) {
  start(1 << 20, 4096);
  cache_->keep(1, stamp_of(1), {}, {});
  keep(2, 100'000);
  keep(3, 10);
  EXPECT_EQ(cache_->find(1)->bytes, 0U);
  EXPECT_TRUE(has(2, 100'000));
  EXPECT_TRUE(has(3, 10));
}

TEST_F(SampleCacheTest, StaysWithinItsBoundAndKeepsWhatCameFirst) {
  constexpr std::uint64_t kLimit = 100'000;
  start(kLimit);
  for (std::uint64_t item = 0; item < 1000; ++item) keep(item);
  const SampleCache::Snapshot seen = cache_->snapshot();
  EXPECT_LE(seen.bytes, kLimit);
  EXPECT_GT(seen.bytes, kLimit - 1024 - SampleCache::kEntryBytes);
  EXPECT_EQ(seen.items, kLimit / (1024 + SampleCache::kEntryBytes));
  for (std::uint64_t item = 0; item < 1000; ++item) EXPECT_EQ(has(item), item < seen.items) << item;
  EXPECT_LT(cache_->room_for(1000), 1000U);
}

TEST_F(SampleCacheTest, TakesWhateverItSaysThereIsRoomFor) {
  start(10'000);
  keep(1, 3001);
  const std::uint64_t room = cache_->room_for(2);
  ASSERT_GT(room, 0U);
  keep(2, room);
  EXPECT_TRUE(has(2, room));
  EXPECT_EQ(cache_->room_for(3), 0U);
}

TEST_F(SampleCacheTest, KeepsNothingWithoutRoomForItsIndex) {
  start(SampleCache::kEntryBytes);
  keep(1, 0);
  EXPECT_FALSE(cache_->find(1));
  EXPECT_EQ(cache_->room_for(1), 0U);
  EXPECT_EQ(cache_->snapshot().bytes, 0U);
}

TEST_F(SampleCacheTest, GoesOnKeepingWhenItsBoundIsRaisedAndNeverLowersIt) {
  start(2000);
  keep(1);
  keep(2);
  EXPECT_FALSE(has(2));
  cache_->raise_limit(4000);
  cache_->raise_limit(10);
  EXPECT_EQ(cache_->limit_bytes(), 4000U);
  keep(2);
  EXPECT_TRUE(has(2));
}

TEST_F(SampleCacheTest, KeepsTheFirstOfTwoThatBringTheSameItem) {
  start(1 << 20);
  keep(5);
  const std::uint64_t bytes = cache_->snapshot().bytes;
  cache_->keep(5, stamp_of(5, 2), {}, content_of(6));
  EXPECT_TRUE(has(5));
  EXPECT_EQ(cache_->snapshot().bytes, bytes);
  EXPECT_EQ(cache_->room_for(5), 0U);
}

TEST_F(SampleCacheTest, ForgetsWhatChangedAndKeepsWhatItBecame) {
  start(1 << 20);
  keep(5);
  const CachedItem old = *cache_->find(5);
  cache_->forget_changed(5, old);
  EXPECT_FALSE(cache_->find(5));
  cache_->keep(5, stamp_of(5, 2), {}, content_of(6));
  EXPECT_EQ(cache_->find(5)->stamp, stamp_of(5, 2));
  // Another worker found the same change: what is new stays.
  cache_->forget_changed(5, old);
  EXPECT_TRUE(cache_->find(5));
  EXPECT_EQ(cache_->snapshot().changed, 1U);
}

TEST_F(SampleCacheTest, LeavesBytesWhereTheyAreForWhoIsReadingThem) {
  start(1 << 20);
  keep(5);
  const CachedItem found = *cache_->find(5);
  const std::byte* const bytes = cache_->view(found);
  cache_->forget_changed(5, found);
  for (std::uint64_t item = 10; item < 500; ++item) keep(item);
  EXPECT_EQ(std::memcmp(bytes, content_of(5).data(), 1000), 0);
}

TEST_F(SampleCacheTest, NeverTriesAgainWhatWasRefused) {
  start(1 << 20);
  EXPECT_GT(cache_->room_for(5), 0U);
  cache_->refuse(5);
  cache_->refuse(5);
  EXPECT_EQ(cache_->room_for(5), 0U);
  EXPECT_FALSE(cache_->find(5));
  EXPECT_EQ(cache_->snapshot().bytes, SampleCache::kEntryBytes);
}

TEST_F(SampleCacheTest, StopsGrowingWhenMemoryRunsOutAndSaysSo) {
  start(1 << 20, 8192);
  keep(1);
  free_bytes_ = 5000;
  std::uint64_t item = 2;
  while (cache_->snapshot().why.empty()) keep(item++);
  EXPECT_THAT(cache_->snapshot().why, HasSubstr("only 4.9 KiB of memory are free"));
  EXPECT_TRUE(has(1));
  const std::uint64_t bytes = cache_->snapshot().bytes;
  free_bytes_ = kMany;
  keep(item);
  EXPECT_FALSE(cache_->find(item));
  EXPECT_EQ(cache_->snapshot().bytes, bytes);  // what was not kept is not counted
  EXPECT_EQ(cache_->snapshot().dropped, 2U);
}

TEST_F(SampleCacheTest, SaysWhatHitsSaved) {
  start(1 << 20);
  cache_->count_miss(std::chrono::nanoseconds(1000), true);
  cache_->count_miss(std::chrono::nanoseconds(3000), true);
  cache_->count_miss(std::chrono::nanoseconds(100), false);
  EXPECT_EQ(cache_->snapshot().saved.count(), 0);
  for (int i = 0; i < 3; ++i) cache_->count_hit(std::chrono::nanoseconds(500));
  const SampleCache::Snapshot seen = cache_->snapshot();
  EXPECT_EQ(seen.hits, 3U);
  EXPECT_EQ(seen.misses, 3U);
  EXPECT_EQ(seen.saved.count(), 3 * (2000 - 500));
  cache_->set_saved_share(0.5);
  EXPECT_EQ(cache_->snapshot().saved.count(), 3 * (2000 - 500) / 2);
}

TEST_F(SampleCacheTest, SavesNothingWhereHitsTakeLonger) {
  start(1 << 20);
  cache_->count_miss(std::chrono::nanoseconds(10), true);
  cache_->count_hit(std::chrono::nanoseconds(500));
  EXPECT_EQ(cache_->snapshot().saved.count(), 0);
}

TEST_F(SampleCacheTest, HoldsOneCopyOfEachItemWhenManyMissAtOnce) {
  start(200'000);
  constexpr std::uint64_t kItems = 400;
  std::vector<std::jthread> workers;
  for (std::uint64_t worker = 0; worker < 4; ++worker) {
    workers.emplace_back([&, worker] {
      for (std::uint64_t i = 0; i < 3 * kItems; ++i) {
        const std::uint64_t item = (i * 7 + worker * 31) % kItems;
        if (!has(item)) keep(item);
      }
    });
  }
  workers.clear();
  const SampleCache::Snapshot seen = cache_->snapshot();
  EXPECT_LE(seen.bytes, 200'000U);
  EXPECT_EQ(seen.bytes, seen.items * (1024 + SampleCache::kEntryBytes));
  std::uint64_t kept = 0;
  for (std::uint64_t item = 0; item < kItems; ++item) kept += has(item) ? 1 : 0;
  EXPECT_EQ(kept, seen.items);
}

}  // namespace
}  // namespace spdld::engine
