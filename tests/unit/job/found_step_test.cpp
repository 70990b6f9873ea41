// SPDX-License-Identifier: Apache-2.0
#include "job/found_step.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace spdld::job {
namespace {

const VersionFacts kWhole{.items = 100, .tail = Tail::kDrop, .batch = 5, .order = "A"};
const VersionFacts kSmallBatch{.items = 100, .tail = Tail::kDrop, .batch = 2, .order = "A"};
const VersionFacts kOtherOrder{.items = 60, .tail = Tail::kDrop, .batch = 5, .order = "B"};

// 2 shards of 5 rows: 10 steps an epoch.
Schedule ten_steps() { return Schedule(7, kWhole, {.shards = 2}); }

void edit(Schedule& schedule, Turn turn, decltype(Edit::change) change) {
  const auto added = schedule.add({.turn = turn, .change = change}, turn, turn);
  ASSERT_TRUE(added) << added.error().message();
}

// Of a member without own seeks.
FoundStep step_of(const Schedule& schedule, StepAt place, Turn sent) {
  const auto step = find_step(schedule, {}, place, sent);
  EXPECT_TRUE(step) << step.error().message();
  return step ? *step : FoundStep();
}

std::string refused_step(const Schedule& schedule, StepAt place, Code code = Code::kOutOfRange) {
  const auto step = find_step(schedule, {}, place, 0);
  EXPECT_FALSE(step) << place_text(place);
  if (step) return {};
  EXPECT_EQ(step.error().code(), code);
  return step.error().message();
}

TEST(FoundStep, LiesBehindOrAhead) {
  const Schedule schedule = ten_steps();
  for (const Turn sent : {0, 14, 1000}) {
    const FoundStep step = step_of(schedule, {1, 3}, sent);
    EXPECT_EQ(step.turn, 13U);
    EXPECT_EQ(step.state, schedule.locate(13, {}));
  }
  EXPECT_EQ(step_of(schedule, {1'000'000'000, 9}, 0).turn, 10'000'000'009U);
}

TEST(FoundStep, HasTheVersionAndTheShardsOfItsTurn) {
  Schedule schedule = ten_steps();
  ASSERT_EQ(schedule.add_version(kSmallBatch), 1U);
  ASSERT_EQ(schedule.add_version(kOtherOrder), 2U);
  edit(schedule, 4, Edit::Resize{.shards = 1});
  edit(schedule, 6, Edit::Swap{1});
  edit(schedule, 8, Edit::Skip{.epoch = 0, .steps = 5});
  edit(schedule, 12, Edit::Swap{2});
  EXPECT_EQ(step_of(schedule, {0, 3}, 20).state, (State{0, 3, 30, 2, 0, 0}));
  EXPECT_EQ(step_of(schedule, {0, 5}, 20).state, (State{0, 5, 45, 1, 0, 0}));
  EXPECT_EQ(step_of(schedule, {0, 7}, 20).state, (State{0, 7, 52, 1, 1, 1}));
  const FoundStep behind_skip = step_of(schedule, {0, 14}, 20);
  EXPECT_EQ(behind_skip.turn, 9U);
  EXPECT_EQ(behind_skip.state, (State{0, 14, 66, 1, 1, 1}));
  EXPECT_EQ(step_of(schedule, {1, 2}, 20).state, (State{1, 2, 10, 1, 2, 2}))
      << "it waits till then";
}

TEST(FoundStep, IsTheLastOneThatWasSentWhereTheJobWasSoughtBack) {
  Schedule schedule = ten_steps();
  ASSERT_EQ(schedule.add_version(kSmallBatch), 1U);
  edit(schedule, 15, Edit::Seek{{0, 2}});
  edit(schedule, 15, Edit::Swap{1});
  EXPECT_EQ(step_of(schedule, {0, 8}, 12).turn, 8U) << "it will come a second time";
  EXPECT_EQ(step_of(schedule, {0, 8}, 21).turn, 8U);
  EXPECT_EQ(step_of(schedule, {0, 8}, 22).turn, 21U);
  EXPECT_EQ(step_of(schedule, {0, 8}, 8).state.version, 0U) << "the first one of those ahead";
  EXPECT_EQ(step_of(schedule, {0, 8}, 22).state.version, 1U);
}

TEST(FoundStep, GoesByTheMembersOwnSeeks) {
  const Schedule schedule = ten_steps();
  const auto seek = schedule.own_seek(4, {}, {3, 0}, 0);
  ASSERT_TRUE(seek);
  const auto step = find_step(schedule, {*seek}, {3, 1}, 20);
  ASSERT_TRUE(step) << step.error().message();
  EXPECT_EQ(step->turn, 5U);
  EXPECT_EQ(find_step(schedule, {*seek}, {0, 3}, 20)->turn, 3U) << "before its seek";
}

TEST(FoundStep, HasNoTurnWhereTheRunDoesNotComeThere) {
  Schedule schedule = ten_steps();
  ASSERT_EQ(schedule.add_version(kSmallBatch), 1U);
  edit(schedule, 2, Edit::Skip{.epoch = 0, .steps = 5});
  edit(schedule, 9, Edit::Resize{.shards = 1});
  edit(schedule, 9, Edit::Swap{1});
  const FoundStep left_out = step_of(schedule, {0, 4}, 20);
  EXPECT_EQ(left_out.turn, std::nullopt);
  EXPECT_EQ(left_out.state, (State{0, 4, 8, 1, 1, 1})) << "as a seek has it";
  Schedule sought = schedule;
  edit(sought, 20, Edit::Seek{{0, 4}});
  EXPECT_EQ(sought.locate(20, {}), left_out.state);
  edit(schedule, 30, Edit::Swap{0});
  edit(schedule, 30, Edit::Resize{.shards = 4});
  EXPECT_EQ(refused_step(schedule, {0, 6}),
            "the run leaves out epoch 0, step 6, and an epoch has 5 steps now");
}

TEST(FoundStep, IsRefusedBehindTheEpochsLast) {
  Schedule schedule = ten_steps();
  EXPECT_EQ(refused_step(schedule, {3, 10}), "epoch 3 has 10 steps; there is no step 10");
  edit(schedule, 4, Edit::Resize{.shards = 4});
  EXPECT_EQ(refused_step(schedule, {0, 7}), "epoch 0 has 7 steps; there is no step 7")
      << "four of two shards, and three of four";
  EXPECT_EQ(refused_step(schedule, {1, 5}), "epoch 1 has 5 steps; there is no step 5");
  edit(schedule, 6, Edit::Seek{{9, 0}});
  EXPECT_EQ(refused_step(schedule, {4, 5}), "epoch 4 has 5 steps; there is no step 5")
      << "an epoch that the run leaves out";
  EXPECT_NE(refused_step(schedule, {~std::uint64_t{0}, 0}, Code::kInvalidArgument), "");
}

TEST(FoundStep, IsRefusedBeforeTheChangesThatAreKept) {
  Schedule schedule = ten_steps();
  for (Turn turn = 0; turn <= Schedule::kMostEdits; ++turn)
    edit(schedule, 15 + turn, Edit::Resize{.shards = turn % 2 == 0 ? 1U : 2U});
  ASSERT_EQ(schedule.record().oldest, 16U);
  EXPECT_EQ(refused_step(schedule, {0, 3}, Code::kFailedPrecondition),
            "it is not kept any more which version epoch 0, step 3 had: the changes that are kept "
            "begin at epoch 1, step 6");
  EXPECT_EQ(step_of(schedule, {1, 6}, 90).turn, 16U);
}

TEST(FoundStep, IsThatOfASearchTurnByTurn) {
  std::mt19937 random(20);
  const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
  constexpr Turn kTurns = 120;
  for (int round = 0; round < 60; ++round) {
    Schedule schedule = ten_steps();
    schedule.add_version(kSmallBatch);
    schedule.add_version(kOtherOrder);
    for (Turn turn = 0; (turn += 1 + below(25)) < kTurns;) {
      const std::vector<decltype(Edit::change)> changes{
          Edit::Seek{{below(4), below(8)}}, Edit::Skip{schedule.locate(turn, {}).epoch, below(9)},
          Edit::Resize{.shards = 1 + below(3)}, Edit::Swap{below(3)}};
      edit(schedule, turn, changes[below(4)]);
    }
    OwnSeeks own;
    if (below(2) == 0) own = {*schedule.own_seek(below(kTurns), {}, {below(4), 0}, 0)};
    const Turn sent = below(kTurns);
    std::map<StepAt, Turn> last_sent;
    std::map<StepAt, Turn> first_ahead;
    for (Turn turn = 0; turn < kTurns; ++turn) {
      const StepAt at = schedule.locate(turn, own).at();
      if (turn < sent) {
        last_sent[at] = turn;
      } else {
        first_ahead.emplace(at, turn);
      }
    }
    for (const auto& [at, turn] : last_sent) first_ahead[at] = turn;
    for (const auto& [at, turn] : first_ahead) {
      const auto step = find_step(schedule, own, at, sent);
      ASSERT_TRUE(step) << round << ": " << step.error().message();
      ASSERT_EQ(step->turn, turn) << round << ": " << place_text(at);
      ASSERT_EQ(step->state, schedule.locate(turn, own));
    }
  }
}

}  // namespace
}  // namespace spdld::job
