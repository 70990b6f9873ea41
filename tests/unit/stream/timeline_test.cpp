// SPDX-License-Identifier: Apache-2.0
#include "stream/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace spdld::stream {
namespace {

pipeline::PhasePtr phase(std::uint64_t items, Tail tail, std::uint64_t batch) {
  auto made = std::make_shared<pipeline::Phase>();
  made->items = items;
  made->tail = tail;
  made->batch = batch;
  made->content = std::to_string(items) + "/" + std::to_string(batch);
  return made;
}

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
  Timeline timeline(phase(1000, Tail::kKeep, 7), 2);
  timeline.resize({0, 10}, 10 * 2 * 7, 5);
  const std::uint64_t position = timeline.sharding({0, 15}).position_of(15);
  timeline.resize({0, 15}, position, 3);
  EXPECT_EQ(positions(timeline, 0), everything(1000));
  EXPECT_EQ(positions(timeline, 1), everything(1000));
}

TEST(Timeline, BeginsAShardThatIsResizedAwayAndBackAtOneStepThere) {
  Timeline timeline(phase(100, Tail::kDrop, 5), 2);
  timeline.resize({0, 4}, 40, 1);
  timeline.resize({0, 4}, 40, 2);
  EXPECT_EQ(timeline.begin_of(1, {0, 0}, true), (job::StepAt{0, 4}));
  EXPECT_EQ(timeline.begin_of(0, {0, 0}, true), (job::StepAt{0, 0}));
  EXPECT_EQ(timeline.begin_of(1, {0, 2}, false), (job::StepAt{0, 2}))
      << "its cursor was dealt to it";
  EXPECT_EQ(timeline.dealt_from(), (job::StepAt{0, 4}));
  EXPECT_EQ(positions(timeline, 0), everything(100));
}

TEST(Timeline, BeginsABroughtBackShardThereThroughLaterChangesOfThatStep) {
  const pipeline::PhasePtr first = phase(100, Tail::kDrop, 5);
  for (const bool grows : {false, true}) {
    Timeline timeline(first, 3);
    timeline.resize({0, 4}, 60, 1);
    timeline.resize({0, 4}, 60, grows ? 4 : 2);
    timeline.resize({0, 4}, 60 + 15, 3, 1);
    timeline.swap({0, 4}, phase(100, Tail::kDrop, 2));
    EXPECT_EQ(timeline.begin_of(1, {0, 0}, true), (job::StepAt{0, 4}));
    EXPECT_EQ(timeline.begin_of(2, {0, 0}, true), (job::StepAt{0, 4}));
    timeline.resume({0, 1}, 15);
    EXPECT_EQ(timeline.begin_of(2, {0, 0}, true), (job::StepAt{0, 4})) << "another one came back";
  }
}

TEST(Timeline, BeginsABroughtBackShardWhereTheJobIsSentBack) {
  Timeline timeline(phase(100, Tail::kDrop, 5), 2);
  timeline.resize({0, 4}, 40, 1);
  timeline.resize({0, 4}, 40, 2);
  timeline.redeal({0, 2}, 20);
  EXPECT_EQ(timeline.begin_of(1, {0, 2}, true), (job::StepAt{0, 2}));
  EXPECT_EQ(positions(timeline, 0), everything(100));
}

TEST(Timeline, CountsStepsFurtherThroughEpochs) {
  Timeline timeline(phase(100, Tail::kDrop, 5), 2);  // epochs of ten steps
  timeline.resize({1, 4}, 40, 4);                    // of seven, then of five
  EXPECT_EQ(timeline.further({0, 3}, 6), (job::StepAt{0, 9}));
  EXPECT_EQ(timeline.further({0, 3}, 7), (job::StepAt{1, 0}));
  EXPECT_EQ(timeline.further({0, 3}, 7 + 7 + 5 + 5 + 2), (job::StepAt{4, 2}));
  EXPECT_EQ(timeline.further({0, 25}, 1), (job::StepAt{1, 1})) << "it is beyond the epoch's end";
  EXPECT_EQ(timeline.further({9, 0}, 0), (job::StepAt{9, 0}));
}

TEST(Timeline, DealsRowsOutSinceTheLastResizeOrSkip) {
  const pipeline::PhasePtr first = phase(100, Tail::kDrop, 5);
  Timeline timeline(first, 2);
  EXPECT_EQ(timeline.dealt_from(), (job::StepAt{0, 0}));
  timeline.resize({0, 4}, 40, 4);
  EXPECT_EQ(timeline.dealt_from(), (job::StepAt{0, 4}));
  timeline.resize({0, 6}, 100, 4, 1);
  EXPECT_EQ(timeline.dealt_from(), (job::StepAt{0, 6})) << "one step was left out";
  timeline.resize({1, 0}, 40, 4, 2);
  EXPECT_EQ(timeline.dealt_from(), (job::StepAt{1, 0})) << "two steps of the next epoch were";
}

TEST(Timeline, DealsNothingAnewWhenItChangesItsPhase) {
  Timeline timeline(phase(100, Tail::kDrop, 5), 2);
  timeline.resize({0, 2}, 20, 1);
  timeline.swap({0, 7}, phase(100, Tail::kDrop, 10));
  timeline.swap({2, 0}, phase(50, Tail::kDrop, 10));
  EXPECT_EQ(timeline.cuts().size(), 4U);
  EXPECT_EQ(timeline.dealt_from(), (job::StepAt{0, 2}));
}

TEST(Timeline, SaysWhatToDoAboutAPlaceThatNoJobHas) {
  const Timeline timeline(phase(1, Tail::kKeep, 5), 1);
  EXPECT_EQ(timeline.check({0, 0}, 2).message(),
            "the position 2 lies behind the last of 1 item: go on from a state of this dataset, or "
            "begin afresh");
  EXPECT_EQ(timeline.check({0, std::uint64_t{1} << 50}, 0).message(),
            "epoch 0, step 1125899906842624 is no place in a job: neither goes beyond "
            "281474976710656; name one that the job comes to");
}

TEST(Timeline, CountsStepsOnAcrossACut) {
  Timeline timeline(phase(100, Tail::kDrop, 5), 2);
  EXPECT_EQ(timeline.end_step(0), 10U);
  timeline.resize({0, 4}, 40, 4);
  EXPECT_EQ(timeline.end_step(0), 7U);
  EXPECT_EQ(timeline.end_step(1), 5U);
  EXPECT_EQ(timeline.steps_per_epoch({}), 5U);
}

TEST(Timeline, LeavesStepsBeforeACutAsTheyWere) {
  Timeline timeline(phase(100, Tail::kDrop, 5), 2);
  const source::BatchRows before = timeline.sharding({1, 3}).rows(3, 1);
  timeline.resize({1, 4}, 40, 4);
  EXPECT_EQ(timeline.sharding({1, 3}).rows(3, 1), before);
  EXPECT_EQ(timeline.sharding({1, 4}).segment().num_shards, 4U);
}

TEST(Timeline, ForgetsOldCutsAndChangesNoStepThatIsYetToBeRead) {
  const std::uint64_t items = 10'000;
  std::vector<pipeline::PhasePtr> phases;
  for (std::uint64_t batch = 1; batch <= 200; ++batch)
    phases.push_back(phase(items, Tail::kKeep, 1 + batch % 7));
  Timeline timeline(phases.front(), 3);
  for (std::uint64_t i = 1; i < phases.size(); ++i) timeline.swap({i / 50, 5 * i % 250}, phases[i]);
  ASSERT_EQ(timeline.cuts().size(), phases.size());
  Timeline pruned = timeline;
  const job::StepAt here = timeline.cuts()[170].from;
  pruned.forget_before(here);
  EXPECT_EQ(pruned.cuts().size(), Timeline::kMostCuts);
  const job::StepAt oldest = pruned.cuts().front().from;
  for (std::uint64_t epoch = oldest.epoch; epoch < 5; ++epoch) {
    ASSERT_EQ(pruned.end_step(epoch), timeline.end_step(epoch));
    for (std::uint64_t step = 0; step < timeline.end_step(epoch); ++step) {
      const job::StepAt at{epoch, step};
      if (at < oldest) continue;
      ASSERT_EQ(pruned.phase(at), timeline.phase(at)) << epoch << ", " << step;
      ASSERT_EQ(pruned.position_of(at), timeline.position_of(at)) << epoch << ", " << step;
    }
  }
  EXPECT_TRUE(pruned.same_from(here, timeline));
}

TEST(Timeline, KeepsAllCutsThatAreYetToBeRead) {
  Timeline timeline(phase(1000, Tail::kKeep, 1), 1);
  for (std::uint64_t epoch = 1; epoch < 100; ++epoch)
    timeline.swap({epoch, 0}, phase(1000, Tail::kKeep, 1 + epoch % 7));
  const Timeline before = timeline;
  timeline.forget_before({3, 10});
  EXPECT_EQ(timeline.cuts().size(), 97U);
  EXPECT_TRUE(timeline.same_from({3, 10}, before));
}

TEST(Timeline, IsReadFromWhatItHasForgottenAsTheOldestChangeThatItKnowsHasIt) {
  Timeline timeline(phase(1000, Tail::kKeep, 10), 1);
  for (std::uint64_t step = 1; step <= 80; ++step)
    timeline.swap({2, step}, phase(1000, Tail::kKeep, 10 + step % 2));
  timeline.forget_before({3, 0});
  const job::StepAt oldest = timeline.cuts().front().from;
  ASSERT_GT(oldest.step, 0U);
  EXPECT_EQ(timeline.phase({0, 0}), timeline.phase(oldest));
  EXPECT_EQ(timeline.position_of({2, 0}), 0U);
  Timeline again = timeline;
  again.redeal({2, 1}, 10);
  EXPECT_EQ(again.position_of({2, 1}), 10U);
  EXPECT_TRUE(again.gapless());
  again = timeline;
  again.redeal({0, 3}, again.position_of({0, 3}));
  const std::uint64_t rows = timeline.phase(oldest)->batch;
  EXPECT_EQ(again.position_of({0, 3}), 3 * rows);
}

TEST(Timeline, LeavesOutForAllWhatItLeavesOutWhereTheyAre) {
  Timeline timeline(phase(100, Tail::kKeep, 5), 2);
  timeline.resize({0, 4}, 70, 2, 3);
  timeline.resize({1, 0}, 20, 2, 2);
  // Who has read everything before, in whichever words it says so, goes on as all do.
  for (const std::uint64_t position : {std::uint64_t{40}, std::uint64_t{70}}) {
    Timeline resumed = timeline;
    resumed.resume({0, 4}, position);
    EXPECT_TRUE(resumed.same_from({0, 4}, timeline)) << position;
    resumed.redeal({0, 4}, position);
    EXPECT_EQ(resumed.position_of({0, 4}), 70U) << position;
  }
  Timeline resumed = timeline;
  resumed.resume({1, 0}, 0);
  EXPECT_TRUE(resumed.same_from({1, 0}, timeline));
  // So does who goes back before it.
  resumed = timeline;
  resumed.redeal({0, 2}, 20);
  EXPECT_TRUE(resumed.same_from({0, 2}, timeline));
  EXPECT_EQ(resumed.position_of({0, 5}), 80U);
  // In another deal it is of no meaning; whose steps were others goes on by its own position.
  Timeline resized = timeline;
  resized.resize({2, 0}, 0, 1);
  resized.redeal({0, 2}, 20);
  EXPECT_EQ(resized.position_of({0, 5}), 35U);
  resumed.resume({0, 4}, 55);
  EXPECT_EQ(resumed.position_of({0, 4}), 55U);
}

TEST(Timeline, GoesOnWithoutAGapFromWhereverItIsResumed) {
  Timeline timeline(phase(96, Tail::kDrop, 2), 2);  // 24 steps
  timeline.resize({0, 30}, 60, 2);
  ASSERT_FALSE(timeline.gapless());
  for (std::uint64_t step = 0; step <= 30; ++step) {
    Timeline resumed = timeline;
    resumed.resume({0, step}, std::min<std::uint64_t>(4 * step, 96));
    EXPECT_TRUE(resumed.gapless({0, step})) << step;
    for (std::uint64_t next = step; next < resumed.end_step(0); ++next)
      EXPECT_LT(resumed.position_of({0, next}), resumed.position_of({0, next + 1})) << next;
    resumed = timeline;
    resumed.close_gaps({0, step});
    EXPECT_TRUE(resumed.gapless({0, step})) << step;
  }
}

TEST(Timeline, ForgetsCutsThatALaterOneOverrules) {
  Timeline timeline(phase(100, Tail::kDrop, 5), 2);
  timeline.resize({0, 8}, 80, 4);
  timeline.resize({0, 4}, 40, 1);
  EXPECT_EQ(timeline.cuts().size(), 2U);
  EXPECT_EQ(timeline.sharding({0, 9}).segment().num_shards, 1U);
}

TEST(Timeline, IsDealtOutAmongTheShardsOfTheEndWhenItIsReadAgain) {
  Timeline timeline(phase(100, Tail::kKeep, 5), 1);
  timeline.resize({0, 8}, 40, 4);
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
  Timeline timeline(phase(100, Tail::kKeep, 4), 3);
  timeline.resize({0, 9}, 37, 3);
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

TEST(Timeline, ReadsEveryItemOnceFromBeforeWhereOthersResumed) {
  Timeline timeline(phase(100, Tail::kKeep, 5), 2);
  timeline.resume({3, 1}, 3);  // as a smaller world had come there
  timeline.swap({3, 4}, phase(100, Tail::kKeep, 4));
  timeline.resume({3, 1}, 3);
  EXPECT_EQ(timeline.position_of({3, 1}), 3U) << "they are where they were";
  timeline.resume({3, 0}, 0);
  EXPECT_EQ(positions(timeline, 3), everything(100));
  EXPECT_EQ(timeline.phase({3, 4})->batch, 4U);
}

TEST(Timeline, ChangesItsPhaseAtAStepAndCountsOn) {
  Timeline timeline(phase(100, Tail::kKeep, 5), 2);
  timeline.swap({0, 4}, phase(100, Tail::kKeep, 10));
  EXPECT_EQ(timeline.phase({0, 3})->batch, 5U);
  EXPECT_EQ(timeline.phase({0, 4})->batch, 10U);
  EXPECT_EQ(timeline.phase({7, 0})->batch, 10U);
  EXPECT_EQ(timeline.next_phase({0, 0}), (job::StepAt{0, 4}));
  EXPECT_EQ(timeline.next_phase({0, 4}), std::nullopt);
  EXPECT_EQ(timeline.end_step(0), 4U + 3U);
  EXPECT_EQ(positions(timeline, 0), everything(100));
  EXPECT_EQ(positions(timeline, 1), everything(100));
}

TEST(Timeline, LeavesOutWhatItLeavesOutWhereItsPhaseChangesToo) {
  Timeline timeline(phase(100, Tail::kKeep, 5), 2);
  timeline.resize({1, 0}, 40, 2, 4);
  timeline.swap({1, 0}, phase(100, Tail::kKeep, 2));
  EXPECT_EQ(timeline.position_of({1, 0}), 40U);
  Timeline again = timeline;
  again.redeal({0, 0}, 0);
  EXPECT_EQ(again.position_of({1, 0}), 40U);
  timeline.swap({1, 0}, phase(30, Tail::kKeep, 2));
  EXPECT_EQ(timeline.position_of({1, 0}), 30U) << "all that there is";
  timeline.redeal({0, 0}, 0);
  EXPECT_EQ(timeline.position_of({1, 0}), 30U);
}

TEST(Timeline, ForgetsASwapThatAnEarlierOneOverrules) {
  Timeline timeline(phase(100, Tail::kDrop, 5), 2);
  timeline.swap({0, 8}, phase(100, Tail::kDrop, 2));
  timeline.swap({0, 4}, phase(100, Tail::kDrop, 1));
  EXPECT_EQ(timeline.phase({0, 9})->batch, 1U);
  EXPECT_EQ(timeline.next_phase({0, 5}), std::nullopt);
}

TEST(Timeline, KeepsASwapThatLiesAheadOfAResize) {
  Timeline timeline(phase(1000, Tail::kKeep, 5), 2);
  const pipeline::PhasePtr next = phase(1000, Tail::kKeep, 7);
  timeline.swap({0, 50}, next);
  timeline.resize({0, 10}, 100, 4);
  EXPECT_EQ(timeline.phase({0, 50}), next);
  EXPECT_EQ(timeline.position_of({0, 50}), 100U + 40U * 4U * 5U);
  EXPECT_EQ(timeline.num_shards(), 4U);
  EXPECT_EQ(positions(timeline, 0), everything(1000));
  EXPECT_EQ(positions(timeline, 1), everything(1000));
}

TEST(Timeline, PutsOffASwapToTheNextEpochWhenAResizeMakesThisOneTooShort) {
  Timeline timeline(phase(1000, Tail::kKeep, 5), 2);
  const pipeline::PhasePtr next = phase(1000, Tail::kKeep, 7);
  timeline.swap({0, 90}, next);
  timeline.resize({0, 10}, 100, 8);
  EXPECT_EQ(timeline.end_step(0), 10U + 23U);
  EXPECT_NE(timeline.phase({0, 32}), next);
  EXPECT_EQ(timeline.phase({1, 0}), next);
  EXPECT_EQ(positions(timeline, 0), everything(1000));
}

TEST(Timeline, ReplaysAnEarlierStepInItsOwnPhase) {
  Timeline timeline(phase(100, Tail::kDrop, 5), 2);
  const pipeline::PhasePtr next = phase(100, Tail::kDrop, 10);
  timeline.swap({1, 4}, next);
  timeline.redeal({0, 2}, 20);
  EXPECT_NE(timeline.phase({0, 2}), next);
  EXPECT_EQ(timeline.phase({1, 4}), next);
}

TEST(Timeline, KnowsFromWhereOnAnotherOneIsTheSame) {
  Timeline one(phase(100, Tail::kDrop, 5), 2);
  Timeline other(phase(100, Tail::kDrop, 5), 2);
  EXPECT_TRUE(one.same_from({0, 0}, other));
  other.resize({0, 4}, 40, 4);
  EXPECT_FALSE(one.same_from({0, 0}, other));
  one.resize({0, 2}, 20, 4);
  EXPECT_FALSE(one.same_from({0, 4}, other));
  EXPECT_TRUE(one.same_from({1, 0}, other));
  one.swap({3, 0}, phase(100, Tail::kDrop, 4));
  EXPECT_FALSE(one.same_from({1, 0}, other));
}

// What one reader of the whole epoch would see, in its order: only the valid rows, by position.
std::vector<std::uint64_t> rows_of(const Timeline& timeline, std::uint64_t epoch,
                                   std::uint64_t from, std::uint64_t to) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t step = from; step < to; ++step) {
    const source::Sharding sharding = timeline.sharding({epoch, step});
    for (std::uint32_t shard = 0; shard < sharding.segment().num_shards; ++shard) {
      const source::BatchRows rows = sharding.rows(step, shard);
      for (std::uint64_t row = 0; row < rows.valid; ++row) all.push_back(rows.position(row));
    }
  }
  return all;
}

TEST(Timeline, ReadsOneOrderThroughRunsOfAnySizeThatGoOnFromEachOther) {
  std::mt19937_64 random(20);
  const auto draw = [&](std::uint64_t most) { return 1 + random() % most; };
  for (int round = 0; round < 500; ++round) {
    const std::uint64_t items = 50 + draw(2000);
    const std::uint64_t epoch = draw(3);
    std::vector<std::uint64_t> seen;
    job::StepAt at{.epoch = epoch, .step = 0};
    std::uint64_t position = 0;
    // Each life is a new job, as after a restart of the trainer with another world and batch size.
    while (at.epoch == epoch) {
      Timeline timeline(phase(items, Tail::kKeep, draw(40)), static_cast<std::uint32_t>(draw(9)));
      ASSERT_TRUE(timeline.check(at, position).ok());
      timeline.redeal(at, position);
      ASSERT_EQ(timeline.position_of(at), position);
      const std::uint64_t end = timeline.end_step(epoch);
      const std::uint64_t to = std::min(end, at.step + draw(12));
      const std::vector<std::uint64_t> rows = rows_of(timeline, epoch, at.step, to);
      seen.insert(seen.end(), rows.begin(), rows.end());
      position = timeline.position_of({epoch, to});
      at = timeline.settled({epoch, to});
    }
    std::vector<std::uint64_t> wanted(items);
    std::iota(wanted.begin(), wanted.end(), std::uint64_t{0});
    ASSERT_EQ(seen, wanted) << "round " << round;
  }
}

TEST(Timeline, ReadsOneOrderThroughResizesAndSwapsWhileItRuns) {
  std::mt19937_64 random(21);
  const auto draw = [&](std::uint64_t most) { return 1 + random() % most; };
  for (int round = 0; round < 500; ++round) {
    const std::uint64_t items = 50 + draw(2000);
    Timeline timeline(phase(items, Tail::kKeep, draw(20)), static_cast<std::uint32_t>(draw(9)));
    job::StepAt at{.epoch = 0, .step = 0};
    for (int change = 0; change < 6; ++change) {
      at = timeline.settled({at.epoch, at.step + draw(20)});
      if (draw(3) > 1) {
        timeline.resize(at, timeline.position_of(at), static_cast<std::uint32_t>(draw(9)));
      } else {
        timeline.swap(at, phase(items, Tail::kKeep, draw(20)));
      }
    }
    std::vector<std::uint64_t> wanted(items);
    std::iota(wanted.begin(), wanted.end(), std::uint64_t{0});
    for (std::uint64_t epoch = 0; epoch <= at.epoch + 1; ++epoch)
      ASSERT_EQ(rows_of(timeline, epoch, 0, timeline.end_step(epoch)), wanted)
          << "round " << round << ", epoch " << epoch;
  }
}

TEST(Timeline, GivesEveryShardEquallyManyStepsFromAnyCut) {
  constexpr std::uint32_t kShards = 4;
  std::mt19937_64 random(22);
  const auto draw = [&](std::uint64_t most) { return 1 + random() % most; };
  int gapless = 0;
  for (const Tail tail : {Tail::kDrop, Tail::kPad, Tail::kKeep}) {
    for (int round = 0; round < 200; ++round) {
      const std::uint64_t items = 100 + draw(500);
      const std::uint64_t batch = draw(8);
      Timeline timeline(phase(items, tail, batch), kShards);
      timeline.redeal({0, draw(20)}, draw(items));
      if (!timeline.gapless()) continue;
      ++gapless;
      const job::StepAt cut{0, std::min<std::uint64_t>(20, timeline.end_step(0))};
      timeline.resize(cut, timeline.position_of(cut), static_cast<std::uint32_t>(draw(9)));
      ASSERT_TRUE(timeline.gapless());
      const std::uint64_t end = timeline.end_step(0);
      const std::uint32_t shards = timeline.num_shards();
      // The steps that each shard has before and behind the cut.
      std::vector<std::uint64_t> before(kShards);
      std::vector<std::uint64_t> behind(shards);
      for (std::uint64_t step = 0; step < end; ++step) {
        const source::Sharding sharding = timeline.sharding({0, step});
        std::vector<std::uint64_t>& steps = step < cut.step ? before : behind;
        ASSERT_EQ(sharding.segment().num_shards, steps.size());
        for (std::uint32_t shard = 0; shard < steps.size(); ++shard) {
          const std::uint64_t rows = sharding.rows(step, shard).rows;
          if (rows > 0) ++steps[shard];
          if (tail != Tail::kKeep) {
            ASSERT_EQ(rows, batch);
          }
        }
      }
      ASSERT_EQ(before, std::vector<std::uint64_t>(kShards, cut.step)) << "round " << round;
      ASSERT_EQ(behind, std::vector<std::uint64_t>(shards, end - cut.step)) << "round " << round;
      // No shard could have another step: no rows are left, or too few for all shards.
      const std::uint64_t left = items - timeline.position_of({0, end});
      ASSERT_LT(left, tail == Tail::kDrop ? batch * shards : 1U) << "round " << round;
    }
  }
  EXPECT_GT(gapless, 300) << "too few of the drawn timelines can be read from their begin";
}

TEST(Timeline, KnowsThatItsOwnBatchesNeverComeToWhereItWasResumed) {
  Timeline timeline(phase(1000, Tail::kKeep, 48), 3);
  timeline.redeal({0, 6}, 100);
  EXPECT_TRUE(timeline.gapless());
  Timeline late(phase(1000, Tail::kKeep, 48), 3);
  late.redeal({0, 9}, 900);
  EXPECT_FALSE(late.gapless());
}

TEST(Timeline, HasAShardThatComesBackBeginWhereItCameLast) {
  Timeline timeline(phase(1000, Tail::kKeep, 5), 4);
  timeline.resize({0, 10}, 200, 3);
  timeline.resize({0, 15}, 275, 8);
  EXPECT_EQ(timeline.begin_of(2, {0, 4}, true), (job::StepAt{0, 4}));
  EXPECT_EQ(timeline.begin_of(3, {0, 4}, true), (job::StepAt{0, 15}));
  EXPECT_EQ(timeline.begin_of(3, {0, 4}, false), (job::StepAt{0, 4}));
  EXPECT_EQ(timeline.begin_of(3, {0, 12}, false), (job::StepAt{0, 15}));
  EXPECT_EQ(timeline.begin_of(7, {0, 0}, false), (job::StepAt{0, 15}));
  EXPECT_EQ(timeline.begin_of(7, {3, 2}, true), (job::StepAt{3, 2}));
}

TEST(Timeline, HasNoGapsWhenAResizePutsChangesOff) {
  std::mt19937 random(7);
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  for (int round = 0; round < 2000; ++round) {
    Timeline timeline(phase(100, Tail::kDrop, 1 + below(6)),
                      1 + static_cast<std::uint32_t>(below(3)));
    for (int change = 0; change < 3; ++change) {
      const job::StepAt at = timeline.settled({below(2), below(30)});
      timeline.swap(at, phase(100, Tail::kDrop, 1 + below(6)));
    }
    const job::StepAt at = timeline.settled({below(2), below(30)});
    timeline.resize(at, timeline.position_of(at), 1 + static_cast<std::uint32_t>(below(4)));
    ASSERT_TRUE(timeline.gapless()) << "round " << round;
    for (std::size_t i = 1; i < timeline.cuts().size(); ++i)
      ASSERT_LT(timeline.cuts()[i - 1].from, timeline.cuts()[i].from) << "round " << round;
  }
}

TEST(Timeline, LevelsTheEpochThatIsGoneOnWith) {
  const pipeline::PhasePtr first = phase(100, Tail::kDrop, 5);
  const pipeline::PhasePtr second = phase(100, Tail::kDrop, 5);
  const pipeline::PhasePtr third = phase(100, Tail::kDrop, 5);
  Timeline timeline(first, 2);
  timeline.swap({1, 1}, second);
  timeline.swap({3, 1}, third);
  timeline.level({3, 2});
  EXPECT_EQ(timeline.phase({3, 0}), third);
  EXPECT_EQ(timeline.phase({2, 0}), second);
  EXPECT_EQ(timeline.phase({1, 0}), first);
  const Timeline before = timeline;
  timeline.level({2, 1});
  EXPECT_EQ(timeline.cuts(), before.cuts()) << "nothing changes in that epoch";
}

}  // namespace
}  // namespace spdld::stream
