// SPDX-License-Identifier: Apache-2.0
#include "source/order/bucket_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "source/order/padding.h"
#include "source/order/sampler.h"
#include "source/order/sharding.h"
#include "tests/unit/source/order/epoch_of.h"

namespace spdld::source {
namespace {

using Items = std::vector<std::uint64_t>;

constexpr std::uint64_t kSeed = 9;

Shuffle buckets(std::uint64_t window, std::uint64_t run) {
  return {.kind = Shuffle::Kind::kGlobal,
          .bucket = Shuffle::Bucket{.by = "duration", .window = window, .run = run}};
}

// Distinct ones.
std::shared_ptr<const Lengths> some_lengths(std::uint64_t items) {
  std::vector<float> lengths(items);
  for (std::uint64_t i = 0; i < items; ++i)
    lengths[i] = static_cast<float>(mix64(i) >> 48) + static_cast<float>(i % 7) / 8;
  return std::make_shared<const Lengths>(std::move(lengths));
}

double normal(KeyedRng& rng) {
  constexpr double kTurn = 2 * 3.14159265358979323846;
  return std::sqrt(-2 * std::log(1 - rng.uniform())) * std::cos(kTurn * rng.uniform());
}

// Seconds of utterances, 1 to 35: spread about 12 s, or as read speech has them that was cut at
// pauses, most of 13 to 16 s and the others shorter, with few that are longer.
enum class Speech { kSpread, kCut };
std::shared_ptr<const Lengths> speech_lengths(std::uint64_t items, Speech speech) {
  KeyedRng rng(2024);
  std::vector<float> lengths(items);
  for (float& length : lengths) {
    const bool is_long = speech == Speech::kCut && rng.uniform() < 0.6;
    const double seconds = is_long                  ? 14.5 + 1.3 * normal(rng)
                           : speech == Speech::kCut ? std::exp(2.05 + 0.6 * normal(rng))
                                                    : std::exp(2.5 + 0.35 * normal(rng));
    length = static_cast<float>(std::clamp(seconds, 1.0, 35.0));
  }
  return std::make_shared<const Lengths>(std::move(lengths));
}

Items sorted(Items items) {
  std::sort(items.begin(), items.end());
  return items;
}

Items all_of(std::uint64_t count) {
  Items items(count);
  std::iota(items.begin(), items.end(), std::uint64_t{0});
  return items;
}

template <typename Body>
void for_many_orders(Body body) {
  for (const std::uint64_t items : {1, 2, 7, 64, 100, 257, 1000}) {
    const auto lengths = some_lengths(items);
    for (const std::uint64_t window : {2, 3, 16, 60, 64, 100, 8192}) {
      for (const std::uint64_t run : {1, 2, 7, 16, 48, 5000}) body(items, window, run, lengths);
    }
  }
}

TEST(BucketOrder, GivesEveryItemOnceInAnEpoch) {
  for_many_orders([](std::uint64_t items, std::uint64_t window, std::uint64_t run,
                     const std::shared_ptr<const Lengths>& lengths) {
    const Sampler sampler(items, buckets(window, run), kSeed, lengths);
    for (const std::uint64_t epoch : {0, 3})
      EXPECT_EQ(sorted(epoch_of(sampler, epoch)), all_of(items))
          << items << " items, window " << window << ", run " << run;
  });
}

TEST(BucketOrder, KeepsEveryItemInItsWindow) {
  for_many_orders([](std::uint64_t items, std::uint64_t window, std::uint64_t run,
                     const std::shared_ptr<const Lengths>& lengths) {
    const Items plain = epoch_of(Sampler(items, kGlobal, kSeed), 1);
    const Items moved = epoch_of(Sampler(items, buckets(window, run), kSeed, lengths), 1);
    for (std::uint64_t begin = 0; begin < items; begin += window) {
      const auto from = static_cast<std::ptrdiff_t>(begin);
      const auto to = static_cast<std::ptrdiff_t>(std::min(begin + window, items));
      EXPECT_EQ(sorted({plain.begin() + from, plain.begin() + to}),
                sorted({moved.begin() + from, moved.begin() + to}))
          << items << " items, window " << window << ", run " << run;
    }
  });
}

// The lengths of the window's runs, [shortest, longest].
std::vector<std::pair<float, float>> runs_of(const Items& epoch, const Lengths& lengths,
                                             std::uint64_t begin, std::uint64_t end,
                                             std::uint64_t run) {
  std::vector<std::pair<float, float>> runs;
  for (std::uint64_t p = begin; p < end; ++p) {
    const float length = lengths[epoch[p]];
    if (p == begin || p % run == 0) runs.emplace_back(length, length);
    runs.back().first = std::min(runs.back().first, length);
    runs.back().second = std::max(runs.back().second, length);
  }
  return runs;
}

TEST(BucketOrder, FillsRunsWithNeighboursByLength) {
  for_many_orders([](std::uint64_t items, std::uint64_t window, std::uint64_t run,
                     const std::shared_ptr<const Lengths>& lengths) {
    const Items epoch = epoch_of(Sampler(items, buckets(window, run), kSeed, lengths), 0);
    for (std::uint64_t begin = 0; begin < items; begin += window) {
      auto runs = runs_of(epoch, *lengths, begin, std::min(begin + window, items), run);
      std::sort(runs.begin(), runs.end());
      for (std::size_t i = 1; i < runs.size(); ++i)
        EXPECT_LE(runs[i - 1].second, runs[i].first)
            << items << " items, window " << window << ", run " << run;
    }
  });
}

TEST(BucketOrder, MixesTheRowsWithinARun) {
  const auto lengths = some_lengths(4096);
  const Items epoch = epoch_of(Sampler(4096, buckets(1024, 64), kSeed, lengths), 0);
  int ascents = 0;
  for (std::uint64_t p = 1; p < 4096; ++p)
    ascents += p % 64 != 0 && (*lengths)[epoch[p - 1]] < (*lengths)[epoch[p]] ? 1 : 0;
  EXPECT_GT(ascents, 4096 * 4 / 10);
  EXPECT_LT(ascents, 4096 * 6 / 10);
}

TEST(BucketOrder, DrawsTheOrderOfRunsAnewForEachWindow) {
  const auto lengths = some_lengths(8192);
  const Sampler sampler(8192, buckets(1024, 64), kSeed, lengths);
  std::vector<std::vector<std::size_t>> ranks;
  for (const std::uint64_t epoch : {0, 1}) {
    const Items items = epoch_of(sampler, epoch);
    for (std::uint64_t begin = 0; begin < 8192; begin += 1024) {
      const auto runs = runs_of(items, *lengths, begin, begin + 1024, 64);
      std::vector<std::size_t> rank(runs.size());
      std::iota(rank.begin(), rank.end(), std::size_t{0});
      std::sort(rank.begin(), rank.end(),
                [&](std::size_t a, std::size_t b) { return runs[a] < runs[b]; });
      EXPECT_EQ(std::count(ranks.begin(), ranks.end(), rank), 0);
      ranks.push_back(rank);
    }
  }
  EXPECT_EQ(ranks.size(), 16u);
}

TEST(BucketOrder, MixesItemsOfOneLength) {
  const auto same = std::make_shared<const Lengths>(std::vector<float>(512, 3.0F));
  const Sampler sampler(512, buckets(128, 8), kSeed, same);
  EXPECT_NE(epoch_of(sampler, 0), epoch_of(sampler, 1));
  EXPECT_EQ(sorted(epoch_of(sampler, 1)), all_of(512));
}

TEST(BucketOrder, DependsOnSeedEpochAndLengths) {
  const auto lengths = some_lengths(1000);
  const Items order = epoch_of(Sampler(1000, buckets(256, 16), 1, lengths), 0);
  EXPECT_EQ(order, epoch_of(Sampler(1000, buckets(256, 16), 1, some_lengths(1000)), 0));
  EXPECT_NE(order, epoch_of(Sampler(1000, buckets(256, 16), 1, lengths), 1));
  EXPECT_NE(order, epoch_of(Sampler(1000, buckets(256, 16), 2, lengths), 0));
  EXPECT_NE(order,
            epoch_of(Sampler(1000, buckets(256, 16), 1, speech_lengths(1000, Speech::kCut)), 0));
  EXPECT_NE(order, epoch_of(Sampler(1000, buckets(128, 16), 1, lengths), 0));
  EXPECT_NE(order, epoch_of(Sampler(1000, buckets(256, 32), 1, lengths), 0));
}

// Users' runs would change under them: give another order another version in Order::digest().
TEST(BucketOrder, HasThePinnedOrder) {
  std::vector<float> lengths(40);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<float>(i * 7 % 40);
  const Sampler sampler(40, buckets(24, 8), 5, std::make_shared<const Lengths>(std::move(lengths)));
  Items first(24);
  for (std::uint64_t p = 0; p < first.size(); ++p) first[p] = sampler.item(2, p);
  EXPECT_EQ(first, (Items{4, 5,  10, 27, 28, 17, 16, 22, 12, 7, 1,  18,
                          2, 25, 29, 19, 20, 9,  31, 32, 14, 3, 37, 26}));
}

TEST(BucketOrder, TakesParametersOfAnySize) {
  const auto lengths = some_lengths(100);
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  for (const auto& [window, run] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, 0}, {kHuge, kHuge}, {1, kHuge}, {kHuge, 1}}) {
    const Sampler sampler(100, buckets(window, run), kSeed, lengths);
    EXPECT_EQ(sorted(epoch_of(sampler, 0)), all_of(100)) << window << " " << run;
  }
}

TEST(BucketOrder, SubstitutesAreOtherItems) {
  const Sampler sampler(10, buckets(4, 2), kSeed, some_lengths(10));
  for (std::uint64_t p = 0; p < 10; ++p) {
    for (std::uint32_t attempt = 1; attempt < 20; ++attempt)
      EXPECT_NE(sampler.substitute(0, p, attempt), sampler.item(0, p));
  }
}

TEST(BucketOrder, KeepsABoundedNumberOfWindows) {
  const std::uint64_t items = 40'000;
  const BucketOrder order({.by = "duration", .window = 8, .run = 2}, kSeed, some_lengths(items));
  const KeyedPermutation plain(items, 1);
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    for (std::uint64_t p = 0; p < items; p += 8) order.position(epoch, p, plain);
  }
  EXPECT_EQ(order.kept_windows(), BucketOrder::kMostWindows);
  const BucketOrder wide({.by = "duration", .window = items, .run = 2}, kSeed, some_lengths(items));
  for (std::uint64_t epoch = 0; epoch < 40; ++epoch) wide.position(epoch, 0, plain);
  EXPECT_LE(wide.kept_windows() * items * sizeof(std::uint32_t), BucketOrder::kKeptBytes);
}

TEST(BucketOrder, CountsWhatItKeepsForItsUser) {
  constexpr uid_t kListing = 100'001;
  constexpr uid_t kTraining = 100'002;
  const std::uint64_t items = 40'000;
  const auto memory = std::make_shared<ListingMemory>(std::uint64_t{3} << 19, TrustedUsers());
  const auto lengths =
      std::make_shared<const Lengths>(std::vector<float>(items, 1.0F), memory->share(kListing));
  const Shuffle wide = buckets(~std::uint64_t{0}, 2);
  {
    const auto first = Sampler::counted(items, wide, kSeed, lengths, kTraining);
    ASSERT_TRUE(first) << first.error().message();
    EXPECT_EQ(memory->used()[kTraining], BucketOrder::most_bytes(*wide.bucket, items));
    EXPECT_GE(memory->used()[kTraining], BucketOrder::kLeastWindows * items * 4 + items * 12);
    const auto second = Sampler::counted(items, wide, kSeed + 1, lengths, kTraining);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code(), Code::kResourceExhausted);
    EXPECT_TRUE(second.error().message().starts_with(
        "the windows of shuffle.global.bucket, which take less with a smaller 'window': its items "
        "would take"))
        << second.error().message();
    EXPECT_TRUE(Sampler::counted(items, wide, kSeed + 1, lengths, kListing)) << "another user";
    EXPECT_TRUE(Sampler::counted(items, buckets(8, 2), kSeed + 1, lengths, kTraining));
  }
  EXPECT_EQ(memory->used().size(), 0U);
}

Items rows_of(const Sampler& sampler, const Sharding& sharding, std::uint64_t end) {
  Items items;
  for (std::uint64_t step = sharding.segment().first_step; step < end; ++step) {
    for (std::uint32_t shard = 0; shard < sharding.segment().num_shards; ++shard) {
      const BatchRows rows = sharding.rows(step, shard);
      for (std::uint64_t row = 0; row < rows.valid; ++row)
        items.push_back(sampler.item(0, rows.position(row)));
    }
  }
  return items;
}

TEST(BucketOrder, GoesOnWithOtherShardsAndBatchInMidWindow) {
  const std::uint64_t items = 20'011;
  const auto lengths = speech_lengths(items, Speech::kCut);
  const Shuffle shuffle = buckets(8192, 128);
  const Sharding before(items, Tail::kKeep, {.num_shards = 3, .batch = 32});
  const std::uint64_t step = 50;
  const std::uint64_t base = before.position_of(step);
  ASSERT_NE(base % 8192, 0u);
  Items epoch = rows_of(Sampler(items, shuffle, kSeed, lengths), before, step);
  const Sharding after(items, Tail::kKeep,
                       {.base = base, .first_step = step, .num_shards = 2, .batch = 48});
  const Items rest =
      rows_of(Sampler(items, shuffle, kSeed, lengths), after, after.end_step());  // as restarted
  epoch.insert(epoch.end(), rest.begin(), rest.end());
  EXPECT_EQ(epoch, epoch_of(Sampler(items, shuffle, kSeed, lengths), 0));
  EXPECT_EQ(sorted(epoch), all_of(items));
}

TEST(BucketOrder, SavesThePaddingOfSpeech) {
  for (const Speech speech : {Speech::kSpread, Speech::kCut}) {
    const auto lengths = speech_lengths(100'000, speech);
    for (const std::uint64_t batch : {16, 24, 32, 48}) {
      const Sampler plain(lengths->size(), kGlobal, kSeed);
      const Sampler by_length(lengths->size(), buckets(8192, 4 * batch), kSeed, lengths);
      EXPECT_GE(padding_share(plain, *lengths, batch), 0.30) << "batches of " << batch;
      EXPECT_LE(padding_share(by_length, *lengths, batch), 0.10) << "batches of " << batch;
    }
  }
}

TEST(Padding, IsWhatRowsLackToTheLongest) {
  const Lengths lengths({1, 3, 2, 2, 7});
  const Sampler as_listed(5, Shuffle{}, 0);
  EXPECT_DOUBLE_EQ(padding_share(as_listed, lengths, 2), 2.0 / 10);   // of 1 3, 2 2
  EXPECT_DOUBLE_EQ(padding_share(as_listed, lengths, 9), 20.0 / 35);  // of all
  EXPECT_DOUBLE_EQ(padding_share(as_listed, lengths, 1), 0);
  EXPECT_DOUBLE_EQ(padding_share(as_listed, Lengths({0, 0, 0, 0, 0}), 2), 0);
}

TEST(Padding, OfALongEpochIsThatOfASample) {
  std::vector<float> lengths(3'000'000);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = i % 2 == 0 ? 1 : 3;
  const Lengths alternating(std::move(lengths));
  const Sampler as_listed(alternating.size(), Shuffle{}, 0);
  for (const std::uint64_t batch : {2, 64, 65'536, 2'000'000})
    EXPECT_DOUBLE_EQ(padding_share(as_listed, alternating, batch), 1.0 / 3);
}

}  // namespace
}  // namespace spdld::source
