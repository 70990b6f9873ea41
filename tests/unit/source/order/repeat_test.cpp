// SPDX-License-Identifier: Apache-2.0
// Items that stand several times in an epoch (Repeat), in every order, world size and tail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "source/order/sampler.h"
#include "source/order/sharding.h"
#include "tests/unit/source/order/epoch_of.h"

namespace spdld::source {
namespace {

using RowCounts = std::map<std::pair<std::uint64_t, std::uint64_t>, int>;

constexpr std::uint64_t kRepeatSeed = 11;
constexpr std::uint64_t kThird = 2;

std::shared_ptr<const Lengths> uneven_lengths(std::uint64_t items) {
  std::vector<float> lengths(items);
  for (std::uint64_t i = 0; i < items; ++i) lengths[i] = static_cast<float>(i * 37 % 101);
  return std::make_shared<const Lengths>(std::move(lengths));
}

std::vector<Shuffle> all_shuffles() {
  using Kind = Shuffle::Kind;
  return {
      {.kind = Kind::kNone},
      {.kind = Kind::kGlobal},
      {.kind = Kind::kBlock, .block = 4, .interleave = 3},
      {.kind = Kind::kGlobal, .bucket = Shuffle::Bucket{.by = "length", .window = 16, .run = 4}}};
}

Sampler sampler_of(std::uint64_t items, Shuffle shuffle, Repeat repeat) {
  shuffle.repeat = repeat;
  return {items, shuffle, kRepeatSeed, uneven_lengths(items)};
}

template <typename Body>
void for_many_repeats(Body body) {
  for (const Shuffle& shuffle : all_shuffles()) {
    for (const std::uint64_t items : {1, 2, 7, 32, 45}) {
      for (const std::uint32_t rows : {1, 2, 3, 8}) {
        for (const bool adjacent : {true, false})
          body(items, shuffle, Repeat{.rows = rows, .adjacent = adjacent});
      }
    }
  }
}

void count_row(Sampler::Row row, RowCounts& counts) { ++counts[{row.item, row.repetition}]; }

// Each row of each of the items once.
RowCounts rows_once(std::uint64_t items, std::uint32_t rows) {
  RowCounts counts;
  for (std::uint64_t item = 0; item < items; ++item) {
    for (std::uint64_t row = 0; row < rows; ++row) counts[{item, row}] = 1;
  }
  return counts;
}

TEST(Repeat, GivesEveryRowOfEveryItemOnceInAnEpoch) {
  for_many_repeats([](std::uint64_t items, const Shuffle& shuffle, Repeat repeat) {
    const Sampler sampler = sampler_of(items, shuffle, repeat);
    ASSERT_EQ(sampler.rows(), items * repeat.rows);
    Sampler::Epoch epoch(sampler, kThird);
    RowCounts counts;
    for (std::uint64_t p = 0; p < sampler.rows(); ++p) {
      const Sampler::Row row = epoch.row(p);
      ASSERT_EQ(row, sampler.row(kThird, p));
      count_row(row, counts);
    }
    EXPECT_EQ(counts, rows_once(items, repeat.rows));
  });
}

TEST(Repeat, LeavesItemsInTheOrderThatTheyHaveOnce) {
  for_many_repeats([](std::uint64_t items, const Shuffle& shuffle, Repeat repeat) {
    if (!repeat.adjacent && repeat.rows > 1) return;
    const Sampler sampler = sampler_of(items, shuffle, repeat);
    const auto plain = epoch_of(sampler_of(items, shuffle, {}), kThird);
    for (std::uint64_t p = 0; p < sampler.rows(); ++p)
      ASSERT_EQ(sampler.row(kThird, p),
                (Sampler::Row{.item = plain[p / repeat.rows], .repetition = p % repeat.rows}));
  });
}

TEST(Repeat, SpreadsTheRowsOfAnItemThatAreNotAdjacent) {
  constexpr std::uint64_t kItems = 500;
  for (const Shuffle& shuffle : all_shuffles()) {
    if (shuffle.kind != Shuffle::Kind::kGlobal || shuffle.bucket) continue;
    const auto items = epoch_of(sampler_of(kItems, shuffle, {.rows = 4, .adjacent = false}), 0);
    std::uint64_t neighbours = 0;
    for (std::size_t p = 0; p + 1 < items.size(); ++p)
      neighbours += items[p] == items[p + 1] ? 1 : 0;
    EXPECT_LT(neighbours, 20u);  // about 3 are expected
  }
}

TEST(Repeat, PutsRowsThatAreNotAdjacentIntoRunsOfLikeLength) {
  constexpr std::uint64_t kItems = 64;
  const Sampler sampler = sampler_of(kItems, all_shuffles().back(), {.rows = 2, .adjacent = false});
  const auto lengths = uneven_lengths(kItems);
  for (std::uint64_t begin = 0; begin < sampler.rows(); begin += 16) {
    std::vector<std::pair<float, float>> runs;
    for (std::uint64_t p = begin; p < begin + 16; ++p) {
      const float length = (*lengths)[sampler.item(kThird, p)];
      if (p % 4 == 0) runs.emplace_back(length, length);
      runs.back() = {std::min(runs.back().first, length), std::max(runs.back().second, length)};
    }
    std::sort(runs.begin(), runs.end());
    for (std::size_t i = 0; i + 1 < runs.size(); ++i) EXPECT_LE(runs[i].second, runs[i + 1].first);
  }
}

// Adds the rows that count of the segment's steps before `end`, and holds that a batch has all
// adjacent rows of its items, in order.
void deal_rows(const Sampler& sampler, Repeat repeat, const Sharding& sharding, std::uint64_t end,
               RowCounts& counts) {
  for (std::uint64_t step = sharding.segment().first_step; step < end; ++step) {
    for (std::uint32_t shard = 0; shard < sharding.segment().num_shards; ++shard) {
      const BatchRows rows = sharding.rows(step, shard);
      ASSERT_LE(rows.rows, sharding.segment().batch);
      for (std::uint64_t row = 0; row < rows.rows; ++row) {
        const Sampler::Row of = sampler.row(kThird, rows.position(row));
        if (row < rows.valid) count_row(of, counts);
        if (repeat.group() == 0) continue;
        ASSERT_EQ(rows.rows % repeat.rows, 0u);
        ASSERT_EQ(rows.valid % repeat.rows, 0u);
        const std::uint64_t first = row / repeat.rows * repeat.rows;
        ASSERT_EQ(of.repetition, row % repeat.rows);
        ASSERT_EQ(of.item, sampler.item(kThird, rows.position(first)));
      }
    }
  }
}

template <typename Body>
void for_many_shares(Body body) {
  for (const std::uint32_t shards : {1, 2, 3, 5}) {
    for (const std::uint64_t groups : {1, 2, 3}) body(shards, groups);
  }
}

TEST(Repeat, DealsEveryRowToOneShardOnce) {
  for_many_repeats([](std::uint64_t items, const Shuffle& shuffle, Repeat repeat) {
    const Sampler sampler = sampler_of(items, shuffle, repeat);
    for_many_shares([&](std::uint32_t shards, std::uint64_t groups) {
      const Segment segment{.num_shards = shards, .batch = groups * repeat.rows};
      for (const Tail tail : {Tail::kPad, Tail::kKeep, Tail::kDrop}) {
        const Sharding sharding(sampler.rows(), tail, segment, repeat.group());
        RowCounts counts;
        deal_rows(sampler, repeat, sharding, sharding.end_step(), counts);
        if (tail != Tail::kDrop) {
          EXPECT_EQ(counts, rows_once(items, repeat.rows));
          continue;
        }
        const std::uint64_t step = shards * segment.batch;
        EXPECT_EQ(counts.size(), sampler.rows() / step * step);
      }
    });
  });
}

TEST(Repeat, DealsTheKeptTailOutEvenlyByItems) {
  const Sharding sharding(7 * 4, Tail::kKeep, {.num_shards = 3, .batch = 12}, 4);
  ASSERT_EQ(sharding.end_step(), 1u);
  EXPECT_EQ(sharding.rows(0, 0).valid, 12u);
  EXPECT_EQ(sharding.rows(0, 1).valid, 8u);
  EXPECT_EQ(sharding.rows(0, 2).valid, 8u);
  // A shard without any has the rows of an item as padding.
  const BatchRows empty = Sharding(4, Tail::kKeep, {.num_shards = 2, .batch = 8}, 4).rows(0, 1);
  EXPECT_EQ(empty.valid, 0u);
  EXPECT_EQ(empty.rows, 4u);
}

TEST(Repeat, GoesOnExactlyUnderAnotherWorldAndBatchSize) {
  for_many_repeats([](std::uint64_t items, const Shuffle& shuffle, Repeat repeat) {
    const Sampler sampler = sampler_of(items, shuffle, repeat);
    const Sharding before(sampler.rows(), Tail::kKeep,
                          {.num_shards = 2, .batch = 2 * std::uint64_t{repeat.rows}},
                          repeat.group());
    for (std::uint64_t cut = 0; cut < before.end_step(); ++cut) {
      RowCounts counts;
      deal_rows(sampler, repeat, before, cut, counts);
      const Sharding after(sampler.rows(), Tail::kKeep,
                           {.base = before.position_of(cut),
                            .first_step = cut,
                            .num_shards = 3,
                            .batch = 3 * std::uint64_t{repeat.rows}},
                           repeat.group());
      deal_rows(sampler, repeat, after, after.end_step(), counts);
      ASSERT_EQ(counts, rows_once(items, repeat.rows));
    }
  });
}

TEST(Repeat, PutsOneItemInThePlaceOfAllAdjacentRows) {
  constexpr std::uint64_t kItems = 20;
  for (const Shuffle& shuffle : all_shuffles()) {
    const Sampler sampler = sampler_of(kItems, shuffle, {.rows = 4});
    std::set<std::uint64_t> seen;
    for (std::uint64_t p = 0; p < sampler.rows(); ++p) {
      const std::uint64_t substitute = sampler.substitute(kThird, p, 1);
      EXPECT_LT(substitute, kItems);
      EXPECT_NE(substitute, sampler.item(kThird, p));
      EXPECT_EQ(substitute, sampler.substitute(kThird, p / 4 * 4, 1));
      seen.insert(substitute);
    }
    EXPECT_GT(seen.size(), kItems / 3);
  }
}

}  // namespace
}  // namespace spdld::source
