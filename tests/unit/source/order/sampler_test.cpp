// SPDX-License-Identifier: Apache-2.0
#include "source/order/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "source/order/permutation.h"
#include "tests/unit/source/order/epoch_of.h"

namespace spdld::source {
namespace {

constexpr Shuffle kNone{.kind = Shuffle::Kind::kNone};

constexpr Shuffle blocks(std::uint64_t block, std::uint64_t interleave) {
  return {.kind = Shuffle::Kind::kBlock, .block = block, .interleave = interleave};
}

bool is_bijection(std::vector<std::uint64_t> items) {
  std::sort(items.begin(), items.end());
  for (std::uint64_t i = 0; i < items.size(); ++i) {
    if (items[i] != i) return false;
  }
  return true;
}

std::vector<std::uint64_t> first_items(const Sampler& sampler, std::uint64_t epoch) {
  std::vector<std::uint64_t> items;
  for (std::uint64_t p = 0; p < 8; ++p) items.push_back(sampler.item(epoch, p));
  return items;
}

constexpr std::array<std::uint64_t, 24> kSizes{1,   2,   3,   4,    5,    7,    8,    9,
                                               15,  16,  17,  31,   63,   64,   65,   97,
                                               127, 257, 997, 1023, 1025, 4099, 8193, 50021};

TEST(Sampler, KeepsTheListingsOrderWithoutShuffle) {
  const Sampler sampler(10, kNone, 7);
  for (std::uint64_t p = 0; p < 10; ++p) EXPECT_EQ(sampler.item(3, p), p);
}

TEST(Sampler, GivesEveryItemOnceInAnEpoch) {
  for (const std::uint64_t size : kSizes) {
    for (const std::uint64_t epoch : {0, 1, 77}) {
      EXPECT_TRUE(is_bijection(epoch_of(Sampler(size, kGlobal, 42), epoch)))
          << size << " items, epoch " << epoch;
    }
  }
}

TEST(Sampler, GivesEveryItemOnceInAnEpochOfBlocks) {
  for (std::uint64_t size = 1; size <= 40; ++size) {
    for (std::uint64_t block = 1; block <= 9; ++block) {
      for (std::uint64_t interleave = 1; interleave <= 6; ++interleave) {
        for (std::uint64_t epoch = 0; epoch < 4; ++epoch) {
          ASSERT_TRUE(is_bijection(epoch_of(Sampler(size, blocks(block, interleave), 42), epoch)))
              << size << " items, " << block << " x " << interleave << ", epoch " << epoch;
        }
      }
    }
  }
  for (const std::uint64_t size : kSizes) {
    EXPECT_TRUE(is_bijection(epoch_of(Sampler(size, blocks(64, 4), 1), 2))) << size;
    EXPECT_TRUE(is_bijection(epoch_of(Sampler(size, blocks(1000, 3), 1), 2))) << size;
  }
}

TEST(Sampler, TakesBlocksAndInterleavesOfAnySize) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  for (const Shuffle& shuffle : {blocks(0, 0), blocks(kHuge, kHuge), blocks(1, kHuge),
                                 blocks(kHuge, 1), blocks(0, 16), blocks(16, 0)}) {
    EXPECT_TRUE(is_bijection(epoch_of(Sampler(1000, shuffle, 5), 0)))
        << shuffle.block << " x " << shuffle.interleave;
  }
}

// What users' batches hang on: never change these numbers, give the new order a new name.
TEST(Sampler, YieldsThePinnedOrders) {
  using Items = std::vector<std::uint64_t>;
  EXPECT_EQ(first_items(Sampler(1281167, kGlobal, 42), 0),
            (Items{657711, 643147, 217808, 696465, 243186, 22831, 548832, 728509}));
  EXPECT_EQ(first_items(Sampler(1281167, kGlobal, 42), 1),
            (Items{425107, 176109, 194843, 27026, 794052, 19288, 653324, 1159006}));
  EXPECT_EQ(first_items(Sampler(1281167, blocks(4096, 16), 42), 0),
            (Items{491547, 248593, 56618, 638349, 249751, 83583, 540442, 722903}));
  EXPECT_EQ(first_items(Sampler(10, kGlobal, 0), 0), (Items{8, 7, 4, 0, 2, 5, 6, 9}));
  EXPECT_EQ(first_items(Sampler(20, blocks(3, 2), 0), 0), (Items{8, 12, 6, 7, 14, 13, 18, 19}));
  EXPECT_EQ(Sampler(1281167, kGlobal, 42).substitute(0, 0, 1), 715816u);
  EXPECT_EQ(Sampler(1281167, kGlobal, 42).substitute(0, 0, 2), 815724u);
}

TEST(Sampler, TellsTheSameOfManyPositionsAsOfEachAlone) {
  for (const Shuffle& shuffle : {kNone, kGlobal, blocks(8, 3), blocks(1, 1), blocks(5, 100)}) {
    for (const std::uint64_t size : kSizes) {
      const Sampler sampler(size, shuffle, 9);
      Sampler::Epoch epoch(sampler, 4);
      for (std::uint64_t p = 0; p < size; ++p) {
        const std::uint64_t position = p % 2 == 0 ? p : size - p;  // from group to group
        ASSERT_EQ(epoch.row(position), sampler.row(4, position)) << size << " items, " << position;
      }
    }
  }
}

TEST(Sampler, OrdersEpochsAndSeedsDifferently) {
  for (const Shuffle& shuffle : {kGlobal, blocks(10, 4)}) {
    const auto order = epoch_of(Sampler(1000, shuffle, 1), 0);
    EXPECT_NE(order, epoch_of(Sampler(1000, shuffle, 1), 1));
    EXPECT_NE(order, epoch_of(Sampler(1000, shuffle, 2), 0));
    EXPECT_EQ(order, epoch_of(Sampler(1000, shuffle, 1), 0));
  }
}

TEST(Sampler, HoldsNothingThatGrowsWithTheDataset) {
  const std::uint64_t items = (std::uint64_t{1} << 62) - 57;
  const Sampler sampler(items, kGlobal, 3);
  std::set<std::uint64_t> seen;
  for (std::uint64_t p = 0; p < 1000; ++p) {
    const std::uint64_t item = sampler.item(5, items - 1 - p);
    EXPECT_LT(item, items);
    EXPECT_TRUE(seen.insert(item).second);
  }
  EXPECT_LE(sizeof(Sampler), 64u);
}

// Each of n items should stand at each of n positions equally often over many epochs: chi-square
// with (n-1)^2 degrees of freedom, whose deviation is sqrt(2 (n-1)^2).
TEST(Sampler, PutsEveryItemEverywhereEquallyOften) {
  for (const std::uint64_t n : {2, 3, 4, 5, 8, 13, 16, 29}) {
    constexpr std::uint64_t kEpochs = 4000;
    std::vector<double> counts(n * n);
    const Sampler sampler(n, kGlobal, 99);
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      for (std::uint64_t p = 0; p < n; ++p) ++counts[p * n + sampler.item(epoch, p)];
    }
    const double expected = static_cast<double>(kEpochs) / static_cast<double>(n);
    double chi_square = 0;
    for (const double count : counts) {
      chi_square += (count - expected) * (count - expected) / expected;
    }
    const auto freedom = static_cast<double>((n - 1) * (n - 1));
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom) + 5) << n << " items";
  }
}

TEST(Sampler, LeavesNoNeighboursTogether) {
  constexpr std::uint64_t kItems = 50021;
  const auto order = epoch_of(Sampler(kItems, kGlobal, 8), 0);
  std::uint64_t neighbours = 0;
  std::uint64_t rising = 0;
  std::uint64_t at_home = 0;
  for (std::uint64_t p = 0; p + 1 < kItems; ++p) {
    if (order[p] + 1 == order[p + 1]) ++neighbours;
    if (order[p] < order[p + 1]) ++rising;
    if (order[p] == p) ++at_home;
  }
  EXPECT_LT(neighbours, 10u);  // about one is expected of a random permutation
  EXPECT_LT(at_home, 10u);     // likewise
  EXPECT_NEAR(static_cast<double>(rising), kItems / 2.0, 5 * std::sqrt(kItems / 12.0));
}

TEST(Sampler, TouchesFewBlocksAtATime) {
  constexpr std::uint64_t kBlock = 32;
  constexpr std::uint64_t kInterleave = 4;
  constexpr std::uint64_t kItems = 32 * 100;
  const auto order = epoch_of(Sampler(kItems, blocks(kBlock, kInterleave), 21), 4);
  std::set<std::uint64_t> seen;
  for (std::uint64_t begin = 0; begin < kItems; begin += kBlock * kInterleave) {
    std::set<std::uint64_t> group;
    for (std::uint64_t p = begin; p < begin + kBlock * kInterleave; ++p) {
      group.insert(order[p] / kBlock);
    }
    EXPECT_EQ(group.size(), kInterleave);
    for (const std::uint64_t block : group) EXPECT_TRUE(seen.insert(block).second);
  }
}

TEST(Sampler, MixesTheBlocksOfAGroup) {
  const auto order = epoch_of(Sampler(4096, blocks(256, 4), 2), 0);
  std::uint64_t changes = 0;
  for (std::uint64_t p = 0; p + 1 < 1024; ++p) {
    if (order[p] / 256 != order[p + 1] / 256) ++changes;
  }
  EXPECT_NEAR(static_cast<double>(changes), 1023 * 0.75, 100);
}

TEST(Sampler, MovesTheShortBlockAround) {
  std::set<std::uint64_t> places;
  const Sampler sampler(10 * 7 + 1, blocks(10, 1), 6);
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    const auto order = epoch_of(sampler, epoch);
    places.insert(
        static_cast<std::uint64_t>(std::find(order.begin(), order.end(), 70u) - order.begin()));
  }
  EXPECT_EQ(places.size(), 8u);
}

TEST(Sampler, NeverSubstitutesAnItemForItself) {
  for (const std::uint64_t size : {2, 3, 10}) {
    for (const Shuffle& shuffle : {kNone, kGlobal, blocks(2, 2)}) {
      const Sampler sampler(size, shuffle, 4);
      for (std::uint64_t p = 0; p < size; ++p) {
        for (std::uint32_t attempt = 1; attempt < 20; ++attempt) {
          const std::uint64_t substitute = sampler.substitute(0, p, attempt);
          EXPECT_LT(substitute, size);
          EXPECT_NE(substitute, sampler.item(0, p));
        }
      }
    }
  }
}

TEST(Sampler, HasNoSubstituteForTheOnlyItem) {
  EXPECT_EQ(Sampler(1, kGlobal, 4).substitute(9, 0, 1), 0u);
}

TEST(Sampler, DrawsSubstitutesUniformlyAndAnewForEachAttempt) {
  constexpr std::uint64_t kItems = 20;
  const Sampler sampler(kItems, kGlobal, 12);
  std::vector<std::uint64_t> counts(kItems);
  std::uint64_t repeated = 0;
  constexpr std::uint64_t kEpochs = 1000;
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    for (std::uint64_t p = 0; p < kItems; ++p) {
      const std::uint64_t first = sampler.substitute(epoch, p, 1);
      ++counts[first];
      if (first == sampler.substitute(epoch, p, 2)) ++repeated;
    }
  }
  for (const std::uint64_t count : counts) EXPECT_NEAR(static_cast<double>(count), 1000, 160);
  EXPECT_NEAR(static_cast<double>(repeated), kEpochs * kItems / 19.0, 160);
}

TEST(SamplerDeathTest, RefusesPositionsAndDatasetsThatAreNone) {
  EXPECT_DEATH(Sampler(0, kGlobal, 1), "items > 0");
  EXPECT_DEATH((void)Sampler(5, kGlobal, 1).item(0, 5), "position < sampler_.rows");
}

TEST(KeyedPermutation, IsUndoneByItsInverse) {
  for (const std::uint64_t size : kSizes) {
    const KeyedPermutation permutation(size, size * 31);
    for (std::uint64_t i = 0; i < size; ++i) {
      ASSERT_EQ(permutation.inverse(permutation(i)), i) << size;
    }
  }
  const std::uint64_t most = ~std::uint64_t{0};
  const KeyedPermutation permutation(most, 1);
  for (const std::uint64_t i : {std::uint64_t{0}, most / 2, most - 1}) {
    EXPECT_EQ(permutation.inverse(permutation(i)), i);
  }
}

}  // namespace
}  // namespace spdld::source
