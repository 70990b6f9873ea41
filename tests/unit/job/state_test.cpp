// SPDX-License-Identifier: Apache-2.0
#include "job/state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "job/schedule.h"

namespace spdld::job {
namespace {

// From 1 to `most`.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  std::uint64_t operator()(std::uint64_t most) { return 1 + random_() % most; }
  std::uint32_t shards() { return static_cast<std::uint32_t>((*this)(9)); }

 private:
  std::mt19937_64 random_;
};

VersionFacts keep(std::uint64_t items, std::uint64_t batch) {
  return {.items = items, .tail = Tail::kKeep, .batch = batch, .order = "A"};
}

// Adds the rows that count of the step of this state, shard by shard.
void read(const source::Sharding& sharding, const State& state, std::vector<std::uint64_t>& rows) {
  for (std::uint32_t shard = 0; shard < state.shards; ++shard) {
    const source::BatchRows batch = sharding.rows(state.step, shard);
    for (std::uint64_t row = 0; row < batch.valid; ++row) rows.push_back(batch.position(row));
  }
}

std::vector<std::uint64_t> everything(std::uint64_t items) {
  std::vector<std::uint64_t> all(items);
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  return all;
}

TEST(State, IsReadInOneOrderThroughRunsOfAnySizeThatGoOnFromEachOther) {
  Draw draw(20);
  for (int round = 0; round < 500; ++round) {
    const std::uint64_t items = 50 + draw(2000);
    const std::uint64_t epoch = draw(3);
    std::vector<std::uint64_t> seen;
    StepAt at{.epoch = epoch, .step = 0};
    std::uint64_t position = 0;
    // Each life is a new job, as after a restart of the trainer with another world and batch size.
    while (at.epoch == epoch) {
      const Schedule schedule(1, keep(items, draw(40)), {.shards = draw.shards()});
      const auto own = schedule.own_seek(0, "A", at, position);
      ASSERT_TRUE(own) << own.error().message();
      State state = schedule.locate(0, {*own});
      ASSERT_EQ(state.position, position);
      const Turn turns = draw(12);
      for (Turn turn = 0; turn < turns && state.epoch == epoch; ++turn) {
        read(schedule.sharding(state), state, seen);
        state = schedule.locate(turn + 1, {*own});
      }
      at = state.at();
      position = state.position;
    }
    ASSERT_EQ(seen, everything(items)) << "round " << round;
  }
}

TEST(State, IsReadInOneOrderThroughResizesAndSwapsWhileItRuns) {
  Draw draw(21);
  for (int round = 0; round < 500; ++round) {
    const std::uint64_t items = 50 + draw(2000);
    Schedule schedule(1, keep(items, draw(20)), {.shards = draw.shards()});
    Turn last = 0;
    for (int edit = 0; edit < 6; ++edit) {
      last += draw(20);
      decltype(Edit::change) change = Edit::Resize{draw.shards()};
      if (draw(3) == 1) change = Edit::Swap{schedule.add_version(keep(items, draw(20)))};
      ASSERT_TRUE(schedule.add({.turn = last, .change = change}, last, last));
    }
    std::vector<std::uint64_t> rows;
    const std::uint64_t epochs = schedule.locate(last, {}).epoch + 2;
    std::uint64_t epoch = 0;
    for (Turn turn = 0; epoch < epochs; ++turn) {
      const State state = schedule.locate(turn, {});
      if (state.epoch > epoch) {
        ASSERT_EQ(rows, everything(items)) << "round " << round << ", epoch " << epoch;
        rows.clear();
        ++epoch;
      }
      read(schedule.sharding(state), state, rows);
    }
  }
}

TEST(State, GivesEveryShardEquallyManyStepsThroughAResize) {
  Draw draw(22);
  for (const Tail tail : {Tail::kDrop, Tail::kPad, Tail::kKeep}) {
    for (int round = 0; round < 200; ++round) {
      const std::uint64_t items = 100 + draw(500);
      const VersionFacts facts{.items = items, .tail = tail, .batch = draw(8), .order = "A"};
      Schedule schedule(1, facts, {.shards = 4});
      const auto own = schedule.own_seek(0, "A", {0, draw(20)}, draw(items));
      ASSERT_TRUE(own);
      const Turn resized = draw(20);
      ASSERT_TRUE(
          schedule.add({.turn = resized, .change = Edit::Resize{draw.shards()}}, resized, resized));
      const std::uint64_t epoch = schedule.locate(0, {*own}).epoch;
      std::uint64_t left = 0;
      State state = schedule.locate(0, {*own});
      for (Turn turn = 0; state.epoch == epoch; ++turn) {
        ASSERT_EQ(state.shards, turn < resized ? 4U : schedule.shards(resized));
        const source::Sharding sharding = schedule.sharding(state);
        for (std::uint32_t shard = 0; shard < state.shards; ++shard) {
          const std::uint64_t rows = sharding.rows(state.step, shard).rows;
          ASSERT_GT(rows, 0U) << "round " << round;
          if (tail != Tail::kKeep) {
            ASSERT_EQ(rows, facts.batch) << "round " << round;
          }
        }
        left = items - sharding.position_of(state.step + 1);
        state = schedule.locate(turn + 1, {*own});
      }
      // No shard could have another step: no rows are left, or too few for all shards.
      const std::uint64_t step_rows =
          facts.batch * std::max<std::uint64_t>(4, schedule.shards(resized));
      ASSERT_LT(left, tail == Tail::kDrop ? step_rows : 1U) << "round " << round;
    }
  }
}

TEST(State, AdvancesAsFarInOneGoAsStepByStep) {
  Draw draw(23);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t items = 50 + draw(300);
    const VersionFacts other{
        .items = 20 + draw(100), .tail = Tail::kPad, .batch = draw(9), .order = "B"};
    const Versions versions{{0, keep(items, draw(9))}, {1, other}};
    const State from = settled({.epoch = draw(3),
                                .step = draw(9),
                                .position = draw(items),
                                .shards = draw.shards(),
                                .version = 0,
                                .next_version = static_cast<std::uint32_t>(draw(2) - 1)},
                               versions);
    State state = from;
    for (std::uint64_t steps = 0; steps < 200; ++steps) {
      ASSERT_EQ(advanced(from, steps, versions), state) << "round " << round << ", " << steps;
      ASSERT_EQ(steps_until(from, state.at(), versions), steps) << "round " << round;
      state = advanced(state, 1, versions);
    }
  }
}

TEST(State, CountsTheStepsToAPlaceThatItsEpochDoesNotHaveToTheNextOne) {
  const Versions versions{{0, {.items = 100, .tail = Tail::kDrop, .batch = 5, .order = "A"}}};
  const State from{.epoch = 1, .step = 4, .position = 40, .shards = 2};
  EXPECT_EQ(steps_until(from, {1, 25}, versions), 6U);
  EXPECT_EQ(steps_until(from, {2, 0}, versions), 6U);
  EXPECT_EQ(steps_until(from, {2, 25}, versions), 16U);
  EXPECT_EQ(steps_until(from, {0, 9}, versions), 0U) << "it is passed";
  EXPECT_EQ(steps_until(from, kNever, versions), kNoTurn) << "more than can be counted";
  EXPECT_EQ(steps_until_epoch_start(from, versions), 6U);
}

}  // namespace
}  // namespace spdld::job
