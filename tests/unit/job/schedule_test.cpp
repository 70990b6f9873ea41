// SPDX-License-Identifier: Apache-2.0
#include "job/schedule.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace spdld::job {
namespace {

const VersionFacts kFirst{.items = 100, .tail = Tail::kDrop, .batch = 5, .order = "A"};
const VersionFacts kSmaller{.items = 100, .tail = Tail::kDrop, .batch = 2, .order = "A"};
const VersionFacts kOther{.items = 60, .tail = Tail::kDrop, .batch = 5, .order = "B"};

// 2 shards of 5 rows: 10 steps an epoch.
Schedule two_shards(const VersionFacts& first = kFirst) {
  return Schedule(7, first, {.shards = 2});
}

// Accepted, as of members that were handed everything up to there.
Schedule::Replaced add(Schedule& schedule, Turn turn, decltype(Edit::change) change,
                       std::optional<Turn> reached = std::nullopt) {
  auto added = schedule.add({.turn = turn, .change = change}, reached.value_or(turn), turn);
  EXPECT_TRUE(added) << added.error().message();
  return added ? *added : Schedule::Replaced();
}

struct Place {
  std::uint64_t epoch;
  std::uint64_t step;
  std::uint64_t position;
  std::uint32_t shards = 2;
  std::uint32_t version = 0;
  std::uint32_t next_version = 0;
};

State state(const Place& place) {
  return {place.epoch, place.step, place.position, place.shards, place.version, place.next_version};
}

OwnSeek seek(const Schedule& schedule, Turn turn, StepAt to, std::uint64_t position = 0,
             std::uint64_t skip = 0) {
  auto made = schedule.own_seek(turn, {}, to, position, skip);
  EXPECT_TRUE(made) << made.error().message();
  return *made;
}

TEST(Schedule, CountsTurnsThroughEpochs) {
  const Schedule schedule = two_shards();
  for (const auto& [turn, place] :
       std::vector<std::pair<Turn, Place>>{{0, {0, 0, 0}},
                                           {9, {0, 9, 90}},
                                           {10, {1, 0, 0}},
                                           {25, {2, 5, 50}},
                                           {10'000'000'003, {1'000'000'000, 3, 30}}}) {
    EXPECT_EQ(schedule.locate(turn, {}), state(place)) << turn;
    EXPECT_EQ(schedule.behind(turn, {}), state(place)) << turn;
  }
}

TEST(Schedule, AppliesEachEditFromItsTurnOn) {
  struct Case {
    const char* name;
    decltype(Edit::change) change;
    Place at_4;
    Place at_5;
    Place at_30;
  };
  const std::vector<Case> cases{
      {"seek", Edit::Seek{{.epoch = 3, .step = 2}}, {3, 2, 20}, {3, 3, 30}, {5, 8, 80}},
      {"seek beyond the epoch",
       Edit::Seek{{.epoch = 3, .step = 10}},
       {4, 0, 0},
       {4, 1, 10},
       {6, 6, 60}},
      {"skip", Edit::Skip{0, 3}, {0, 7, 70}, {0, 8, 80}, {3, 3, 30}},
      {"skip to the epoch's end at most", Edit::Skip{0, 99}, {1, 0, 0}, {1, 1, 10}, {3, 6, 60}},
      {"fewer shards", Edit::Resize{1}, {0, 4, 40, 1}, {0, 5, 45, 1}, {1, 14, 70, 1}},
      {"more shards", Edit::Resize{4}, {0, 4, 40, 4}, {0, 5, 60, 4}, {5, 3, 60, 4}},
      {"a version of the same order",
       Edit::Swap{1},
       {0, 4, 40, 2, 1, 1},
       {0, 5, 44, 2, 1, 1},
       {1, 11, 44, 2, 1, 1}},
      {"a version of another order",
       Edit::Swap{2},
       {0, 4, 40, 2, 0, 2},
       {0, 5, 50, 2, 0, 2},
       {4, 2, 20, 2, 2, 2}},
  };
  for (const Case& each : cases) {
    Schedule schedule = two_shards();
    ASSERT_EQ(schedule.add_version(kSmaller), 1u);
    ASSERT_EQ(schedule.add_version(kOther), 2u);
    add(schedule, 4, each.change);
    EXPECT_EQ(schedule.locate(3, {}), state({0, 3, 30})) << each.name;
    EXPECT_EQ(schedule.behind(4, {}), state({0, 4, 40})) << each.name;
    EXPECT_EQ(schedule.locate(4, {}), state(each.at_4)) << each.name;
    EXPECT_EQ(schedule.locate(5, {}), state(each.at_5)) << each.name;
    EXPECT_EQ(schedule.locate(30, {}), state(each.at_30)) << each.name;
  }
}

TEST(Schedule, BeginsTheNextEpochWhereAnEditLeavesNoStep) {
  Schedule schedule = two_shards();
  add(schedule, 9, Edit::Resize{3});
  EXPECT_EQ(schedule.locate(9, {}), state({1, 0, 0, 3})) << "10 rows make no step of 15";
  EXPECT_EQ(schedule.behind(9, {}), state({0, 9, 90}));
}

TEST(Schedule, RunsAnotherOrderFromPosition0On) {
  Schedule schedule = two_shards();
  schedule.add_version(kOther);
  add(schedule, 10, Edit::Swap{1});
  EXPECT_EQ(schedule.locate(10, {}), state({1, 0, 0, 2, 1, 1})) << "an epoch begins there";
  add(schedule, 12, Edit::Swap{0});
  EXPECT_EQ(schedule.locate(12, {}), state({1, 2, 20, 2, 1, 0}));
  EXPECT_EQ(schedule.locate(12, {seek(schedule, 12, {5, 0})}), state({5, 0, 0, 2, 0, 0}))
      << "the edit of that turn comes behind the seek";
  EXPECT_EQ(schedule.locate(13, {seek(schedule, 13, {1, 0})}), state({1, 0, 0, 2, 0, 0}))
      << "the same epoch once more";
  EXPECT_EQ(schedule.locate(13, {seek(schedule, 13, {4, 2}, 20)}), state({4, 2, 20, 2, 0, 0}));
}

TEST(Schedule, RunsTheLastVersionAfterASeekOfTheJob) {
  Schedule schedule = two_shards();
  schedule.add_version(kOther);
  add(schedule, 4, Edit::Swap{1});
  add(schedule, 4, Edit::Seek{{3, 2}});
  EXPECT_EQ(schedule.locate(4, {}), state({3, 2, 20, 2, 1, 1}));
}

TEST(Schedule, AppliesAnOwnSeekBeforeTheJobsEditOfItsTurn) {
  Schedule schedule = two_shards();
  add(schedule, 4, Edit::Skip{6, 2});
  const OwnSeeks own{seek(schedule, 4, {6, 0})};
  EXPECT_EQ(schedule.behind(4, own), state({6, 0, 0}));
  EXPECT_EQ(schedule.locate(4, own), state({6, 2, 20}));
  EXPECT_EQ(schedule.locate(3, own), state({0, 3, 30})) << "before it the log alone counts";
  EXPECT_EQ(schedule.locate(4, {seek(schedule, 4, {6, 5}, 50, 3)}), state({7, 0, 0}));
}

TEST(Schedule, SkipsInItsEpochAlone) {
  Schedule schedule = two_shards();
  add(schedule, 8, Edit::Skip{0, 3});
  ASSERT_EQ(schedule.locate(8, {}), state({1, 0, 0}));
  OwnSeeks own;
  say(own, seek(schedule, 8, {1, 0}));
  EXPECT_EQ(schedule.locate(8, own), state({1, 0, 0})) << "the loop begins the next epoch there";
}

TEST(Schedule, TellsWhereEachEditOfATurnFindsAMember) {
  Schedule schedule = two_shards();
  add(schedule, 4, Edit::Seek{{.epoch = 3, .step = 2}});
  add(schedule, 4, Edit::Skip{3, 99});
  add(schedule, 4, Edit::Skip{4, 2});
  add(schedule, 4, Edit::Resize{1});
  const std::vector<State> found{state({0, 4, 40}), state({3, 2, 20}), state({4, 0, 0}),
                                 state({4, 2, 20})};
  for (std::size_t edit = 0; edit < found.size(); ++edit)
    EXPECT_EQ(schedule.before_edit(edit, {}), found[edit]) << edit;
}

TEST(Schedule, DropsOwnSeeksFromTheTurnOnAtWhichALoopSeeks) {
  const Schedule schedule = two_shards();
  OwnSeeks own;
  for (const Turn turn : {3u, 9u, 9u, 7u}) say(own, seek(schedule, turn, {turn, 0}));
  EXPECT_EQ(own, (OwnSeeks{seek(schedule, 3, {3, 0}), seek(schedule, 7, {7, 0})}));
}

TEST(Schedule, KnowsACursorOfItsRunByItsTurn) {
  Schedule schedule = two_shards();
  add(schedule, 4, Edit::Skip{0, 2});
  const Cursor cursor{.order = "A", .at = {0, 4}, .position = 40, .run = 7, .branch = 0, .turn = 4};
  EXPECT_TRUE(schedule.counts(cursor, 10));
  const auto own = schedule.own_seek(cursor);
  ASSERT_TRUE(own);
  EXPECT_EQ(schedule.locate(4, {*own}), state({0, 6, 60})) << "it goes through the skip once";

  Cursor elsewhere = cursor;
  elsewhere.at = {2, 1};
  elsewhere.position = 10;
  EXPECT_EQ(schedule.behind(4, {*schedule.own_seek(elsewhere)}), state({2, 1, 10}));

  Cursor foreign = cursor;
  foreign.run = 8;
  EXPECT_FALSE(schedule.counts(foreign, 10));
  EXPECT_FALSE(schedule.counts(cursor, 3)) << "a turn that nobody has been sent";
}

TEST(Schedule, TakesACursorAtAnEpochsEndForTheNextOnesStart) {
  const Schedule schedule = two_shards();
  for (const auto& [at, position] :
       std::vector<std::pair<StepAt, std::uint64_t>>{{{0, 10}, 100}, {{1, 0}, 0}}) {
    const auto own = schedule.own_seek(
        {.order = "A", .at = at, .position = position, .run = 7, .branch = 0, .turn = 10});
    ASSERT_TRUE(own);
    EXPECT_EQ(schedule.behind(10, {*own}), schedule.behind(10, {})) << at.epoch;
  }
}

TEST(Schedule, RunsTheLastVersionOfACursorsOrder) {
  Schedule schedule = two_shards();
  schedule.add_version(kOther);
  schedule.add_version(kSmaller);
  add(schedule, 3, Edit::Swap{1});
  add(schedule, 15, Edit::Swap{2});
  struct Case {
    Turn turn;
    std::string order;
    std::uint64_t position;
    std::uint32_t version;
  };
  for (const Case& each : std::vector<Case>{{3, "A", 20, 0},
                                            {4, "A", 20, 0},
                                            {4, "B", 20, 1},
                                            {4, "A", 0, 1},
                                            {16, "A", 20, 2},
                                            {16, "B", 20, 1},
                                            {16, "", 20, 2}}) {
    const auto seek = schedule.own_seek(each.turn, each.order, {1, 2}, each.position);
    ASSERT_TRUE(seek);
    EXPECT_EQ(seek->version, each.version) << each.turn << " " << each.order;
  }
}

TEST(Schedule, RefusesAPlaceThatIsNone) {
  const Schedule schedule = two_shards();
  const auto refused = [&](const std::string& order, StepAt to, std::uint64_t position) {
    const auto seek = schedule.own_seek(0, order, to, position);
    return seek ? std::string() : seek.error().message();
  };
  EXPECT_EQ(
      refused("B", {0, 1}, 10),
      "the job has no version of the order 'B': go on from a state of the data that it reads, "
      "or begin afresh");
  EXPECT_EQ(refused("B", {0, 0}, 0), "") << "at an epoch's start the order is of no matter";
  EXPECT_EQ(refused("A", {0, 11}, 101),
            "the position 101 lies behind the last of 100 items: go on from a state of this "
            "dataset, or begin afresh");
  EXPECT_EQ(refused("A", {std::uint64_t{1} << 60, 0}, 0),
            "epoch 1152921504606846976, step 0 is no place in a job: neither goes beyond "
            "281474976710656; name one that the job comes to");
  EXPECT_EQ(refused("A", {0, 10}, 100), "") << "an epoch's end";
}

TEST(Schedule, RefusesAnEditThatLeavesAnEpochWithoutSteps) {
  Schedule schedule = two_shards();
  const Schedule before = schedule;
  auto refused = schedule.add({.turn = 4, .change = Edit::Resize{21}}, 4, 4);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "100 items make no step of 21 shards with batches of 5; lower batch.size, take fewer "
            "shards, or say 'batch: {last: pad}'");
  EXPECT_EQ(schedule.record(), before.record());

  const std::uint32_t large =
      schedule.add_version({.items = 100, .tail = Tail::kDrop, .batch = 40, .order = "A"});
  EXPECT_TRUE(schedule.plan({.from = 4, .place = StepAt{2, 0}, .version = large}));
  refused = schedule.add({.turn = 4, .change = Edit::Resize{3}}, 4, 4);
  ASSERT_FALSE(refused) << "the swap that is planned makes no step of 3 shards";
  EXPECT_FALSE(schedule.add({.turn = 4, .change = Edit::Resize{0}}, 4, 4));
}

TEST(Schedule, ReplacesLaterEditsOfTheSameKindAlone) {
  Schedule schedule = two_shards();
  schedule.add_version(kSmaller);
  schedule.add_version(kSmaller);
  add(schedule, 10, Edit::Skip{0, 1});
  add(schedule, 11, Edit::Resize{3});
  add(schedule, 12, Edit::Swap{1});
  // All ranks have gone back to turn 5.
  EXPECT_EQ(add(schedule, 5, Edit::Seek{{2, 0}}, 13).edits,
            (std::vector<Edit>{{10, Edit::Skip{0, 1}}}));
  EXPECT_EQ(add(schedule, 6, Edit::Swap{2}).edits, (std::vector<Edit>{{12, Edit::Swap{1}}}));
  EXPECT_EQ(
      schedule.edits(),
      (std::vector<Edit>{{5, Edit::Seek{{2, 0}}}, {6, Edit::Swap{2}}, {11, Edit::Resize{3}}}));
  EXPECT_EQ(add(schedule, 11, Edit::Resize{4}).edits, std::vector<Edit>{})
      << "of the same turn all stay";
  EXPECT_EQ(schedule.shards(10), 2u);
  EXPECT_EQ(schedule.shards(11), 4u);
}

TEST(Schedule, TellsStatesOfABranchThatWasLeft) {
  Schedule schedule = two_shards();
  const auto counts = [&](std::uint32_t branch, Turn turn) {
    return schedule.counts(
        {.order = {}, .at = {}, .position = 0, .run = 7, .branch = branch, .turn = turn}, 1000);
  };
  add(schedule, 50, Edit::Skip{0, 1}, 90);
  EXPECT_EQ(schedule.branch(), 1u);
  EXPECT_TRUE(counts(0, 50)) << "both branches have that turn";
  EXPECT_FALSE(counts(0, 51));
  EXPECT_TRUE(counts(1, 51));
  EXPECT_FALSE(counts(2, 51)) << "there is none of that number";

  add(schedule, 60, Edit::Skip{0, 1}, 70);
  EXPECT_FALSE(counts(0, 55));
  EXPECT_TRUE(counts(1, 60));
  EXPECT_FALSE(counts(1, 61));
  add(schedule, 40, Edit::Skip{0, 1}, 80);
  EXPECT_EQ(schedule.branch(), 3u);
  EXPECT_EQ(schedule.record().partings.size(), 1u) << "the others are beyond it";
  EXPECT_TRUE(counts(1, 40));
  EXPECT_FALSE(counts(2, 41));
  add(schedule, 40, Edit::Skip{0, 1}, 40);
  EXPECT_EQ(schedule.branch(), 3u) << "nobody was sent more";
}

TEST(Schedule, BeginsAShardThatEntersWhereTheOthersAreThen) {
  Schedule schedule = two_shards();
  add(schedule, 6, Edit::Resize{3});
  EXPECT_FALSE(schedule.entry(0));
  EXPECT_FALSE(schedule.entry(3));
  ASSERT_TRUE(schedule.entry(2));
  EXPECT_EQ(schedule.entry(2)->turn, 6u);
  EXPECT_FALSE(schedule.entry(2)->place) << "nobody has come there";
  const OwnSeeks own{seek(schedule, 3, {5, 0})};
  EXPECT_FALSE(schedule.set_entry(5, own)) << "no shard enters there";
  EXPECT_FALSE(schedule.set_entry(6, {seek(schedule, 7, {5, 0})})) << "it does not tell";
  EXPECT_TRUE(schedule.set_entry(6, own));
  ASSERT_TRUE(schedule.entry(2)->place);
  const OwnSeeks entered{*schedule.entry(2)->place};
  EXPECT_EQ(schedule.behind(6, entered), state({5, 3, 30})) << "before the resize of that turn";
  EXPECT_EQ(schedule.locate(7, entered), schedule.locate(7, own));
  schedule.forget_entries(6);
  EXPECT_TRUE(schedule.entry(2)->place);
  schedule.forget_entries(5);
  EXPECT_FALSE(schedule.entry(2)->place) << "all have gone back before it";

  add(schedule, 8, Edit::Resize{1});
  add(schedule, 8, Edit::Resize{2});
  EXPECT_EQ(schedule.entry(1)->turn, 8u) << "resized away and brought back";
}

TEST(Schedule, GivesAPlannedSwapItsTurnWhereAMemberComesToItsPlace) {
  struct Case {
    const char* name;
    Turn from;
    std::optional<StepAt> place;
    OwnSeeks own;
    Turn turn;
  };
  const Schedule plain = two_shards();
  for (const Case& each :
       std::vector<Case>{{"a step ahead", 4, StepAt{2, 3}, {}, 23},
                         {"a step that the epoch does not have", 4, StepAt{0, 50}, {}, 10},
                         {"a place that is passed", 14, StepAt{1, 2}, {}, 14},
                         {"the next epoch", 4, std::nullopt, {}, 10},
                         {"an epoch that begins at once", 10, std::nullopt, {}, 10},
                         {"the loop seeks there", 4, StepAt{2, 3}, {seek(plain, 6, {3, 0})}, 6},
                         {"the loop seeks back", 4, StepAt{1, 0}, {seek(plain, 6, {0, 0})}, 16},
                         {"any epoch's start", 4, std::nullopt, {seek(plain, 6, {0, 0})}, 6},
                         {"an edit leads there", 14, StepAt{6, 0}, {}, 20}}) {
    Schedule schedule = plain;
    schedule.add_version(kSmaller);
    add(schedule, 20, Edit::Seek{{2, 0}});
    if (each.turn == 20) add(schedule, 20, Edit::Seek{{7, 0}});
    ASSERT_TRUE(schedule.plan({.from = each.from, .place = each.place, .version = 1}));
    EXPECT_EQ(schedule.planned_turn(0, each.own), each.turn) << each.name;
    EXPECT_EQ(schedule.planned_turn(each.turn, each.own), each.turn) << each.name;
  }
  EXPECT_EQ(plain.planned_turn(0, {}), kNoTurn);
}

TEST(Schedule, KeepsAPlannedSwapThroughAResizeAndPutsItOffWhereTheEpochEndsBefore) {
  Schedule schedule = two_shards();
  schedule.add_version(kSmaller);
  ASSERT_TRUE(schedule.plan({.from = 1, .place = StepAt{0, 6}, .version = 1}));
  add(schedule, 2, Edit::Resize{3});
  EXPECT_EQ(schedule.planned_turn(0, {}), 6u) << "steps 2 to 6 are left";
  add(schedule, 4, Edit::Resize{9});
  EXPECT_EQ(schedule.locate(5, {}), state({1, 0, 0, 9})) << "step 4 was the last one";
  EXPECT_EQ(schedule.planned_turn(0, {}), 5u);
}

TEST(Schedule, GoesToAPlaceAsTheShardsOfItsTurnHaveIt) {
  Schedule schedule = two_shards();
  add(schedule, 8, Edit::Resize{4});
  add(schedule, 12, Edit::Seek{{0, 2}});
  EXPECT_EQ(schedule.locate(12, {}), state({0, 2, 40, 4}));
}

TEST(Schedule, PlansOneSwapAtMost) {
  Schedule schedule = two_shards();
  schedule.add_version(kSmaller);
  schedule.add_version(kSmaller);
  const PlannedSwap first{.from = 4, .place = StepAt{2, 0}, .version = 1};
  const PlannedSwap second{.from = 5, .place = std::nullopt, .version = 2};
  EXPECT_EQ(*schedule.plan(first), std::nullopt);
  EXPECT_EQ(*schedule.plan(second), first);
  EXPECT_EQ(add(schedule, 6, Edit::Skip{0, 1}).planned, std::nullopt);
  EXPECT_EQ(add(schedule, 7, Edit::Swap{1}).planned, second);
  EXPECT_EQ(schedule.planned_turn(0, {}), kNoTurn);
}

TEST(Schedule, TellsWhereASpanEnds) {
  Schedule schedule = two_shards();
  schedule.add_version(kOther);
  add(schedule, 4, Edit::Swap{1});
  add(schedule, 30, Edit::Resize{1});
  const OwnSeeks own{seek(schedule, 20, {9, 0})};
  EXPECT_EQ(schedule.next_change(0, own), 4u);
  EXPECT_EQ(schedule.next_change(4, own), 10u) << "there the other version runs";
  EXPECT_EQ(schedule.next_change(10, own), 20u);
  EXPECT_EQ(schedule.next_change(20, own), 30u);
  EXPECT_EQ(schedule.next_change(30, own), kNoTurn);
}

TEST(Schedule, KeepsItsPlacesWhenOwnSeeksAreAnchored) {
  Schedule schedule = two_shards();
  add(schedule, 5, Edit::Skip{0, 2});
  const OwnSeeks own{seek(schedule, 3, {5, 0}), seek(schedule, 9, {8, 4}, 40)};
  for (const Turn turn : {3u, 5u, 7u, 9u, 20u}) {
    const OwnSeeks anchored = schedule.anchored(own, turn);
    EXPECT_EQ(anchored.front().turn, turn);
    EXPECT_LE(anchored.size(), 2u);
    for (Turn later = turn; later < 30; ++later)
      EXPECT_EQ(schedule.locate(later, anchored), schedule.locate(later, own)) << turn << later;
  }
  EXPECT_EQ(schedule.anchored(own, 2), own);
}

TEST(Schedule, FoldsTheOldestOf65Edits) {
  Schedule schedule = two_shards();
  schedule.add_version(kOther);
  add(schedule, 2, Edit::Swap{1});
  add(schedule, 2, Edit::Swap{0});
  for (Turn turn = 3; turn < 65; ++turn) add(schedule, turn, Edit::Skip{0, 1});
  ASSERT_EQ(schedule.edits().size(), Schedule::kMostEdits);
  const Schedule full = schedule;
  const auto refused = schedule.add({.turn = 70, .change = Edit::Skip{0, 1}}, 70, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "64 changes of the job are known, and not all of its ranks have come through the "
            "oldest of them; try again once they have");
  EXPECT_EQ(schedule.record(), full.record());

  add(schedule, 70, Edit::Skip{0, 1});
  EXPECT_EQ(schedule.edits().size(), Schedule::kMostEdits);
  for (Turn turn = 3; turn < 70; ++turn)
    EXPECT_EQ(schedule.locate(turn, {}), full.locate(turn, {})) << turn;
  const Cursor cursor{.order = {}, .at = {}, .position = 0, .run = 7, .branch = 0, .turn = 2};
  EXPECT_TRUE(full.counts(cursor, 80));
  EXPECT_FALSE(schedule.counts(cursor, 80)) << "edits of that turn are not known any more";
  add(schedule, 71, Edit::Skip{0, 1});
  EXPECT_TRUE(schedule.own_seek(71, "B", {0, 1}, 10)) << "an order that ran before is known";
}

TEST(Schedule, IsBoundedThroughTenThousandEdits) {
  Schedule schedule = two_shards();
  for (Turn turn = 1; turn <= 10'000; ++turn) {
    const std::uint32_t version = schedule.add_version(turn % 3 == 0 ? kOther : kFirst);
    add(schedule, turn, Edit::Swap{version}, turn % 2 == 0 ? turn : turn + 5);
    schedule.forget_versions({});
  }
  EXPECT_EQ(schedule.edits().size(), Schedule::kMostEdits);
  EXPECT_LE(schedule.record().versions.size(), Schedule::kMostEdits + 3);
  EXPECT_LE(schedule.record().partings.size(), Schedule::kMostEdits + 1);
  EXPECT_LE(schedule.record().earlier.size(), 2u);
}

TEST(Schedule, IsRestoredFromItsRecord) {
  Schedule schedule = two_shards();
  schedule.add_version(kOther);
  add(schedule, 5, Edit::Swap{1});
  add(schedule, 7, Edit::Resize{3}, 9);
  schedule.set_entry(7, {});
  ASSERT_TRUE(schedule.plan({.from = 8, .place = std::nullopt, .version = 0}));
  const auto restored = Schedule::restored(schedule.record());
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->record(), schedule.record());
}

TEST(Schedule, RefusesADamagedRecord) {
  Schedule schedule = two_shards();
  schedule.add_version(kOther);
  add(schedule, 5, Edit::Swap{1});
  add(schedule, 7, Edit::Resize{3}, 9);
  schedule.set_entry(7, {});
  ASSERT_TRUE(schedule.plan({.from = 8, .place = StepAt{4, 0}, .version = 0}));
  add(schedule, 9, Edit::Skip{0, 3}, 11);
  const std::vector<std::pair<const char*, void (*)(ScheduleRecord&)>> damages{
      {"no versions", [](ScheduleRecord& record) { record.versions.clear(); }},
      {"a version of no items", [](ScheduleRecord& record) { record.versions[1].items = 0; }},
      {"a version of no rows", [](ScheduleRecord& record) { record.versions[1].batch = 0; }},
      {"a version of no steps", [](ScheduleRecord& record) { record.versions[1].batch = 1000; }},
      {"one order of two lengths", [](ScheduleRecord& record) { record.versions[1].order = "A"; }},
      {"a number to come", [](ScheduleRecord& record) { record.versions_made = 1; }},
      {"no shards", [](ScheduleRecord& record) { record.base.shards = 0; }},
      {"too many shards", [](ScheduleRecord& record) { record.base.shards = 1000; }},
      {"a base behind the end", [](ScheduleRecord& record) { record.base.position = 101; }},
      {"a base without an end",
       [](ScheduleRecord& record) { record.base.epoch = std::uint64_t{1} << 50; }},
      {"another oldest turn", [](ScheduleRecord& record) { record.oldest = 3; }},
      {"edits out of order", [](ScheduleRecord& record) { record.edits[0].turn = 8; }},
      {"edits before the base",
       [](ScheduleRecord& record) { record.base_turn = record.oldest = 6; }},
      {"too many edits",
       [](ScheduleRecord& record) { record.edits.resize(65, record.edits.back()); }},
      {"an edit to no version",
       [](ScheduleRecord& record) { record.edits[0].change = Edit::Swap{9}; }},
      {"an edit to no shards",
       [](ScheduleRecord& record) { record.edits[1].change = Edit::Resize{0}; }},
      {"an entry behind the end",
       [](ScheduleRecord& record) {
         std::get<Edit::Resize>(record.edits[1].change).entry->position = 1000;
       }},
      {"an entry of another turn",
       [](ScheduleRecord& record) {
         std::get<Edit::Resize>(record.edits[1].change).entry->turn = 0;
       }},
      {"a turn without an end", [](ScheduleRecord& record) { record.edits.back().turn = kNoTurn; }},
      {"items without an end",
       [](ScheduleRecord& record) { record.versions[1].items = ~std::uint64_t{0}; }},
      {"an entry of no version",
       [](ScheduleRecord& record) {
         std::get<Edit::Resize>(record.edits[1].change).entry->version = 9;
       }},
      {"a plan of no version", [](ScheduleRecord& record) { record.planned->version = 9; }},
      {"branches out of order", [](ScheduleRecord& record) { record.partings[1].branch = 1; }},
      {"no earlier version", [](ScheduleRecord& record) { record.earlier.clear(); }},
      {"an unknown earlier version", [](ScheduleRecord& record) { record.earlier = {9}; }},
  };
  ASSERT_TRUE(Schedule::restored(schedule.record()));
  for (const auto& [name, damage] : damages) {
    ScheduleRecord record = schedule.record();
    damage(record);
    EXPECT_FALSE(Schedule::restored(std::move(record))) << name;
  }
}

}  // namespace
}  // namespace spdld::job
