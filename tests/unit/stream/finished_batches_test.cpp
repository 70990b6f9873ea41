// SPDX-License-Identifier: Apache-2.0
#include "stream/finished_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "tests/unit/stream/gpu_fixture.h"

namespace spdld::stream {
namespace {

using ::testing::ElementsAre;
using testing::GpuReaderPtr;
using testing::HandGpuPtr;
using ::testing::IsEmpty;

constexpr delivery::HolderId kOne = 1;
constexpr delivery::HolderId kOther = 2;
constexpr JobTag kJob = 1;

// Batches that are finished without a stream.
class FinishedBatchesTest : public testing::GpuFixture {
 protected:
  void SetUp() override {
    testing::GpuFixture::SetUp();
    const delivery::ArenaShape shape{.slot_bytes = plan_->layout.slot_bytes(),
                                     .slot_count = testing::kHostSlots};
    auto pool = SlotPool::create(shape, 0, arenas_, meter_, executor_);
    ASSERT_TRUE(pool) << pool.error().message();
    pool_ = *pool;
    batches_.emplace(pool_);
  }
  void TearDown() override {
    batches_.reset();
    pool_.reset();
    testing::GpuFixture::TearDown();
  }
  std::shared_ptr<SlotPool> slots_there(const HandGpuPtr& gpu) const {
    const delivery::DeviceLayout layout(plan_->layout.fields(), plan_->layout.rows());
    return testing::slots_of(*pool_, gpu, layout, testing::kDeviceSlots);
  }
  GpuReaderPtr join(delivery::HolderId holder, std::shared_ptr<SlotPool> on_gpu = nullptr,
                    JobTag job = kJob, std::uint32_t replica = 0) {
    auto reader = std::make_shared<testing::GpuReader>(holder, job);
    batches_->join({.holder = holder, .job = job, .replica = replica, .on_gpu = std::move(on_gpu)},
                   reader);
    return reader;
  }
  ReaderRefs finish(Index at) {
    const auto slot = pool_->loan();
    batches_->begin(at, *slot);
    return batches_->add(*slot, {});
  }
  // Takes the batch and gives it back.
  bool pass(delivery::HolderId holder, Index at) {
    const auto taken = batches_->take(*batches_->find(holder), at);
    return taken && taken->pool->release(taken->lease, holder);
  }

  std::shared_ptr<SlotPool> pool_;
  std::optional<FinishedBatches> batches_;
};

TEST_F(FinishedBatchesTest, ASlotIsFreeOnceAllReadersHaveTakenIt) {
  const auto one = join(kOne);
  const auto other = join(kOther);
  EXPECT_THAT(finish(0), ElementsAre(one, other)) << "both wait for it";
  EXPECT_THAT(finish(1), IsEmpty());
  EXPECT_FALSE(pass(kOne, 0)) << "the other one has not read it";
  EXPECT_EQ(batches_->gone(), 0U);
  EXPECT_TRUE(pass(kOther, 0));
  EXPECT_EQ(batches_->gone(), 1U);
  batches_->remove(*batches_->find(kOther));
  EXPECT_TRUE(pass(kOne, 1));
  EXPECT_TRUE(pool_->slots().idle());
}

TEST_F(FinishedBatchesTest, ABatchThatNoReaderWantsIsNotKept) {
  const auto one = join(kOne);
  EXPECT_TRUE(batches_->set_until(*batches_->find(kOne), 1));
  EXPECT_THAT(finish(1), IsEmpty());
  EXPECT_EQ(batches_->gone(), 2U);
  EXPECT_FALSE(batches_->set_until(*batches_->find(kOne), 2)) << "batch 1 is gone";
  EXPECT_TRUE(pool_->slots().idle());
}

TEST_F(FinishedBatchesTest, AReplicaThatIsAwayFindsItsBatches) {
  const auto one = join(kOne);
  batches_->expect(kJob, 1, 0, 0);
  (void)finish(0);
  EXPECT_FALSE(pass(kOne, 0));
  const auto other = join(kOther, nullptr, kJob, 1);
  EXPECT_EQ(batches_->find_away(1), nullptr);
  EXPECT_EQ(batches_->readable(*batches_->find(kOther)).batches, 1U);
  EXPECT_TRUE(pass(kOther, 0));
  FinishedBatches::set_away(*batches_->find(kOther));
  EXPECT_NE(batches_->find_away(1), nullptr);
  EXPECT_EQ(batches_->lowest(), 1U);
}

TEST_F(FinishedBatchesTest, AReaderOnAGpuTakesTheCopy) {
  const auto there = slots_there(gpu_);
  const auto one = join(kOne, there);
  EXPECT_THAT(finish(0), ElementsAre(one));
  const auto copy = batches_->begin_copy();
  ASSERT_TRUE(copy);
  EXPECT_FALSE(batches_->begin_copy()) << "one copy serves all readers there";
  EXPECT_FALSE(batches_->has(*batches_->find(kOne), 0));
  EXPECT_TRUE(batches_->wants(*copy));
  EXPECT_THAT(batches_->end_copy(*copy, true), ElementsAre(one));
  EXPECT_TRUE(pool_->slots().idle()) << "no reader takes it in main memory";
  EXPECT_TRUE(pass(kOne, 0));
  EXPECT_TRUE(there->slots().idle());
}

TEST_F(FinishedBatchesTest, ACopyThatItsReaderLeftFreesItsSlots) {
  const auto there = slots_there(gpu_);
  const auto one = join(kOne, there);
  (void)finish(0);
  const auto copy = batches_->begin_copy();
  ASSERT_TRUE(copy);
  batches_->remove(*batches_->find(kOne));
  EXPECT_FALSE(batches_->wants(*copy));
  EXPECT_THAT(batches_->end_copy(*copy, false), IsEmpty());
  EXPECT_TRUE(pool_->slots().idle());
  EXPECT_TRUE(there->slots().idle());
}

TEST_F(FinishedBatchesTest, AJobIsToldOnceOfAReplacedSample) {
  const auto one = join(kOne);
  const auto other = join(kOther, nullptr, kJob, 1);
  const auto stranger = join(3, nullptr, 2);
  batches_->note_replaced(0, engine::SampleFailure(), {});
  (void)finish(0);
  EXPECT_EQ(batches_->take(*batches_->find(kOne), 0)->replaced.size(), 1U);
  EXPECT_THAT(batches_->take(*batches_->find(kOther), 0)->replaced, IsEmpty());
  EXPECT_EQ(batches_->take(*batches_->find(3), 0)->replaced.size(), 1U);
}

}  // namespace
}  // namespace spdld::stream
