// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <vector>

#include "stream/stream.h"
#include "tests/unit/stream/gpu_fixture.h"

namespace spdld::stream {
namespace {

using testing::GpuReaderPtr;
using testing::HandGpuPtr;
using testing::kDeviceSlots;
using testing::kHostSlots;
using testing::kMainMemory;
using testing::kRows;

// A stream with kHostSlots slots in main memory, and its readers. Those that are still there at the
// end of a test leave it.
class StreamGpuTest : public testing::GpuFixture {
 protected:
  void SetUp() override {
    GpuFixture::SetUp();
    stream_ = make();
  }
  void TearDown() override {
    while (!readers_.empty()) leave(GpuReaderPtr(readers_.front()));
    stream_ = nullptr;
    GpuFixture::TearDown();
  }

  ReaderTerms terms(const GpuReaderPtr& reader, const HandGpuPtr& gpu, Index from = 0) const {
    return GpuFixture::terms(*stream_, reader, gpu, from);
  }
  std::optional<Index> join(const GpuReaderPtr& reader, const ReaderTerms& terms, Index latest) {
    readers_.push_back(reader);
    return stream_->join(reader, terms, latest);
  }
  GpuReaderPtr joined(const HandGpuPtr& gpu, JobTag job = 1, Index from = 0) {
    return readers_.emplace_back(GpuFixture::joined(*stream_, gpu, job, 0, from));
  }
  // In slots whose memory need not have come.
  GpuReaderPtr joined_in(const std::shared_ptr<SlotPool>& slots) {
    auto made = reader();
    ReaderTerms there = terms(made, testing::kMainMemory);
    there.on_gpu = slots;
    EXPECT_TRUE(join(made, there, 0));
    return made;
  }
  GpuReaderPtr joined_until(Index until, const HandGpuPtr& gpu, JobTag job) {
    return readers_.emplace_back(GpuFixture::joined_until(until, *stream_, gpu, job));
  }
  void leave(const GpuReaderPtr& reader) {
    stream_->leave(reader->holder());
    std::erase(readers_, reader);
  }

  std::optional<engine::BatchOrder> begin() const { return GpuFixture::begin(*stream_); }
  void finish(const engine::BatchOrder& order) const { GpuFixture::finish(*stream_, order); }
  std::uint64_t produce(std::uint64_t count) const { return GpuFixture::produce(*stream_, count); }
  std::optional<testing::GpuReader::Batch> poll(const GpuReaderPtr& reader,
                                                std::uint64_t step) const {
    return GpuFixture::poll(*stream_, reader, step);
  }
  testing::GpuReader::Batch take(const GpuReaderPtr& reader, std::uint64_t step) const {
    return GpuFixture::take(*stream_, reader, step);
  }
  // All of these read steps [from, until), each step before the next.
  void pass(std::initializer_list<GpuReaderPtr> readers, std::uint64_t from,
            std::uint64_t until) const {
    for (std::uint64_t step = from; step < until; ++step) {
      for (const GpuReaderPtr& reader : readers) GpuFixture::pass(*stream_, reader, step);
    }
  }
  void pass(const GpuReaderPtr& reader, std::uint64_t step) const {
    pass({reader}, step, step + 1);
  }
  std::uint32_t full_slots() const { return GpuFixture::full_slots(*stream_); }

  StreamPtr stream_;

 private:
  std::vector<GpuReaderPtr> readers_;
};

TEST_F(StreamGpuTest, ReaderIsGivenTheValuesOnItsGpu) {
  const auto only = joined(gpu_);
  produce(2);
  EXPECT_FALSE(poll(only, 0)) << "it is not there yet";
  EXPECT_EQ(stream_->readable(only->holder()).batches, 0U);
  const std::uint64_t told = only->told();
  gpu_->settle();
  EXPECT_GT(only->told(), told);
  EXPECT_EQ(stream_->readable(only->holder()).batches, 2U);
  const auto batch = take(only, 0);
  EXPECT_TRUE(batch.on_gpu());
  only->release(batch);
  pass(only, 1);
}

TEST_F(StreamGpuTest, SlotInMainMemoryIsHeldWhileItIsCopiedAndFreeAfterwards) {
  const auto only = joined(gpu_);
  produce(1);
  EXPECT_EQ(full_slots(), 1U);
  ASSERT_TRUE(gpu_->complete());
  EXPECT_EQ(full_slots(), 0U);
  pass(only, 0);
}

TEST_F(StreamGpuTest, ReadersOnOneGpuShareOneCopy) {
  const auto first = joined(gpu_);
  const auto second = joined(gpu_, 2);
  produce(1);
  gpu_->settle();
  EXPECT_EQ(gpu_->begun(), 1U);
  const auto one = take(first, 0);
  const auto other = take(second, 0);
  EXPECT_EQ(one.found.device, other.found.device);
  first->release(one);
  EXPECT_EQ(free_slots(*one.pool), kDeviceSlots - 1) << "the other still reads it";
  second->release(other);
  EXPECT_EQ(free_slots(*one.pool), kDeviceSlots);
}

TEST_F(StreamGpuTest, TwoGpusAreEachGivenACopyOfOneDecode) {
  const auto here = joined(gpu_);
  const auto there = joined(other_gpu_, 2);
  produce(1);
  gpu_->settle();
  pass(here, 0);
  EXPECT_FALSE(poll(there, 0));
  EXPECT_EQ(full_slots(), 1U) << "the other GPU still copies it";
  other_gpu_->settle();
  EXPECT_EQ(full_slots(), 0U);
  pass(there, 0);
}

TEST_F(StreamGpuTest, ReaderInMainMemoryAndOneOnAGpuShareADecode) {
  const auto host = joined(kMainMemory);
  const auto gpu = joined(gpu_, 2);
  produce(2);
  const auto held = take(host, 0);
  EXPECT_FALSE(held.on_gpu());
  gpu_->settle();
  pass(gpu, 0);
  EXPECT_EQ(full_slots(), 2U) << "one leased, one to be read in main memory";
  host->release(held);
  pass(host, 1);
  pass(gpu, 1);
  EXPECT_EQ(full_slots(), 0U);
}

TEST_F(StreamGpuTest, CopiesBeginInTheOrderOfStepsThoughBatchesDoNotEndInIt) {
  const auto only = joined(gpu_);
  const auto first = begin();
  const auto second = begin();
  ASSERT_TRUE(first && second);
  finish(*second);
  EXPECT_EQ(gpu_->begun(), 0U) << "its slot could be the last one";
  finish(*first);
  EXPECT_EQ(gpu_->begun(), 2U);
  ASSERT_TRUE(gpu_->complete());
  pass(only, 0);
  EXPECT_FALSE(poll(only, 1));
  ASSERT_TRUE(gpu_->complete());
  pass(only, 1);
}

TEST_F(StreamGpuTest, CopyBeginsWhenASlotOnTheGpuIsReleased) {
  const auto only = joined(gpu_);
  produce(kDeviceSlots + 1);
  EXPECT_EQ(gpu_->begun(), kDeviceSlots);
  gpu_->settle();
  const auto held = take(only, 0);
  EXPECT_EQ(gpu_->begun(), kDeviceSlots);
  only->release(held);
  gpu_->settle();
  EXPECT_EQ(gpu_->begun(), kDeviceSlots + 1);
  pass({only}, 1, kDeviceSlots + 1);
}

TEST_F(StreamGpuTest, ReaderThatLeavesGivesBackWhatWasReadyCopiedAndUnderWay) {
  const auto leaves = joined(gpu_);
  const auto stays = joined(other_gpu_, 2);
  produce(kHostSlots);  // one more than slots on a GPU
  ASSERT_TRUE(gpu_->complete());
  const auto pool = stream_->pool_of(leaves->holder());
  leave(leaves);
  EXPECT_EQ(gpu_->under_way(), kDeviceSlots - 1);
  settle();
  EXPECT_EQ(free_slots(*pool), kDeviceSlots);
  for (std::uint64_t step = 0; step < kHostSlots; ++step) {
    pass(stays, step);
    settle();
  }
  EXPECT_EQ(full_slots(), 0U);
}

TEST_F(StreamGpuTest, CopyThatWaitsForItsTurnIsNotMadeForAReaderThatLeft) {
  const auto leaves = joined(gpu_);
  const auto stays = joined(other_gpu_, 2);
  produce(kDeviceSlots);
  leave(leaves);
  settle();
  EXPECT_EQ(gpu_->unwanted(), kDeviceSlots);
  EXPECT_EQ(gpu_->bytes(), 0U);
  EXPECT_EQ(other_gpu_->unwanted(), 0U);
  pass({stays}, 0, kDeviceSlots);
  EXPECT_EQ(full_slots(), 0U);
}

TEST_F(StreamGpuTest, CopyIsMadeForAReaderThatComesBeforeItsTurn) {
  const auto leaves = joined(gpu_);
  produce(kDeviceSlots);
  const auto comes = joined(gpu_, 2);
  leave(leaves);
  settle();
  EXPECT_EQ(gpu_->unwanted(), 0U);
  pass({comes}, 0, kDeviceSlots);
}

TEST_F(StreamGpuTest, OthersNeedNotWaitForWhatAReaderThatLeftNeededFirst) {
  const auto slow = joined(gpu_);
  const auto fast = joined(gpu_, 2);
  const auto first = begin();
  const auto second = begin();
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(stream_->jump(fast->holder(), 1, 0));
  finish(*second);
  EXPECT_EQ(gpu_->begun(), 0U) << "step 0 is to be copied before";
  leave(slow);
  gpu_->settle();
  pass(fast, 1);
  finish(*first);  // nobody wants it
  EXPECT_EQ(full_slots(), 0U);
}

TEST_F(StreamGpuTest, CopyOfWhatAReaderJumpsToBeginsAtOnce) {
  const auto only = joined(gpu_);
  const auto first = begin();
  const auto second = begin();
  ASSERT_TRUE(first && second);
  finish(*second);
  EXPECT_EQ(gpu_->begun(), 0U);
  ASSERT_TRUE(stream_->jump(only->holder(), 1, 0));
  EXPECT_EQ(gpu_->begun(), 1U);
  finish(*first);
  gpu_->settle();
  pass(only, 1);
}

TEST_F(StreamGpuTest, CopyOfWhatAReaderPassesOnToBeginsAtOnce) {
  const auto only = joined(gpu_);
  const auto first = begin();
  const auto second = begin();
  ASSERT_TRUE(first && second);
  finish(*second);
  EXPECT_FALSE(poll(only, 1)) << "it asks for nothing before any more";
  EXPECT_EQ(gpu_->begun(), 1U);
  finish(*first);
  gpu_->settle();
  pass(only, 1);
}

TEST_F(StreamGpuTest, CopiesOfWhatAReaderIsGivenBesidesBeginAtOnce) {
  const auto host = joined(kMainMemory);
  const auto other = joined_until(1, gpu_, 2);
  produce(3);
  EXPECT_EQ(gpu_->begun(), 1U);
  ASSERT_TRUE(stream_->set_until(other->holder(), 3));
  EXPECT_EQ(gpu_->begun(), 3U);
  gpu_->settle();
  pass({host, other}, 0, 3);
}

TEST_F(StreamGpuTest, ReaderJumpsOverWhatIsReadyCopiedAndUnderWay) {
  const auto only = joined(gpu_);
  produce(kHostSlots);
  ASSERT_TRUE(gpu_->complete());  // 0 is there, 1 and 2 are on their way, 3 is ready
  ASSERT_TRUE(stream_->jump(only->holder(), kHostSlots - 1, 0));
  gpu_->settle();
  pass(only, kHostSlots - 1);
  gpu_->settle();
  EXPECT_EQ(free_slots(*stream_->pool_of(only->holder())), kDeviceSlots);
  EXPECT_EQ(full_slots(), 0U);
}

TEST_F(StreamGpuTest, ReaderThatEndsEarlierGivesBackWhatItDoesNotNeed) {
  const auto only = joined(gpu_);
  produce(kHostSlots);
  ASSERT_TRUE(gpu_->complete());
  ASSERT_TRUE(gpu_->complete());
  ASSERT_TRUE(stream_->set_until(only->holder(), 1));
  gpu_->settle();
  EXPECT_EQ(full_slots(), 0U);
  EXPECT_EQ(free_slots(*stream_->pool_of(only->holder())), kDeviceSlots - 1);
  pass(only, 0);
  EXPECT_FALSE(stream_->set_until(only->holder(), 9)) << "steps 1 to 3 are gone";
}

TEST_F(StreamGpuTest, ReaderThatEndsLaterGetsWhatIsStillThereForOthers) {
  const auto longer = joined(gpu_);
  const auto other = joined_until(1, gpu_, 2);
  produce(3);
  gpu_->settle();
  ASSERT_TRUE(stream_->set_until(other->holder(), 3));
  pass({longer, other}, 0, 3);
}

TEST_F(StreamGpuTest, StreamEndsWhileItsLastBatchesAreCopied) {
  const auto only = joined(gpu_);
  produce(2);
  const auto pool = stream_->pool();
  const auto on_gpu = stream_->pool_of(only->holder());
  leave(only);
  EXPECT_TRUE(stream_->ended());
  EXPECT_EQ(full_slots(), 2U) << "the GPU reads them";
  gpu_->settle();
  EXPECT_TRUE(pool->slots().idle());
  EXPECT_TRUE(on_gpu->slots().idle());
}

TEST_F(StreamGpuTest, NextStreamOfASlotPoolDoesNotMeetCopiesOfTheLastOne) {
  const auto reads = joined(gpu_);
  produce(2);
  const auto on_gpu = stream_->pool_of(reads->holder());
  leave(reads);
  stream_ = make(StreamOptions{.span = span({0, 7}), .maker = 1}, stream_->pool());
  const auto again = joined(gpu_);
  EXPECT_EQ(stream_->pool_of(again->holder()), on_gpu);
  EXPECT_EQ(gpu_->allocations(), 1);
  EXPECT_EQ(produce(4), 2U) << "the others are copied for nobody";
  EXPECT_EQ(gpu_->under_way(), kDeviceSlots) << "the last one waits for a slot";
  gpu_->settle();
  pass({again}, 0, 2);
  EXPECT_EQ(produce(2), 2U);
  gpu_->settle();
  pass(again, 2);
}

TEST_F(StreamGpuTest, LateReaderOnAnotherGpuBeginsBehindWhatLiesOnTheFirstAlone) {
  const auto first = joined(gpu_);
  produce(2);
  gpu_->settle();
  produce(1);  // on its way, and still in main memory
  const auto late = reader(2);
  EXPECT_EQ(stream_->offers(terms(late, other_gpu_)), 2U);
  EXPECT_EQ(stream_->offers(terms(late, kMainMemory)), 2U);
  EXPECT_EQ(stream_->offers(terms(late, gpu_)), 0U);
  EXPECT_FALSE(stream_->join(late, terms(late, other_gpu_), 1));
  ASSERT_EQ(join(late, terms(late, other_gpu_), 5U), 2);
  settle();
  pass(late, 2);
  pass({first}, 0, 3);
}

TEST_F(StreamGpuTest, LateReaderOnTheSameGpuReadsWhatWasCopiedForOthers) {
  const auto first = joined(gpu_);
  const auto host = joined(kMainMemory, 2);
  produce(2);
  gpu_->settle();
  pass(first, 0);  // which has no slot there any more
  const auto late = joined(gpu_, 3, 1);
  gpu_->settle();
  pass(late, 1);
  pass(first, 1);
  pass({host}, 0, 2);
}

TEST_F(StreamGpuTest, BatchThatOneReaderOnAGpuHasReadIsCopiedOnceMoreForAnother) {
  const auto host = joined(kMainMemory, 2);
  const auto first = joined(gpu_);
  produce(1);
  gpu_->settle();
  const auto held = take(first, 0);
  const auto late = joined(gpu_, 3);
  gpu_->settle();
  const auto again = take(late, 0);
  EXPECT_NE(again.found.device, held.found.device);
  first->release(held);
  late->release(again);
  pass(host, 0);
}

// Steps 0 to 2 are kept in main memory for the slow one; the slots on the GPU have later steps.
TEST_F(StreamGpuTest, WhoComesLateBeginsBehindWhatLaterStepsLeaveNoSlotsFor) {
  stream_ = make(1, AbsentReplica::kWait, 2 * kDeviceSlots);
  const auto slow = joined(kMainMemory);
  const auto first = joined(gpu_);
  produce(2 * kDeviceSlots);
  gpu_->settle();
  pass({first}, 0, kDeviceSlots);
  gpu_->settle();
  const auto late = reader();
  EXPECT_EQ(stream_->offers(terms(late, other_gpu_)), 0U);
  EXPECT_EQ(stream_->offers(terms(late, gpu_)), kDeviceSlots);
  ASSERT_TRUE(join(late, terms(late, gpu_), kDeviceSlots));
  pass({slow}, 0, kDeviceSlots);
  pass({slow, first, late}, kDeviceSlots, 2 * kDeviceSlots);
  EXPECT_EQ(full_slots(), 0U);
}

TEST_F(StreamGpuTest, FailedCopyEndsTheReadersOfThatGpuAlone) {
  const auto lost = joined(gpu_);
  const auto also = joined(gpu_, 2);
  const auto elsewhere = joined(other_gpu_, 3);
  const auto host = joined(kMainMemory, 4);
  produce(2);
  const auto pool = stream_->pool_of(lost->holder());
  ASSERT_TRUE(gpu_->complete(Status(Code::kUnavailable, "GPU-1 has fallen off the bus")));
  EXPECT_EQ(gpu_->begun(), 2U) << "nothing further is begun there";
  for (const GpuReaderPtr& one : {lost, also}) {
    ASSERT_TRUE(one->failure());
    EXPECT_EQ(one->failure()->message(), "GPU-1 has fallen off the bus");
    EXPECT_FALSE(poll(one, 0));
  }
  settle();
  EXPECT_TRUE(pool->slots().idle());
  for (const GpuReaderPtr& one : {elsewhere, host}) {
    EXPECT_FALSE(one->failure());
    pass({one}, 0, 2);
  }
}

TEST_F(StreamGpuTest, BatchesWaitUntilTheGpusThreadHasMemoryForThem) {
  auto slots = stream_->pool()->on(gpu_, stream_->device_layout(), kDeviceSlots);
  ASSERT_TRUE(slots);
  const auto waits = joined_in(*slots);
  produce(2);
  EXPECT_EQ(gpu_->allocations(), 0) << "whoever joins must not wait for a driver";
  EXPECT_EQ(gpu_->begun(), 0U);
  EXPECT_EQ(stream_->waits_for(waits->holder()),
            "the driver of a GPU by hand was asked for memory there and has not answered yet");
  settle();
  EXPECT_EQ(gpu_->allocations(), 1);
  pass({waits}, 0, 2);
}

TEST_F(StreamGpuTest, ReaderIsToldThatTheGpuRefusesMemoryHoweverEarlyItDoes) {
  gpu_->set_limit(0);
  auto slots = stream_->pool()->on(gpu_, stream_->device_layout(), kDeviceSlots);
  ASSERT_TRUE(slots);
  settle();
  const auto waits = joined_in(*slots);
  settle();
  ASSERT_TRUE(waits->failure());
  EXPECT_EQ(waits->failure()->code(), Code::kFailedPrecondition);
  gpu_->set_limit(std::uint64_t{1} << 30);
  EXPECT_NE(slots_on(*stream_, gpu_), *slots) << "others try again";
}

TEST_F(StreamGpuTest, GpuIsLetGoOfWithItsLastReaderThoughOthersReadOn) {
  const auto stays = joined(gpu_);
  const auto leaves = joined(other_gpu_, 2);
  produce(2);
  settle();
  std::optional held = take(leaves, 0);
  leave(leaves);
  settle();
  EXPECT_GT(other_gpu_.use_count(), 1) << "it still holds a batch there";
  leaves->release(*held);
  held.reset();
  settle();
  EXPECT_EQ(other_gpu_->pinned(), 0U);
  EXPECT_EQ(other_gpu_.use_count(), 1);
  pass(stays, 0);
  produce(1);
  settle();
  pass({stays}, 1, 3);
}

// After a seek to another plan's batches, say.
TEST_F(StreamGpuTest, SlotsStayRegisteredForTheGpuUntilTheLastOfItsPoolsHasGone) {
  auto first = slots_on(*stream_, gpu_);
  std::vector<wire::FieldLayout> fields(plan_->layout.fields().begin(),
                                        plan_->layout.fields().end());
  fields[0].capacity_bytes *= 2;
  const delivery::DeviceLayout other(fields, kRows);
  ASSERT_EQ(other.host_bytes(), stream_->device_layout().host_bytes());
  auto second = slots_of(*stream_->pool(), gpu_, other, 1);
  ASSERT_NE(second, first);
  EXPECT_EQ(gpu_->pinned(), 1U);
  first.reset();
  settle();
  EXPECT_EQ(gpu_->pinned(), 1U);
  second.reset();
  settle();
  EXPECT_EQ(gpu_->pinned(), 0U);
  EXPECT_EQ(gpu_.use_count(), 1);
}

TEST_F(StreamGpuTest, SlowReaderKeepsAFastOneOnItsGpuWaitingAndIsSaidTo) {
  const auto slow = joined(gpu_);
  const auto fast = joined(gpu_, 2);
  for (std::uint64_t step = 0; step < kDeviceSlots; ++step) {
    produce(1);
    gpu_->settle();
    pass(fast, step);
  }
  produce(kHostSlots);
  (void)stream_->held_up();
  EXPECT_FALSE(poll(fast, kDeviceSlots));
  clock_.advance(std::chrono::seconds(1));
  const auto held_up = stream_->held_up();
  ASSERT_EQ(held_up.size(), 1U);
  EXPECT_EQ(held_up.front(), fast);
  // It goes on as soon as the other one does.
  pass(slow, 0);
  gpu_->settle();
  pass(fast, kDeviceSlots);
}

TEST_F(StreamGpuTest, CopiesThatAreLateHoldNobodyUp) {
  const auto one = joined(gpu_);
  const auto other = joined(gpu_, 2);
  produce(kHostSlots);
  (void)stream_->held_up();
  EXPECT_FALSE(poll(one, 0));
  EXPECT_FALSE(poll(other, 0));
  EXPECT_EQ(produce(1), 0U) << "all slots wait for the GPU";
  clock_.advance(std::chrono::seconds(1));
  EXPECT_TRUE(stream_->held_up().empty()) << "streams of their own would wait for it as well";
}

TEST_F(StreamGpuTest, WhatAReaderHoldsOutlivesItsStream) {
  const auto only = joined(gpu_);
  produce(1);
  gpu_->settle();
  const auto held = take(only, 0);
  leave(only);
  stream_ = nullptr;
  settle();
  EXPECT_GT(gpu_->bytes(), 0U);
  only->release(held);
}

TEST_F(StreamGpuTest, ReaderGoesBackOnlyToWhatItDoesNotHold) {
  const auto slow = joined(gpu_, 2);
  const auto back = joined(gpu_);
  produce(2);
  gpu_->settle();
  const auto held = take(back, 0);
  leave(back);
  EXPECT_EQ(stream_->offers(terms(back, gpu_)), 1U);
  back->release(held);
  EXPECT_EQ(stream_->offers(terms(back, gpu_)), 0U);
  ASSERT_TRUE(join(back, terms(back, gpu_), 0));
  pass(back, 0);
}

}  // namespace
}  // namespace spdld::stream
