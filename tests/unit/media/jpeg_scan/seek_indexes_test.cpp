// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg_scan/seek_indexes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "base/rng.h"

namespace spdld::media {
namespace {

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 30;

SeekIndexes::Key key(std::uint64_t number) {
  return {.low = mix64(number, 1), .high = mix64(number, 2)};
}

std::vector<std::uint64_t> entries_of(const SeekGrid& grid, std::uint64_t seed) {
  std::vector<std::uint64_t> entries(grid.entries());
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i] = mix64(seed, i);
  return entries;
}

TEST(SeekIndex, KeepsWhatAnEntrySays) {
  for (const std::int16_t dc : {-2048, -1, 0, 1, 2047}) {
    const SeekIndex::Entry entry{
        .byte = (1U << 24) - 1, .bit = 7, .dc = {dc, static_cast<std::int16_t>(-dc / 2), 5}};
    const SeekIndex::Entry back = SeekIndex::Entry::unpacked(entry.packed());
    EXPECT_EQ(back.byte, entry.byte);
    EXPECT_EQ(back.bit, entry.bit);
    EXPECT_EQ(back.dc, entry.dc);
  }
}

TEST(SeekIndexes, GiveEachFileItsOwnIndex) {
  SeekIndexes indexes(kPlenty);
  const auto grid_of = [](std::uint64_t file) {
    const int across = 1 + static_cast<int>(file % 37);
    return SeekGrid{across, 1 + static_cast<int>(file % 23), std::min(8, across)};
  };
  constexpr std::uint64_t kFiles = 20'000;
  for (std::uint64_t file = 0; file < kFiles; ++file)
    EXPECT_TRUE(indexes.add(key(file), grid_of(file), entries_of(grid_of(file), file)));
  for (std::uint64_t file = 0; file < kFiles; ++file) {
    const SeekGrid grid = grid_of(file);
    const auto known = indexes.find(key(file), grid.mcus_across, grid.mcus_down);
    ASSERT_TRUE(known.index) << file;
    const std::vector<std::uint64_t> entries = entries_of(grid, file);
    EXPECT_EQ(known.index->at(grid.mcus_down - 1, grid.mcus_across).packed(), entries.back());
    EXPECT_EQ(known.index->at(0, 0).packed(), entries.front());
  }
  EXPECT_EQ(indexes.snapshot().files, kFiles);
  EXPECT_FALSE(indexes.find(key(kFiles), 1, 1).index);
}

TEST(SeekIndexes, TakeNoMoreThanTheirLimitAndSayWhatFoundNoRoom) {
  constexpr std::uint64_t kLimit = 4 << 20;
  SeekIndexes indexes(kLimit);
  const SeekGrid grid{32, 24, 8};
  std::uint64_t kept = 0;
  for (std::uint64_t file = 0; file < 10'000; ++file)
    kept += indexes.add(key(file), grid, entries_of(grid, file)) ? 1 : 0;
  const SeekIndexes::Snapshot now = indexes.snapshot();
  EXPECT_GT(kept, 0U);
  EXPECT_LT(kept, 10'000U);
  EXPECT_EQ(now.files, kept);
  EXPECT_EQ(now.refused, 10'000U - kept);
  EXPECT_LE(now.bytes, kLimit);
  // Who came first stays.
  EXPECT_TRUE(indexes.find(key(0), 32, 24).index);
}

TEST(SeekIndexes, HaveRoomAgainOnceTheirLimitIsRaised) {
  SeekIndexes indexes(1 << 20);
  const SeekGrid grid{32, 24, 8};
  std::uint64_t file = 0;
  while (indexes.add(key(file), grid, entries_of(grid, file))) ++file;
  indexes.set_limit(4 << 20);
  EXPECT_TRUE(indexes.add(key(file), grid, entries_of(grid, file)));
  indexes.set_limit(0);
  EXPECT_FALSE(indexes.grid_for(32, 24));
  EXPECT_TRUE(indexes.find(key(0), 32, 24).index) << "what is known stays";
}

TEST(SeekIndexes, SpreadEntriesTheFuller) {
  SeekIndexes indexes(1 << 20);
  const SeekGrid first = *indexes.grid_for(64, 48);
  EXPECT_EQ(first.step, 8);
  EXPECT_EQ(indexes.grid_for(5, 48)->step, 5) << "no further apart than a row is long";
  int last = first.step;
  for (std::uint64_t file = 0;; ++file) {
    const auto grid = indexes.grid_for(64, 48);
    if (!grid || !indexes.add(key(file), *grid, entries_of(*grid, file))) break;
    EXPECT_GE(grid->step, last);
    last = grid->step;
  }
  EXPECT_EQ(last, 64) << "a row";
}

TEST(SeekIndexes, UseMostOfASmallLimit) {
  for (const std::uint64_t limit : {std::uint64_t{256} << 10, std::uint64_t{4} << 20}) {
    SeekIndexes indexes(limit);
    const SeekGrid grid{32, 24, 32};
    std::uint64_t file = 0;
    while (indexes.add(key(file), grid, entries_of(grid, file))) ++file;
    const std::uint64_t entry_bytes = file * grid.entries() * sizeof(std::uint64_t);
    EXPECT_GT(entry_bytes, limit / 2) << "of " << limit;
  }
}

TEST(SeekIndexes, CompareOneOfEachNImagesAndEachTimeAnother) {
  SeekIndexes indexes(kPlenty);
  EXPECT_TRUE(indexes.is_to_compare(1));
  EXPECT_TRUE(indexes.is_to_compare(1));
  SeekIndexes others(kPlenty);
  constexpr std::uint32_t kOneIn = 16;
  std::set<std::uint32_t> places;
  for (int turn = 0; turn < 200; ++turn) {
    int count = 0;
    for (std::uint32_t i = 0; i < kOneIn; ++i) {
      if (!others.is_to_compare(kOneIn)) continue;
      ++count;
      places.insert(i);
    }
    ASSERT_EQ(count, 1);
  }
  EXPECT_GT(places.size(), 8U);
}

TEST(SeekIndexes, WithoutRoomHaveNone) {
  SeekIndexes indexes(0);
  EXPECT_FALSE(indexes.grid_for(10, 10));
  indexes.add_odd(key(1));
  EXPECT_FALSE(indexes.find(key(1), 10, 10).is_odd);
  EXPECT_EQ(indexes.snapshot().bytes, 0U);
}

TEST(SeekIndexes, RememberOddFiles) {
  SeekIndexes indexes(kPlenty);
  const SeekGrid grid{8, 8, 8};
  indexes.add_odd(key(1));
  EXPECT_TRUE(indexes.find(key(1), 8, 8).is_odd);
  EXPECT_TRUE(indexes.add(key(1), grid, entries_of(grid, 1))) << "it changes nothing";
  EXPECT_FALSE(indexes.find(key(1), 8, 8).index);
  EXPECT_TRUE(indexes.add(key(2), grid, entries_of(grid, 2)));
  indexes.contradicted(key(2));
  indexes.contradicted(key(2));
  EXPECT_TRUE(indexes.find(key(2), 8, 8).is_odd);
  EXPECT_EQ(indexes.snapshot().contradicted, 1U);
  EXPECT_EQ(indexes.snapshot().files, 0U);
}

TEST(SeekIndexes, AFileOfAnotherSizeIsNoneOfTheirs) {
  SeekIndexes indexes(kPlenty);
  const SeekGrid grid{8, 8, 8};
  EXPECT_TRUE(indexes.add(key(1), grid, entries_of(grid, 1)));
  EXPECT_FALSE(indexes.find(key(1), 80, 80).index);
}

TEST(SeekIndexes, NameTheSameBytesAlikeAndOnlyInOneDaemon) {
  const SeekIndexes one(kPlenty);
  const SeekIndexes other(kPlenty);
  std::vector<std::byte> bytes(1000, std::byte{7});
  const std::vector<std::byte> copy = bytes;
  EXPECT_EQ(one.key_of(bytes), one.key_of(copy));
  EXPECT_FALSE(one.key_of(bytes) == other.key_of(bytes)) << "each has a secret of its own";
  bytes[500] ^= std::byte{1};
  EXPECT_FALSE(one.key_of(bytes) == one.key_of(copy));
}

TEST(SeekIndexes, AreSharedByThreads) {
  SeekIndexes indexes(kPlenty);
  const SeekGrid grid{16, 16, 8};
  constexpr std::uint64_t kFiles = 2000;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&indexes, &grid, thread] {
      for (std::uint64_t i = 0; i < kFiles; ++i) {
        const std::uint64_t file = (i * 7 + thread * 501) % kFiles;
        if (const auto known = indexes.find(key(file), 16, 16); known.index) {
          EXPECT_EQ(known.index->at(0, 0).packed(), mix64(file, 0));
        } else {
          EXPECT_TRUE(indexes.add(key(file), grid, entries_of(grid, file)));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(indexes.snapshot().files, kFiles);
}

}  // namespace
}  // namespace spdld::media
