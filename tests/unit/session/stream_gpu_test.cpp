// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "session/stream.h"
#include "tests/unit/session/gpu_fixture.h"

namespace spdld::session {
namespace {

using testing::GpuReaderPtr;
using testing::kDeviceSlots;
using testing::kHostSlots;
using testing::kMainMemory;
using testing::kRows;

using StreamGpuTest = testing::GpuFixture;

TEST_F(StreamGpuTest, ReaderIsGivenTheValuesOnItsGpu) {
  const auto stream = make();
  const auto only = joined(*stream, gpu_);
  produce(*stream, 2);
  EXPECT_FALSE(poll(*stream, only, 0)) << "it is not there yet";
  EXPECT_EQ(stream->ready_for(only->holder()), 0U);
  const std::uint64_t told = only->told();
  gpu_->settle();
  EXPECT_GT(only->told(), told);
  EXPECT_EQ(stream->ready_for(only->holder()), 2U);
  const auto batch = take(*stream, only, 0);
  EXPECT_TRUE(batch.on_gpu());
  only->release(batch);
  pass(*stream, only, 1);
  stream->leave(only->holder());
}

TEST_F(StreamGpuTest, SlotInMainMemoryIsHeldWhileItIsCopiedAndFreeAfterwards) {
  const auto stream = make();
  const auto only = joined(*stream, gpu_);
  produce(*stream, 1);
  EXPECT_EQ(full_slots(*stream), 1U);
  ASSERT_TRUE(gpu_->complete());
  EXPECT_EQ(full_slots(*stream), 0U);
  pass(*stream, only, 0);
  stream->leave(only->holder());
}

TEST_F(StreamGpuTest, ReadersOnOneGpuShareOneCopy) {
  const auto stream = make();
  const auto first = joined(*stream, gpu_);
  const auto second = joined(*stream, gpu_, 2);
  produce(*stream, 1);
  gpu_->settle();
  EXPECT_EQ(gpu_->begun(), 1U);
  const auto one = take(*stream, first, 0);
  const auto other = take(*stream, second, 0);
  EXPECT_EQ(one.found.device, other.found.device);
  first->release(one);
  EXPECT_EQ(free_slots(*one.pool), kDeviceSlots - 1) << "the other still reads it";
  second->release(other);
  EXPECT_EQ(free_slots(*one.pool), kDeviceSlots);
  stream->leave(first->holder());
  stream->leave(second->holder());
}

TEST_F(StreamGpuTest, TwoGpusAreEachGivenACopyOfOneDecode) {
  const auto stream = make();
  const auto here = joined(*stream, gpu_);
  const auto there = joined(*stream, other_gpu_, 2);
  produce(*stream, 1);
  gpu_->settle();
  pass(*stream, here, 0);
  EXPECT_FALSE(poll(*stream, there, 0));
  EXPECT_EQ(full_slots(*stream), 1U) << "the other GPU still copies it";
  other_gpu_->settle();
  EXPECT_EQ(full_slots(*stream), 0U);
  pass(*stream, there, 0);
  stream->leave(here->holder());
  stream->leave(there->holder());
}

TEST_F(StreamGpuTest, ReaderInMainMemoryAndOneOnAGpuShareADecode) {
  const auto stream = make();
  const auto host = joined(*stream, kMainMemory);
  const auto gpu = joined(*stream, gpu_, 2);
  produce(*stream, 2);
  const auto held = take(*stream, host, 0);
  EXPECT_FALSE(held.on_gpu());
  gpu_->settle();
  pass(*stream, gpu, 0);
  EXPECT_EQ(full_slots(*stream), 2U) << "one leased, one to be read in main memory";
  host->release(held);
  pass(*stream, host, 1);
  pass(*stream, gpu, 1);
  EXPECT_EQ(full_slots(*stream), 0U);
  stream->leave(host->holder());
  stream->leave(gpu->holder());
}

TEST_F(StreamGpuTest, CopiesBeginInTheOrderOfStepsThoughBatchesDoNotEndInIt) {
  const auto stream = make();
  const auto only = joined(*stream, gpu_);
  const auto first = begin(*stream);
  const auto second = begin(*stream);
  ASSERT_TRUE(first && second);
  finish(*stream, *second);
  EXPECT_EQ(gpu_->begun(), 0U) << "its slot could be the last one";
  finish(*stream, *first);
  EXPECT_EQ(gpu_->begun(), 2U);
  ASSERT_TRUE(gpu_->complete());
  pass(*stream, only, 0);
  EXPECT_FALSE(poll(*stream, only, 1));
  ASSERT_TRUE(gpu_->complete());
  pass(*stream, only, 1);
  stream->leave(only->holder());
}

TEST_F(StreamGpuTest, CopyBeginsWhenASlotOnTheGpuIsReleased) {
  const auto stream = make();
  const auto only = joined(*stream, gpu_);
  produce(*stream, kDeviceSlots + 1);
  EXPECT_EQ(gpu_->begun(), kDeviceSlots);
  gpu_->settle();
  const auto held = take(*stream, only, 0);
  EXPECT_EQ(gpu_->begun(), kDeviceSlots);
  only->release(held);
  gpu_->settle();
  EXPECT_EQ(gpu_->begun(), kDeviceSlots + 1);
  for (std::uint64_t step = 1; step <= kDeviceSlots; ++step) pass(*stream, only, step);
  stream->leave(only->holder());
}

TEST_F(StreamGpuTest, ReaderThatLeavesGivesBackWhatWasReadyCopiedAndUnderWay) {
  const auto stream = make();
  const auto leaves = joined(*stream, gpu_);
  const auto stays = joined(*stream, other_gpu_, 2);
  produce(*stream, kHostSlots);  // one more than slots on a GPU
  ASSERT_TRUE(gpu_->complete());
  const auto pool = stream->pool_of(leaves->holder());
  stream->leave(leaves->holder());
  EXPECT_EQ(gpu_->under_way(), kDeviceSlots - 1);
  settle();
  EXPECT_EQ(free_slots(*pool), kDeviceSlots);
  for (std::uint64_t step = 0; step < kHostSlots; ++step) {
    pass(*stream, stays, step);
    settle();
  }
  EXPECT_EQ(full_slots(*stream), 0U);
  stream->leave(stays->holder());
}

TEST_F(StreamGpuTest, CopyThatWaitsForItsTurnIsNotMadeForAReaderThatLeft) {
  const auto stream = make();
  const auto leaves = joined(*stream, gpu_);
  const auto stays = joined(*stream, other_gpu_, 2);
  produce(*stream, kDeviceSlots);
  stream->leave(leaves->holder());
  settle();
  EXPECT_EQ(gpu_->unwanted(), kDeviceSlots);
  EXPECT_EQ(gpu_->bytes(), 0U);
  EXPECT_EQ(other_gpu_->unwanted(), 0U);
  for (std::uint64_t step = 0; step < kDeviceSlots; ++step) pass(*stream, stays, step);
  EXPECT_EQ(full_slots(*stream), 0U);
  stream->leave(stays->holder());
}

TEST_F(StreamGpuTest, CopyIsMadeForAReaderThatComesBeforeItsTurn) {
  const auto stream = make();
  const auto leaves = joined(*stream, gpu_);
  produce(*stream, kDeviceSlots);
  const auto comes = joined(*stream, gpu_, 2);
  stream->leave(leaves->holder());
  settle();
  EXPECT_EQ(gpu_->unwanted(), 0U);
  for (std::uint64_t step = 0; step < kDeviceSlots; ++step) pass(*stream, comes, step);
  stream->leave(comes->holder());
}

TEST_F(StreamGpuTest, OthersNeedNotWaitForWhatAReaderThatLeftNeededFirst) {
  const auto stream = make();
  const auto slow = joined(*stream, gpu_);
  const auto fast = joined(*stream, gpu_, 2);
  const auto first = begin(*stream);
  const auto second = begin(*stream);
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(stream->jump(fast->holder(), {0, 1}));
  finish(*stream, *second);
  EXPECT_EQ(gpu_->begun(), 0U) << "step 0 is to be copied before";
  stream->leave(slow->holder());
  gpu_->settle();
  pass(*stream, fast, 1);
  finish(*stream, *first);  // nobody wants it
  EXPECT_EQ(full_slots(*stream), 0U);
  stream->leave(fast->holder());
}

TEST_F(StreamGpuTest, CopyOfWhatAReaderJumpsToBeginsAtOnce) {
  const auto stream = make();
  const auto only = joined(*stream, gpu_);
  const auto first = begin(*stream);
  const auto second = begin(*stream);
  ASSERT_TRUE(first && second);
  finish(*stream, *second);
  EXPECT_EQ(gpu_->begun(), 0U);
  ASSERT_TRUE(stream->jump(only->holder(), {0, 1}));
  EXPECT_EQ(gpu_->begun(), 1U);
  finish(*stream, *first);
  gpu_->settle();
  pass(*stream, only, 1);
  stream->leave(only->holder());
}

TEST_F(StreamGpuTest, CopyOfWhatAReaderPassesOnToBeginsAtOnce) {
  const auto stream = make();
  const auto only = joined(*stream, gpu_);
  const auto first = begin(*stream);
  const auto second = begin(*stream);
  ASSERT_TRUE(first && second);
  finish(*stream, *second);
  EXPECT_FALSE(poll(*stream, only, 1)) << "it asks for nothing before any more";
  EXPECT_EQ(gpu_->begun(), 1U);
  finish(*stream, *first);
  gpu_->settle();
  pass(*stream, only, 1);
  stream->leave(only->holder());
}

TEST_F(StreamGpuTest, CopiesOfWhatAReaderIsGivenBesidesBeginAtOnce) {
  const auto stream = make();
  const auto host = joined(*stream, kMainMemory);
  const auto other = joined_until({0, 1}, *stream, gpu_, 2);
  produce(*stream, 3);
  EXPECT_EQ(gpu_->begun(), 1U);
  ASSERT_TRUE(stream->set_until(other->holder(), {0, 3}));
  EXPECT_EQ(gpu_->begun(), 3U);
  gpu_->settle();
  for (std::uint64_t step = 0; step < 3; ++step) {
    pass(*stream, host, step);
    pass(*stream, other, step);
  }
  stream->leave(host->holder());
  stream->leave(other->holder());
}

TEST_F(StreamGpuTest, ReaderJumpsOverWhatIsReadyCopiedAndUnderWay) {
  const auto stream = make();
  const auto only = joined(*stream, gpu_);
  produce(*stream, kHostSlots);
  ASSERT_TRUE(gpu_->complete());  // 0 is there, 1 and 2 are on their way, 3 is ready
  ASSERT_TRUE(stream->jump(only->holder(), {0, kHostSlots - 1}));
  gpu_->settle();
  pass(*stream, only, kHostSlots - 1);
  gpu_->settle();
  EXPECT_EQ(free_slots(*stream->pool_of(only->holder())), kDeviceSlots);
  EXPECT_EQ(full_slots(*stream), 0U);
  stream->leave(only->holder());
}

TEST_F(StreamGpuTest, ReaderThatEndsEarlierGivesBackWhatItDoesNotNeed) {
  const auto stream = make();
  const auto only = joined(*stream, gpu_);
  produce(*stream, kHostSlots);
  ASSERT_TRUE(gpu_->complete());
  ASSERT_TRUE(gpu_->complete());
  ASSERT_TRUE(stream->set_until(only->holder(), {0, 1}));
  gpu_->settle();
  EXPECT_EQ(full_slots(*stream), 0U);
  EXPECT_EQ(free_slots(*stream->pool_of(only->holder())), kDeviceSlots - 1);
  pass(*stream, only, 0);
  EXPECT_FALSE(stream->set_until(only->holder(), {0, 9})) << "steps 1 to 3 are gone";
  stream->leave(only->holder());
}

TEST_F(StreamGpuTest, ReaderThatEndsLaterGetsWhatIsStillThereForOthers) {
  const auto stream = make();
  const auto longer = joined(*stream, gpu_);
  const auto other = joined_until({0, 1}, *stream, gpu_, 2);
  produce(*stream, 3);
  gpu_->settle();
  ASSERT_TRUE(stream->set_until(other->holder(), {0, 3}));
  for (std::uint64_t step = 0; step < 3; ++step) {
    pass(*stream, longer, step);
    pass(*stream, other, step);
  }
  stream->leave(longer->holder());
  stream->leave(other->holder());
}

TEST_F(StreamGpuTest, StreamEndsWhileItsLastBatchesAreCopied) {
  const auto stream = make();
  const auto only = joined(*stream, gpu_);
  produce(*stream, 2);
  const auto pool = stream->pool();
  const auto on_gpu = stream->pool_of(only->holder());
  stream->leave(only->holder());
  EXPECT_TRUE(stream->ended());
  EXPECT_EQ(full_slots(*stream), 2U) << "the GPU reads them";
  gpu_->settle();
  EXPECT_TRUE(pool->slots().idle());
  EXPECT_TRUE(on_gpu->slots().idle());
}

TEST_F(StreamGpuTest, NextStreamOfASlotPoolDoesNotMeetCopiesOfTheLastOne) {
  const auto first = make();
  const auto reads = joined(*first, gpu_);
  produce(*first, 2);
  const auto on_gpu = first->pool_of(reads->holder());
  first->leave(reads->holder());
  const StepAt from{0, 7};
  const auto second = make(
      StreamOptions{.timeline = Timeline(phase(), 1), .from = from, .maker = 1}, first->pool());
  const auto again = reader();
  ASSERT_TRUE(second->join(again, terms(*second, again, gpu_, from), from));
  EXPECT_EQ(second->pool_of(again->holder()), on_gpu);
  EXPECT_EQ(gpu_->allocations(), 1);
  EXPECT_EQ(produce(*second, 4), 2U) << "the others are copied for nobody";
  EXPECT_EQ(gpu_->under_way(), kDeviceSlots) << "the last one waits for a slot";
  gpu_->settle();
  pass(*second, again, 7);
  pass(*second, again, 8);
  EXPECT_EQ(produce(*second, 2), 2U);
  gpu_->settle();
  pass(*second, again, 9);
  second->leave(again->holder());
}

TEST_F(StreamGpuTest, LateReaderOnAnotherGpuBeginsBehindWhatLiesOnTheFirstAlone) {
  const auto stream = make();
  const auto first = joined(*stream, gpu_);
  produce(*stream, 2);
  gpu_->settle();
  produce(*stream, 1);  // on its way, and still in main memory
  const auto late = reader(2);
  EXPECT_EQ(stream->offers(terms(*stream, late, other_gpu_)), (StepAt{0, 2}));
  EXPECT_EQ(stream->offers(terms(*stream, late, kMainMemory)), (StepAt{0, 2}));
  EXPECT_EQ(stream->offers(terms(*stream, late, gpu_)), (StepAt{0, 0}));
  EXPECT_FALSE(stream->join(late, terms(*stream, late, other_gpu_), {0, 1}));
  ASSERT_EQ(stream->join(late, terms(*stream, late, other_gpu_), {0, 5}), (StepAt{0, 2}));
  settle();
  pass(*stream, late, 2);
  for (std::uint64_t step = 0; step < 3; ++step) pass(*stream, first, step);
  stream->leave(first->holder());
  stream->leave(late->holder());
}

TEST_F(StreamGpuTest, LateReaderOnTheSameGpuReadsWhatWasCopiedForOthers) {
  const auto stream = make();
  const auto first = joined(*stream, gpu_);
  const auto host = joined(*stream, kMainMemory, 2);
  produce(*stream, 2);
  gpu_->settle();
  pass(*stream, first, 0);  // which has no slot there any more
  const auto late = joined(*stream, gpu_, 3, 0, 1);
  gpu_->settle();
  pass(*stream, late, 1);
  pass(*stream, first, 1);
  pass(*stream, host, 0);
  pass(*stream, host, 1);
  for (const GpuReaderPtr& one : {first, host, late}) stream->leave(one->holder());
}

TEST_F(StreamGpuTest, BatchThatOneReaderOnAGpuHasReadIsCopiedOnceMoreForAnother) {
  const auto stream = make();
  const auto host = joined(*stream, kMainMemory, 2);
  const auto first = joined(*stream, gpu_);
  produce(*stream, 1);
  gpu_->settle();
  const auto held = take(*stream, first, 0);
  const auto late = joined(*stream, gpu_, 3);
  gpu_->settle();
  const auto again = take(*stream, late, 0);
  EXPECT_NE(again.found.device, held.found.device);
  first->release(held);
  late->release(again);
  pass(*stream, host, 0);
  for (const GpuReaderPtr& one : {first, host, late}) stream->leave(one->holder());
}

// Steps 0 to 2 are kept in main memory for the slow one; the slots on the GPU have later steps.
TEST_F(StreamGpuTest, WhoComesLateBeginsBehindWhatLaterStepsLeaveNoSlotsFor) {
  const auto stream = make(1, AbsentReplica::kWait, 2 * kDeviceSlots);
  const auto slow = joined(*stream, kMainMemory);
  const auto first = joined(*stream, gpu_);
  produce(*stream, 2 * kDeviceSlots);
  gpu_->settle();
  for (std::uint64_t step = 0; step < kDeviceSlots; ++step) pass(*stream, first, step);
  gpu_->settle();
  const auto late = reader();
  EXPECT_EQ(stream->offers(terms(*stream, late, other_gpu_)), (StepAt{0, 0}));
  EXPECT_EQ(stream->offers(terms(*stream, late, gpu_)), (StepAt{0, kDeviceSlots}));
  ASSERT_TRUE(stream->join(late, terms(*stream, late, gpu_), {0, kDeviceSlots}));
  for (std::uint64_t step = 0; step < kDeviceSlots; ++step) pass(*stream, slow, step);
  for (std::uint64_t step = kDeviceSlots; step < 2 * kDeviceSlots; ++step) {
    for (const GpuReaderPtr& one : {slow, first, late}) pass(*stream, one, step);
  }
  EXPECT_EQ(full_slots(*stream), 0U);
  for (const GpuReaderPtr& one : {slow, first, late}) stream->leave(one->holder());
}

TEST_F(StreamGpuTest, FailedCopyEndsTheReadersOfThatGpuAlone) {
  const auto stream = make();
  const auto lost = joined(*stream, gpu_);
  const auto also = joined(*stream, gpu_, 2);
  const auto elsewhere = joined(*stream, other_gpu_, 3);
  const auto host = joined(*stream, kMainMemory, 4);
  produce(*stream, 2);
  const auto pool = stream->pool_of(lost->holder());
  ASSERT_TRUE(gpu_->complete(Status(Code::kUnavailable, "GPU-1 has fallen off the bus")));
  EXPECT_EQ(gpu_->begun(), 2U) << "nothing further is begun there";
  for (const GpuReaderPtr& one : {lost, also}) {
    ASSERT_TRUE(one->failure());
    EXPECT_EQ(one->failure()->message(), "GPU-1 has fallen off the bus");
    EXPECT_FALSE(poll(*stream, one, 0));
  }
  settle();
  EXPECT_TRUE(pool->slots().idle());
  for (const GpuReaderPtr& one : {elsewhere, host}) {
    EXPECT_FALSE(one->failure());
    pass(*stream, one, 0);
    pass(*stream, one, 1);
    stream->leave(one->holder());
  }
}

TEST_F(StreamGpuTest, GpuIsLetGoOfWithItsLastReaderThoughOthersReadOn) {
  const auto stream = make();
  const auto stays = joined(*stream, gpu_);
  const auto leaves = joined(*stream, other_gpu_, 2);
  produce(*stream, 2);
  settle();
  std::optional held = take(*stream, leaves, 0);
  stream->leave(leaves->holder());
  settle();
  EXPECT_GT(other_gpu_.use_count(), 1) << "it still holds a batch there";
  leaves->release(*held);
  held.reset();
  settle();
  EXPECT_EQ(other_gpu_->pinned(), 0U);
  EXPECT_EQ(other_gpu_.use_count(), 1);
  pass(*stream, stays, 0);
  produce(*stream, 1);
  settle();
  pass(*stream, stays, 1);
  pass(*stream, stays, 2);
  stream->leave(stays->holder());
}

// After a seek to another plan's batches, say.
TEST_F(StreamGpuTest, SlotsStayRegisteredForTheGpuUntilTheLastOfItsPoolsHasGone) {
  const auto stream = make();
  auto first = slots_on(*stream, gpu_);
  std::vector<wire::FieldLayout> fields(plan_->layout.fields().begin(),
                                        plan_->layout.fields().end());
  fields[0].capacity_bytes *= 2;
  const delivery::DeviceLayout other(fields, kRows);
  ASSERT_EQ(other.host_bytes(), stream->device_layout().host_bytes());
  auto second = stream->pool()->on(gpu_, other, 1);
  ASSERT_TRUE(second) << second.error().message();
  ASSERT_NE(*second, first);
  EXPECT_EQ(gpu_->pinned(), 1U);
  first.reset();
  settle();
  EXPECT_EQ(gpu_->pinned(), 1U);
  second->reset();
  settle();
  EXPECT_EQ(gpu_->pinned(), 0U);
  EXPECT_EQ(gpu_.use_count(), 1);
}

TEST_F(StreamGpuTest, SlowReaderKeepsAFastOneOnItsGpuWaitingAndIsSaidTo) {
  const auto stream = make();
  const auto slow = joined(*stream, gpu_);
  const auto fast = joined(*stream, gpu_, 2);
  for (std::uint64_t step = 0; step < kDeviceSlots; ++step) {
    produce(*stream, 1);
    gpu_->settle();
    pass(*stream, fast, step);
  }
  produce(*stream, kHostSlots);
  (void)stream->held_up();
  EXPECT_FALSE(poll(*stream, fast, kDeviceSlots));
  clock_.advance(std::chrono::seconds(1));
  const auto held_up = stream->held_up();
  ASSERT_EQ(held_up.size(), 1U);
  EXPECT_EQ(held_up.front(), fast);
  // It goes on as soon as the other one does.
  pass(*stream, slow, 0);
  gpu_->settle();
  pass(*stream, fast, kDeviceSlots);
  stream->leave(slow->holder());
  stream->leave(fast->holder());
}

TEST_F(StreamGpuTest, CopiesThatAreLateHoldNobodyUp) {
  const auto stream = make();
  const auto one = joined(*stream, gpu_);
  const auto other = joined(*stream, gpu_, 2);
  produce(*stream, kHostSlots);
  (void)stream->held_up();
  EXPECT_FALSE(poll(*stream, one, 0));
  EXPECT_FALSE(poll(*stream, other, 0));
  EXPECT_EQ(produce(*stream, 1), 0U) << "all slots wait for the GPU";
  clock_.advance(std::chrono::seconds(1));
  EXPECT_TRUE(stream->held_up().empty()) << "streams of their own would wait for it as well";
  stream->leave(one->holder());
  stream->leave(other->holder());
}

TEST_F(StreamGpuTest, WhatAReaderHoldsOutlivesItsStream) {
  auto stream = make();
  const auto only = joined(*stream, gpu_);
  produce(*stream, 1);
  gpu_->settle();
  const auto held = take(*stream, only, 0);
  stream->leave(only->holder());
  stream = nullptr;
  settle();
  EXPECT_GT(gpu_->bytes(), 0U);
  only->release(held);
}

TEST_F(StreamGpuTest, ReaderGoesBackOnlyToWhatItDoesNotHold) {
  const auto stream = make();
  const auto slow = joined(*stream, gpu_, 2);
  const auto back = joined(*stream, gpu_);
  produce(*stream, 2);
  gpu_->settle();
  const auto held = take(*stream, back, 0);
  stream->leave(back->holder());
  EXPECT_EQ(stream->offers(terms(*stream, back, gpu_)), (StepAt{0, 1}));
  back->release(held);
  EXPECT_EQ(stream->offers(terms(*stream, back, gpu_)), (StepAt{0, 0}));
  ASSERT_TRUE(stream->join(back, terms(*stream, back, gpu_), {}));
  pass(*stream, back, 0);
  stream->leave(back->holder());
  stream->leave(slow->holder());
}

}  // namespace
}  // namespace spdld::session
