// SPDX-License-Identifier: Apache-2.0
#include "source/order/sharding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace spdld::source {
namespace {

using Counts = std::vector<int>;

// How often each position is a valid row in the segment's steps up to `end`.
void count_valid(const Sharding& sharding, std::uint64_t end, Counts& counts) {
  for (std::uint64_t step = sharding.segment().first_step; step < end; ++step) {
    for (std::uint32_t shard = 0; shard < sharding.segment().num_shards; ++shard) {
      const BatchRows rows = sharding.rows(step, shard);
      for (std::uint64_t row = 0; row < rows.valid; ++row) ++counts.at(rows.position(row));
    }
  }
}

template <typename Body>
void for_many_cuts(Body body) {
  for (std::uint64_t items = 1; items <= 26; ++items) {
    for (std::uint32_t shards = 1; shards <= 5; ++shards) {
      for (std::uint64_t batch = 1; batch <= 5; ++batch) body(items, shards, batch);
    }
  }
}

TEST(Sharding, DealsEveryPositionToOneShardOnce) {
  for_many_cuts([](std::uint64_t items, std::uint32_t shards, std::uint64_t batch) {
    for (const Tail tail : {Tail::kPad, Tail::kKeep}) {
      const Sharding sharding(items, tail, {.num_shards = shards, .batch = batch});
      Counts counts(items);
      count_valid(sharding, sharding.end_step(), counts);
      EXPECT_EQ(counts, Counts(items, 1)) << items << " " << shards << " " << batch;
    }
  });
}

TEST(Sharding, DropsOnlyWhatDoesNotFillAStep) {
  for_many_cuts([](std::uint64_t items, std::uint32_t shards, std::uint64_t batch) {
    const Sharding sharding(items, Tail::kDrop, {.num_shards = shards, .batch = batch});
    Counts counts(items);
    count_valid(sharding, sharding.end_step(), counts);
    Counts expected(items);
    const std::uint64_t kept = items / (shards * batch) * (shards * batch);
    std::fill_n(expected.begin(), kept, 1);
    EXPECT_EQ(counts, expected);
    EXPECT_EQ(sharding.position_of(sharding.end_step()), kept);
  });
}

TEST(Sharding, HasNoStepsWhenDroppingMoreThanThereIs) {
  const Sharding sharding(15, Tail::kDrop, {.num_shards = 4, .batch = 4});
  EXPECT_EQ(sharding.end_step(), 0u);
  EXPECT_EQ(Sharding(16, Tail::kDrop, {.num_shards = 4, .batch = 4}).end_step(), 1u);
}

TEST(Sharding, OwnsThePositionsThatItsFormulaSays) {
  const Sharding sharding(1000, Tail::kDrop,
                          {.base = 100, .first_step = 7, .num_shards = 3, .batch = 10});
  for (std::uint64_t step = 7; step < sharding.end_step(); ++step) {
    for (std::uint32_t shard = 0; shard < 3; ++shard) {
      const BatchRows rows = sharding.rows(step, shard);
      EXPECT_EQ(rows.first, 100 + (step - 7) * 30 + shard * 10);
      EXPECT_EQ(rows.rows, 10u);
      EXPECT_EQ(rows.valid, 10u);
    }
  }
  EXPECT_EQ(sharding.end_step(), 7u + 30u);
}

TEST(Sharding, FillsEveryRowOfEveryStepWhenPadding) {
  for_many_cuts([](std::uint64_t items, std::uint32_t shards, std::uint64_t batch) {
    const Sharding sharding(items, Tail::kPad, {.num_shards = shards, .batch = batch});
    EXPECT_EQ(sharding.end_step(), (items + shards * batch - 1) / (shards * batch));
    // Read across the shards, positions run on from the end at 0 again.
    std::uint64_t expected = 0;
    for (std::uint64_t step = 0; step < sharding.end_step(); ++step) {
      for (std::uint32_t shard = 0; shard < shards; ++shard) {
        const BatchRows rows = sharding.rows(step, shard);
        ASSERT_EQ(rows.rows, batch);
        for (std::uint64_t row = 0; row < batch; ++row, ++expected) {
          ASSERT_EQ(rows.position(row), expected % items) << items << " " << shards << " " << batch;
          ASSERT_EQ(row < rows.valid, expected < items);
        }
      }
    }
  });
}

TEST(Sharding, PadsFromPositionZeroInALaterSegmentToo) {
  const Sharding sharding(20, Tail::kPad,
                          {.base = 18, .first_step = 3, .num_shards = 2, .batch = 3});
  EXPECT_EQ(sharding.end_step(), 4u);
  const BatchRows first = sharding.rows(3, 0);
  EXPECT_EQ(first.valid, 2u);
  EXPECT_EQ(first.position(0), 18u);
  EXPECT_EQ(first.position(2), 0u);
  const BatchRows second = sharding.rows(3, 1);
  EXPECT_EQ(second.valid, 0u);
  EXPECT_EQ(second.position(0), 1u);
  EXPECT_EQ(second.position(2), 3u);
}

TEST(Sharding, DealsTheKeptTailOutEvenly) {
  for_many_cuts([](std::uint64_t items, std::uint32_t shards, std::uint64_t batch) {
    const Sharding sharding(items, Tail::kKeep, {.num_shards = shards, .batch = batch});
    const std::uint64_t left = items % (shards * batch);
    if (left == 0) return;
    const std::uint64_t last = sharding.end_step() - 1;
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      const BatchRows rows = sharding.rows(last, shard);
      EXPECT_GE(rows.valid, left / shards);
      EXPECT_LE(rows.valid, (left + shards - 1) / shards);
      EXPECT_EQ(rows.rows, std::max<std::uint64_t>(rows.valid, 1));
      EXPECT_LE(rows.rows, batch);
    }
  });
}

TEST(Sharding, GivesAnEmptyShardOneInvalidRow) {
  const Sharding sharding(9, Tail::kKeep, {.num_shards = 4, .batch = 2});
  ASSERT_EQ(sharding.end_step(), 2u);
  EXPECT_EQ(sharding.rows(1, 0).valid, 1u);
  EXPECT_EQ(sharding.rows(1, 0).position(0), 8u);
  for (std::uint32_t shard = 1; shard < 4; ++shard) {
    const BatchRows rows = sharding.rows(1, shard);
    EXPECT_EQ(rows.rows, 1u);
    EXPECT_EQ(rows.valid, 0u);
    EXPECT_EQ(rows.position(0), 0u);
  }
}

TEST(Sharding, GoesOnExactlyUnderAnotherWorldAndBatchSize) {
  constexpr std::uint64_t kItems = 53;
  for (const Tail tail : {Tail::kDrop, Tail::kPad, Tail::kKeep}) {
    const Sharding before(kItems, tail, {.num_shards = 3, .batch = 4});
    for (std::uint64_t step = 0; step <= before.end_step(); ++step) {
      for (std::uint32_t shards = 1; shards <= 5; ++shards) {
        for (std::uint64_t batch = 1; batch <= 5; ++batch) {
          const Sharding after(kItems, tail,
                               {.base = before.position_of(step),
                                .first_step = step,
                                .num_shards = shards,
                                .batch = batch});
          Counts counts(kItems);
          count_valid(before, step, counts);
          count_valid(after, after.end_step(), counts);
          Counts expected(kItems);
          std::fill_n(expected.begin(), after.position_of(after.end_step()), 1);
          ASSERT_EQ(counts, expected) << step << " " << shards << " " << batch;
          if (tail == Tail::kDrop) {
            EXPECT_LT(kItems - after.position_of(after.end_step()), shards * batch);
          } else {
            EXPECT_EQ(after.position_of(after.end_step()), kItems);
          }
        }
      }
    }
  }
}

TEST(Sharding, SaysTheSamePositionsForResumingWhereItWas) {
  const Sharding whole(101, Tail::kKeep, {.num_shards = 2, .batch = 8});
  for (std::uint64_t step = 0; step < whole.end_step(); ++step) {
    const Sharding resumed(
        101, Tail::kKeep,
        {.base = whole.position_of(step), .first_step = step, .num_shards = 2, .batch = 8});
    EXPECT_EQ(resumed.end_step(), whole.end_step());
    for (std::uint64_t later = step; later < whole.end_step(); ++later) {
      EXPECT_EQ(resumed.rows(later, 1), whole.rows(later, 1));
    }
  }
}

TEST(Sharding, HasNothingLeftAtTheEpochsEnd) {
  for (const Tail tail : {Tail::kDrop, Tail::kPad, Tail::kKeep}) {
    const Sharding sharding(10, tail, {.base = 10, .first_step = 5, .num_shards = 2, .batch = 2});
    EXPECT_EQ(sharding.end_step(), 5u);
    EXPECT_EQ(sharding.position_of(5), 10u);
  }
}

TEST(Sharding, SurvivesStepsLargerThanAnyNumber) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  const Segment segment{.num_shards = 1000, .batch = kHuge};
  EXPECT_EQ(Sharding(7, Tail::kDrop, segment).end_step(), 0u);
  const Sharding pad(7, Tail::kPad, segment);
  EXPECT_EQ(pad.end_step(), 1u);
  EXPECT_EQ(pad.rows(0, 0).valid, 7u);
  EXPECT_EQ(pad.rows(0, 999).valid, 0u);
  EXPECT_LT(pad.rows(0, 999).position(0), 7u);
  EXPECT_EQ(Sharding(7, Tail::kKeep, segment).rows(0, 999).valid, 0u);
}

TEST(ShardingDeathTest, RefusesWhatLiesOutside) {
  const Sharding sharding(10, Tail::kDrop, {.first_step = 3, .num_shards = 2, .batch = 2});
  EXPECT_DEATH((void)sharding.rows(2, 0), "step");
  EXPECT_DEATH((void)sharding.rows(5, 0), "step");
  EXPECT_DEATH((void)sharding.rows(3, 2), "shard");
  EXPECT_DEATH(Sharding(10, Tail::kDrop, {.base = 11}), "base");
}

}  // namespace
}  // namespace spdld::source
