// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/session/stream_fixture.h"

namespace spdld::session {
namespace {

using ::testing::HasSubstr;
using testing::kSteps;
using testing::ReaderPtr;
using testing::rows_of;

TEST_F(StreamTest, KeepsBatchesForReplicasThatHaveNotCome) {
  const auto stream = make_replicated(3);
  const auto first = reader(1);
  ASSERT_TRUE(join(*stream, first));
  start(stream);
  for (std::uint64_t step = 0; step < kSlots; ++step) first->pass(*stream, {0, step});
  EXPECT_EQ(first->poll(*stream, {0, kSlots}), std::nullopt);
  EXPECT_THAT(stream->waits_for(first->holder()), HasSubstr("replica 1 of shard 0 has not come"));
  const auto second = reader(1);
  const auto third = reader(1);
  ASSERT_TRUE(join(*stream, second, {}, 1));
  ASSERT_TRUE(join(*stream, third, {}, 2));
  for (std::uint64_t step = 0; step < kSlots; ++step) {
    EXPECT_EQ(second->pass(*stream, {0, step}), rows_of(step));
    EXPECT_EQ(third->pass(*stream, {0, step}), rows_of(step));
  }
  EXPECT_EQ(first->pass(*stream, {0, kSlots}), rows_of(kSlots));
}

TEST_F(StreamTest, SaysWhichReplicaLagsOnlyOnceThatStopsTheOthers) {
  const auto stream = make_replicated(2);
  const auto fast = reader(1);
  const auto slow = reader(1);
  ASSERT_TRUE(join(*stream, fast));
  ASSERT_TRUE(join(*stream, slow, {}, 1));
  start(stream);
  settle(*stream);
  EXPECT_EQ(stream->waits_for(fast->holder()), "");
  slow->pass(*stream, {0, 0});
  for (std::uint64_t step = 0; step < kSlots + 1; ++step) fast->pass(*stream, {0, step});
  EXPECT_EQ(fast->poll(*stream, {0, kSlots + 1}), std::nullopt);
  EXPECT_THAT(stream->waits_for(fast->holder()),
              HasSubstr("replica 1 of shard 0 is still at epoch 0, step 1"));
  EXPECT_EQ(stream->waits_for(slow->holder()), "");
}

TEST_F(StreamTest, SaysThatReplicasHoldAllSlotsBetweenThem) {
  const auto stream = make_replicated(2);
  const ReaderPtr replicas[] = {reader(1), reader(1)};
  ASSERT_TRUE(join(*stream, replicas[0]));
  ASSERT_TRUE(join(*stream, replicas[1], {}, 1));
  start(stream);
  for (std::uint64_t step = 0; step < kSlots; ++step) {
    (void)replicas[step % 2]->read(*stream, {0, step});
    replicas[(step + 1) % 2]->pass(*stream, {0, step});
  }
  EXPECT_EQ(replicas[0]->poll(*stream, {0, kSlots}), std::nullopt);
  EXPECT_EQ(replicas[1]->poll(*stream, {0, kSlots}), std::nullopt);
  EXPECT_THAT(stream->waits_for(replicas[0]->holder()), HasSubstr("hold different batches"));
}

TEST_F(StreamTest, KeepsThePlaceOfAReplicaThatWasKilled) {
  const auto stream = make_replicated(2);
  const auto stays = reader(1);
  const auto killed = reader(1);
  ASSERT_TRUE(join(*stream, stays));
  ASSERT_TRUE(join(*stream, killed, {}, 1));
  start(stream);
  killed->pass(*stream, {0, 0});
  stream->leave(killed->holder(), true);
  for (std::uint64_t step = 0; step < 1 + kSlots; ++step) stays->pass(*stream, {0, step});
  EXPECT_EQ(stays->poll(*stream, {0, 1 + kSlots}), std::nullopt);
  EXPECT_THAT(stream->waits_for(stays->holder()), HasSubstr("replica 1 of shard 0 has not come"));
  const auto back = reader(1);
  EXPECT_EQ(stream->offers(terms(back, {}, 1)), (StepAt{0, 1})) << "step 0 is to be made again";
  ASSERT_TRUE(join(*stream, back, {0, 1}, 1));
  for (std::uint64_t step = 1; step < 9; ++step) {
    EXPECT_EQ(back->pass(*stream, {0, step}), rows_of(step));
    if (step <= kSlots) continue;
    EXPECT_EQ(stays->pass(*stream, {0, step}), rows_of(step));
  }
}

TEST_F(StreamTest, GoesOnWithoutAKilledReplicaWhenThatIsWanted) {
  const auto stream = make_replicated(2, AbsentReplica::kGoOn);
  const auto stays = reader(1);
  const auto killed = reader(1);
  ASSERT_TRUE(join(*stream, stays));
  ASSERT_TRUE(join(*stream, killed, {}, 1));
  start(stream);
  stream->leave(killed->holder(), true);
  for (std::uint64_t step = 0; step < kSteps; ++step) stays->pass(*stream, {0, step});
}

TEST_F(StreamTest, DoesNotWaitForAReplicaThatWasDismissed) {
  const auto stream = make_replicated(2);
  const auto stays = reader(1);
  ASSERT_TRUE(join(*stream, stays));
  start(stream);
  settle(*stream);
  stream->dismiss(2, 1);  // another job's
  for (std::uint64_t step = 0; step < kSlots; ++step) stays->pass(*stream, {0, step});
  EXPECT_EQ(stays->poll(*stream, {0, kSlots}), std::nullopt);
  stream->dismiss(1, 0);  // is here
  EXPECT_EQ(stays->poll(*stream, {0, kSlots}), std::nullopt);
  stream->dismiss(1, 1);
  for (std::uint64_t step = kSlots; step < kSteps; ++step) stays->pass(*stream, {0, step});
}

TEST_F(StreamTest, DoesNotWaitForOneWhosePlaceAnotherProcessHasTaken) {
  const auto stream = make_replicated(2);
  const auto stays = reader(1);
  const auto killed = reader(1);
  const auto successor = reader(1);
  ASSERT_TRUE(join(*stream, stays));
  ASSERT_TRUE(join(*stream, killed, {}, 1));
  start(stream);
  ASSERT_TRUE(join(*stream, successor, {}, 1));
  stream->leave(killed->holder(), true);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    stays->pass(*stream, {0, step});
    successor->pass(*stream, {0, step});
  }
}

TEST_F(StreamTest, EndsWhenNobodyIsLeftButThoseWhoAreAway) {
  const auto stream = make_replicated(3);
  const auto only = reader(1);
  ASSERT_TRUE(join(*stream, only));
  start(stream);
  settle(*stream);
  stream->leave(only->holder(), true);
  EXPECT_TRUE(stream->ended());
  expect_idle(stream->pool());
}

TEST_F(StreamTest, IsNotForReplicasOfAnotherJob) {
  const auto stream = make_replicated(2);
  const auto only = reader(1);
  const auto stranger = reader(2);
  ASSERT_TRUE(join(*stream, only));
  EXPECT_EQ(stream->offers(terms(stranger, {}, 1)), std::nullopt);
}

}  // namespace
}  // namespace spdld::session
