// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/stream/stream_fixture.h"

namespace spdld::stream {
namespace {

using ::testing::HasSubstr;
using testing::kSteps;
using testing::ReaderPtr;
using testing::rows_of;

TEST_F(StreamTest, KeepsBatchesForReplicasThatHaveNotCome) {
  const auto stream = make_replicated(3);
  const auto first = joined(*stream, 1);
  start(stream);
  expect_steps(*stream, {first}, 0, kSlots);
  EXPECT_EQ(first->poll(*stream, kSlots), std::nullopt);
  EXPECT_THAT(stream->waits_for(first->holder()), HasSubstr("replica 1 of shard 0 has not come"));
  const auto second = joined(*stream, 1, 1);
  const auto third = joined(*stream, 1, 2);
  expect_steps(*stream, {second, third}, 0, kSlots);
  EXPECT_EQ(first->pass(*stream, kSlots), rows_of(kSlots));
}

TEST_F(StreamTest, KeepsBatchesForAnAwaitedReplicaFromItsTurnOn) {
  StreamOptions options = testing::replicated(span(), 2, AbsentReplica::kWait);
  options.turn = 40;
  options.awaited = {{.replica = 1, .from = 43}};
  const auto stream = make(std::move(options));
  const auto at_turn_40 = [](const ReaderPtr& reader, std::uint32_t replica) {
    ReaderTerms wanted = terms(reader, 0, replica);
    wanted.turn = 40;
    return wanted;
  };
  const auto first = reader(1);
  ASSERT_EQ(stream->join(first, at_turn_40(first, 0), 0), 0U);
  start(stream);
  expect_steps(*stream, {first}, 0, 3 + kSlots);
  EXPECT_EQ(first->poll(*stream, 3 + kSlots), std::nullopt);
  const auto second = reader(1);
  EXPECT_EQ(stream->offers(terms(second, 0, 1)), std::nullopt) << "it is at another turn";
  ASSERT_EQ(stream->join(second, at_turn_40(second, 1), 3), 3U);
  expect_steps(*stream, {second}, 3, 3 + kSlots);
  expect_steps(*stream, {first, second}, 3 + kSlots, kSteps);
}

TEST_F(StreamTest, SaysWhichReplicaLagsOnlyOnceThatStopsTheOthers) {
  const auto stream = make_replicated(2);
  const auto fast = joined(*stream, 1);
  const auto slow = joined(*stream, 1, 1);
  start(stream);
  settle(*stream);
  EXPECT_EQ(stream->waits_for(fast->holder()), "");
  slow->pass(*stream, 0);
  expect_steps(*stream, {fast}, 0, kSlots + 1);
  EXPECT_EQ(fast->poll(*stream, kSlots + 1), std::nullopt);
  EXPECT_THAT(stream->waits_for(fast->holder()),
              HasSubstr("replica 1 of shard 0 is still at epoch 0, step 1"));
  EXPECT_EQ(stream->waits_for(slow->holder()), "");
}

TEST_F(StreamTest, SaysThatReplicasHoldAllSlotsBetweenThem) {
  const auto stream = make_replicated(2);
  const ReaderPtr replicas[] = {joined(*stream, 1), joined(*stream, 1, 1)};
  start(stream);
  for (std::uint64_t step = 0; step < kSlots; ++step) {
    (void)replicas[step % 2]->read(*stream, step);
    replicas[(step + 1) % 2]->pass(*stream, step);
  }
  EXPECT_EQ(replicas[0]->poll(*stream, kSlots), std::nullopt);
  EXPECT_EQ(replicas[1]->poll(*stream, kSlots), std::nullopt);
  EXPECT_THAT(stream->waits_for(replicas[0]->holder()), HasSubstr("hold different batches"));
}

TEST_F(StreamTest, KeepsThePlaceOfAReplicaThatWasKilled) {
  const auto stream = make_replicated(2);
  const auto stays = joined(*stream, 1);
  const auto killed = joined(*stream, 1, 1);
  start(stream);
  killed->pass(*stream, 0);
  stream->leave(killed->holder(), true);
  expect_steps(*stream, {stays}, 0, 1 + kSlots);
  EXPECT_EQ(stays->poll(*stream, 1 + kSlots), std::nullopt);
  EXPECT_THAT(stream->waits_for(stays->holder()), HasSubstr("replica 1 of shard 0 has not come"));
  const auto back = reader(1);
  EXPECT_EQ(stream->offers(terms(back, 0, 1)), 1U) << "step 0 is to be made again";
  ASSERT_TRUE(join(*stream, back, 1, 1));
  for (std::uint64_t step = 1; step < 9; ++step) {
    EXPECT_EQ(back->pass(*stream, step), rows_of(step));
    if (step <= kSlots) continue;
    EXPECT_EQ(stays->pass(*stream, step), rows_of(step));
  }
}

TEST_F(StreamTest, GoesOnWithoutAKilledReplicaWhenThatIsWanted) {
  const auto stream = make_replicated(2, AbsentReplica::kGoOn);
  const auto stays = joined(*stream, 1);
  const auto killed = joined(*stream, 1, 1);
  start(stream);
  stream->leave(killed->holder(), true);
  expect_steps(*stream, {stays}, 0, kSteps);
}

TEST_F(StreamTest, DoesNotWaitForAReplicaThatWasDismissed) {
  const auto stream = make_replicated(2);
  const auto stays = joined(*stream, 1);
  start(stream);
  settle(*stream);
  stream->dismiss(2, 1);  // another job's
  expect_steps(*stream, {stays}, 0, kSlots);
  EXPECT_EQ(stays->poll(*stream, kSlots), std::nullopt);
  stream->dismiss(1, 0);  // is here
  EXPECT_EQ(stays->poll(*stream, kSlots), std::nullopt);
  stream->dismiss(1, 1);
  expect_steps(*stream, {stays}, kSlots, kSteps);
}

TEST_F(StreamTest, DoesNotWaitForOneWhosePlaceAnotherProcessHasTaken) {
  const auto stream = make_replicated(2);
  const auto stays = joined(*stream, 1);
  const auto killed = joined(*stream, 1, 1);
  start(stream);
  const auto successor = joined(*stream, 1, 1);
  stream->leave(killed->holder(), true);
  expect_steps(*stream, {stays, successor}, 0, kSteps);
}

TEST_F(StreamTest, EndsWhenNobodyIsLeftButThoseWhoAreAway) {
  const auto stream = make_replicated(3);
  const auto only = joined(*stream, 1);
  start(stream);
  settle(*stream);
  stream->leave(only->holder(), true);
  EXPECT_TRUE(stream->ended());
  expect_idle(stream->pool());
}

TEST_F(StreamTest, IsNotForReplicasOfAnotherJob) {
  const auto stream = make_replicated(2);
  const auto only = joined(*stream, 1);
  const auto stranger = reader(2);
  EXPECT_EQ(stream->offers(terms(stranger, 0, 1)), std::nullopt);
}

}  // namespace
}  // namespace spdld::stream
