// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stream/stream.h"
#include "tests/unit/stream/gpu_fixture.h"

namespace spdld::stream {
namespace {

using testing::GpuReaderPtr;
using testing::HandGpuPtr;
using ::testing::HasSubstr;
using testing::kDeviceSlots;
using testing::kHostSlots;
using testing::kMainMemory;

using StreamGpuReplicasTest = testing::GpuFixture;

// Of replicas of a shard, on GPUs and in main memory.
TEST_F(StreamGpuReplicasTest, OthersNeedNotWaitForWhatADismissedReplicaNeededFirst) {
  const auto stream = make(2);
  const auto stays = joined(*stream, gpu_, 1, 0);
  const auto away = joined(*stream, gpu_, 1, 1);
  const auto first = begin(*stream);
  const auto second = begin(*stream);
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(stream->jump(stays->holder(), 1, 0));
  stream->leave(away->holder(), true);
  finish(*stream, *second);
  EXPECT_EQ(gpu_->begun(), 0U);
  stream->dismiss(1, 1);
  gpu_->settle();
  pass(*stream, stays, 1);
  finish(*stream, *first);
  stream->leave(stays->holder());
}

TEST_F(StreamGpuReplicasTest, SlotsOnAGpuAreKeptForAReplicaThatMayComeThere) {
  const auto stream = make(2, AbsentReplica::kWait, 2 * kDeviceSlots);
  const auto first = joined(*stream, gpu_);
  produce(*stream, 2 * kDeviceSlots);
  gpu_->settle();
  for (std::uint64_t step = 0; step < kDeviceSlots; ++step) pass(*stream, first, step);
  EXPECT_FALSE(gpu_->complete()) << "no copy has been begun";
  EXPECT_FALSE(poll(*stream, first, kDeviceSlots));
  EXPECT_THAT(stream->waits_for(first->holder()), HasSubstr("replica 1 of shard 0 has not come"));
  const auto late = joined(*stream, gpu_, 1, 1);
  for (std::uint64_t step = 0; step < kDeviceSlots; ++step) pass(*stream, late, step);
  gpu_->settle();
  for (std::uint64_t step = kDeviceSlots; step < 2 * kDeviceSlots; ++step) {
    for (const GpuReaderPtr& one : {first, late}) pass(*stream, one, step);
  }
  EXPECT_EQ(gpu_->begun(), 2 * kDeviceSlots);
  EXPECT_EQ(full_slots(*stream), 0U);
  for (const GpuReaderPtr& one : {first, late}) stream->leave(one->holder());
}

TEST_F(StreamGpuReplicasTest, SlotsOnAGpuAreFreeOnceTheReplicaHasComeElsewhere) {
  for (const HandGpuPtr& elsewhere : {other_gpu_, kMainMemory}) {
    const auto stream = make(2, AbsentReplica::kWait, 2 * kDeviceSlots);
    const auto first = joined(*stream, gpu_);
    produce(*stream, 2 * kDeviceSlots);
    gpu_->settle();
    for (std::uint64_t step = 0; step < kDeviceSlots; ++step) pass(*stream, first, step);
    const auto late = joined(*stream, elsewhere, 1, 1);
    settle();
    pass(*stream, first, kDeviceSlots);
    for (std::uint64_t step = 0; step <= kDeviceSlots; ++step) {
      pass(*stream, late, step);
      settle();
    }
    for (const GpuReaderPtr& one : {first, late}) stream->leave(one->holder());
  }
}

TEST_F(StreamGpuReplicasTest, SlotsOnAGpuAreFreeOnceTheReplicaIsNotWaitedFor) {
  const auto stream = make(2, AbsentReplica::kWait, 2 * kDeviceSlots);
  const auto first = joined(*stream, gpu_);
  produce(*stream, 2 * kDeviceSlots);
  gpu_->settle();
  for (std::uint64_t step = 0; step < kDeviceSlots; ++step) pass(*stream, first, step);
  stream->dismiss(first->job, 1);
  gpu_->settle();
  pass(*stream, first, kDeviceSlots);
  EXPECT_EQ(full_slots(*stream), 0U);
  stream->leave(first->holder());
}

TEST_F(StreamGpuReplicasTest, NothingIsKeptOnAGpuThatNobodyReadsOnForWhoMayCome) {
  const auto stream = make(3, AbsentReplica::kWait, 2 * kDeviceSlots);
  const auto stays = joined(*stream, kMainMemory);
  const auto leaves = joined(*stream, gpu_, 1, 1);
  const std::weak_ptr<SlotPool> pool = stream->pool_of(leaves->holder());
  produce(*stream, 2);
  ASSERT_TRUE(gpu_->complete());  // the other one is under way
  pass(*stream, stays, 0);
  stream->leave(leaves->holder());
  gpu_->settle();
  EXPECT_TRUE(pool.expired());
  const auto late = joined(*stream, other_gpu_, 1, 2);
  settle();
  pass(*stream, stays, 1);
  for (std::uint64_t step = 0; step < 2; ++step) pass(*stream, late, step);
  EXPECT_EQ(full_slots(*stream), 0U);
  for (const GpuReaderPtr& one : {stays, late}) stream->leave(one->holder());
}

TEST_F(StreamGpuReplicasTest, AwaitedReplicaMayComeOnAnyGpu) {
  const auto stream = make(3);
  const auto first = joined(*stream, gpu_);
  produce(*stream, 2);
  gpu_->settle();
  const auto same = joined(*stream, gpu_, 1, 1);
  const auto other = joined(*stream, other_gpu_, 1, 2);
  settle();
  for (std::uint64_t step = 0; step < 2; ++step) {
    for (const GpuReaderPtr& one : {first, same, other}) pass(*stream, one, step);
  }
  EXPECT_EQ(full_slots(*stream), 0U);
  for (const GpuReaderPtr& one : {first, same, other}) stream->leave(one->holder());
}

TEST_F(StreamGpuReplicasTest, BatchesOfAReplicaThatIsAwayStayOnItsGpu) {
  const auto stream = make(2);
  const auto stays = joined(*stream, gpu_);
  const auto killed = joined(*stream, gpu_, 1, 1);
  produce(*stream, 2);
  gpu_->settle();
  stream->leave(killed->holder(), true);
  pass(*stream, stays, 0);
  pass(*stream, stays, 1);
  EXPECT_EQ(full_slots(*stream), 0U);
  const auto back = joined(*stream, gpu_, 1, 1);
  pass(*stream, back, 0);
  pass(*stream, back, 1);
  EXPECT_EQ(gpu_->begun(), 2U);
  stream->leave(stays->holder());
  stream->leave(back->holder());
}

TEST_F(StreamGpuReplicasTest, ReplicaThatComesBackElsewhereBeginsBehindWhatItsGpuHas) {
  for (const HandGpuPtr& elsewhere : {other_gpu_, kMainMemory}) {
    const auto stream = make(2);
    const auto stays = joined(*stream, gpu_);
    const auto killed = joined(*stream, gpu_, 1, 1);
    produce(*stream, 2);
    gpu_->settle();
    stream->leave(killed->holder(), true);
    pass(*stream, stays, 0);
    const auto back = reader();
    const auto comes = terms(*stream, back, elsewhere, 0, 1);
    EXPECT_EQ(stream->offers(comes), 2U);
    ASSERT_TRUE(stream->join(back, comes, 2));
    EXPECT_EQ(full_slots(*stream), 0U);
    pass(*stream, stays, 1);
    produce(*stream, 1);
    settle();
    pass(*stream, stays, 2);
    pass(*stream, back, 2);
    stream->leave(stays->holder());
    stream->leave(back->holder());
  }
}

TEST_F(StreamGpuReplicasTest, FailedCopyEndsTheWaitForAReplicaThatIsAway) {
  const auto stream = make(2);
  const auto stays = joined(*stream, other_gpu_);
  const auto killed = joined(*stream, gpu_, 1, 1);
  produce(*stream, 1);
  stream->leave(killed->holder(), true);
  ASSERT_TRUE(gpu_->complete(Status(Code::kUnavailable, "lost")));
  settle();
  for (std::uint64_t step = 0; step < 3 * kHostSlots; ++step) {
    pass(*stream, stays, step);
    produce(*stream, 1);
    settle();
  }
  stream->leave(stays->holder());
}

TEST_F(StreamGpuReplicasTest, ReplicaIsToldWhoHasTheSlotsOnItsGpu) {
  const auto stream = make(2);
  const auto fast = joined(*stream, gpu_);
  const auto slow = joined(*stream, gpu_, 1, 1);
  for (std::uint64_t step = 0; step < kDeviceSlots; ++step) {
    produce(*stream, 1);
    gpu_->settle();
    pass(*stream, fast, step);
  }
  produce(*stream, 1);
  EXPECT_FALSE(poll(*stream, fast, kDeviceSlots));
  EXPECT_THAT(stream->waits_for(fast->holder()),
              HasSubstr("replica 1 of shard 0 is still at epoch 0, step 0"));
  EXPECT_EQ(stream->waits_for(slow->holder()), "");
  stream->leave(slow->holder());
  stream->leave(fast->holder());
}

// A swap at step 2 was prepared, replica 1 died, and the swap was given up before it came back.
TEST_F(StreamGpuReplicasTest, ReplicaThatLeftBeforeTheStreamWentOnIsGivenWhatIsLeft) {
  for (const HandGpuPtr& gpu : {kMainMemory, gpu_}) {
    const auto stream = make(2);
    const auto stays = joined(*stream, gpu);
    const auto killed = joined(*stream, gpu, 1, 1);
    for (const GpuReaderPtr& one : {stays, killed})
      ASSERT_TRUE(stream->set_until(one->holder(), 2));
    stream->leave(killed->holder(), true);
    ASSERT_TRUE(stream->set_until(stays->holder(), kNoIndex));
    for (std::uint64_t step = 0; step < 4; ++step) {
      produce(*stream, 1);
      settle();
      pass(*stream, stays, step);
    }
    const auto back = reader();
    const auto from = stream->join(back, terms(*stream, back, gpu, 0, 1), kNoIndex);
    ASSERT_EQ(from, 4U) << "steps 2 and 3 were kept for nobody";
    produce(*stream, 1);
    settle();
    pass(*stream, back, 4);
    pass(*stream, stays, 4);
    for (const GpuReaderPtr& one : {stays, back}) stream->leave(one->holder());
  }
}

TEST_F(StreamGpuReplicasTest, WhatNobodyOnAGpuHasTakenIsNotKeptThereForWhoMayCome) {
  for (const bool is_copied : {false, true}) {
    const auto stream = make(3, AbsentReplica::kWait, 2 * kDeviceSlots);
    const auto host = joined(*stream, kMainMemory, 1, 1);
    const auto first = joined(*stream, gpu_);
    produce(*stream, 2 * kDeviceSlots);
    if (is_copied) gpu_->settle();
    ASSERT_TRUE(stream->jump(first->holder(), kDeviceSlots, 0));
    gpu_->settle();
    pass(*stream, first, kDeviceSlots);
    for (const GpuReaderPtr& one : {first, host}) stream->leave(one->holder());
  }
}

// Step 0 is being made yet when replica 2 comes; the slots on its GPU have steps 1 to 3.
TEST_F(StreamGpuReplicasTest, WhoComesBeforeAStepInTheMakingBeginsBehindWhatHasNoSlots) {
  const auto stream = make(3, AbsentReplica::kWait, 2 * kDeviceSlots);
  const auto host = joined(*stream, kMainMemory, 1, 1);
  const auto first = joined(*stream, gpu_);
  const auto slow = begin(*stream);
  ASSERT_TRUE(slow);
  produce(*stream, kDeviceSlots);
  ASSERT_TRUE(stream->jump(first->holder(), 1, 0));
  gpu_->settle();
  const auto late = reader();
  const auto from = stream->join(late, terms(*stream, late, gpu_, 0, 2), kNoIndex);
  ASSERT_TRUE(from);
  finish(*stream, *slow);
  for (std::uint64_t step = 1; step <= kDeviceSlots; ++step) pass(*stream, first, step);
  pass(*stream, host, 0);
  settle();
  pass(*stream, late, *from);
  for (const GpuReaderPtr& one : {first, host, late}) stream->leave(one->holder());
}

}  // namespace
}  // namespace spdld::stream
