// SPDX-License-Identifier: Apache-2.0
#include "session/timeline.h"

#include <gtest/gtest.h>

#include <set>

namespace spdld::session {
namespace {

// The valid positions that all shards read in one epoch.
std::multiset<std::uint64_t> positions(const Timeline& timeline, std::uint64_t epoch) {
  std::multiset<std::uint64_t> all;
  for (std::uint64_t step = 0; step < timeline.end_step(epoch); ++step) {
    const source::Sharding sharding = timeline.sharding({epoch, step});
    for (std::uint32_t shard = 0; shard < sharding.segment().num_shards; ++shard) {
      const source::BatchRows rows = sharding.rows(step, shard);
      for (std::uint64_t row = 0; row < rows.valid; ++row) all.insert(rows.position(row));
    }
  }
  return all;
}

std::multiset<std::uint64_t> everything(std::uint64_t items) {
  std::multiset<std::uint64_t> all;
  for (std::uint64_t i = 0; i < items; ++i) all.insert(i);
  return all;
}

TEST(Timeline, ReadsEveryItemOnceInAnEpochThatIsResizedTwice) {
  Timeline timeline(1000, Tail::kKeep, 7, 2);
  timeline.cut({.from = {0, 10}, .position = 10 * 2 * 7, .num_shards = 5});
  const std::uint64_t position = timeline.sharding({0, 15}).position_of(15);
  timeline.cut({.from = {0, 15}, .position = position, .num_shards = 3});
  EXPECT_EQ(positions(timeline, 0), everything(1000));
  EXPECT_EQ(positions(timeline, 1), everything(1000));
}

TEST(Timeline, CountsStepsOnAcrossACut) {
  Timeline timeline(100, Tail::kDrop, 5, 2);
  EXPECT_EQ(timeline.end_step(0), 10U);
  timeline.cut({.from = {0, 4}, .position = 40, .num_shards = 4});
  EXPECT_EQ(timeline.end_step(0), 7U);
  EXPECT_EQ(timeline.end_step(1), 5U);
  EXPECT_EQ(timeline.steps_per_epoch(), 5U);
}

TEST(Timeline, LeavesStepsBeforeACutAsTheyWere) {
  Timeline timeline(100, Tail::kDrop, 5, 2);
  const source::BatchRows before = timeline.sharding({1, 3}).rows(3, 1);
  timeline.cut({.from = {1, 4}, .position = 40, .num_shards = 4});
  EXPECT_EQ(timeline.sharding({1, 3}).rows(3, 1), before);
  EXPECT_EQ(timeline.sharding({1, 4}).segment().num_shards, 4U);
}

TEST(Timeline, ForgetsCutsThatALaterOneOverrules) {
  Timeline timeline(100, Tail::kDrop, 5, 2);
  timeline.cut({.from = {0, 8}, .position = 80, .num_shards = 4});
  timeline.cut({.from = {0, 4}, .position = 40, .num_shards = 1});
  EXPECT_EQ(timeline.cuts().size(), 1U);
  EXPECT_EQ(timeline.sharding({0, 9}).segment().num_shards, 1U);
}

TEST(Timeline, IsDealtOutAmongTheShardsOfTheEndWhenItIsReadAgain) {
  Timeline timeline(100, Tail::kKeep, 5, 1);
  timeline.cut({.from = {0, 8}, .position = 40, .num_shards = 4});
  Timeline resumed = timeline;
  resumed.resume({0, 2}, 10);
  EXPECT_EQ(resumed.sharding({0, 2}).segment().num_shards, 1U);
  EXPECT_EQ(resumed.cuts(), timeline.cuts());
  timeline.redeal({0, 2}, 10);
  EXPECT_EQ(timeline.sharding({0, 2}).segment().num_shards, 4U);
  EXPECT_EQ(timeline.end_step(0), 2U + 5U);
}

TEST(Timeline, GoesOnExactlyFromAPositionThatIsNotOfItsOwnMaking) {
  // 37 rows were read under another world size and batch size.
  Timeline timeline(100, Tail::kKeep, 4, 3);
  timeline.cut({.from = {0, 9}, .position = 37, .num_shards = 3});
  std::multiset<std::uint64_t> rest;
  for (std::uint64_t step = 9; step < timeline.end_step(0); ++step) {
    for (std::uint32_t shard = 0; shard < 3; ++shard) {
      const source::BatchRows rows = timeline.sharding({0, step}).rows(step, shard);
      for (std::uint64_t row = 0; row < rows.valid; ++row) rest.insert(rows.position(row));
    }
  }
  std::multiset<std::uint64_t> wanted;
  for (std::uint64_t i = 37; i < 100; ++i) wanted.insert(i);
  EXPECT_EQ(rest, wanted);
}

}  // namespace
}  // namespace spdld::session
