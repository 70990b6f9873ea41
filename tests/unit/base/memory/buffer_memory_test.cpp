// SPDX-License-Identifier: Apache-2.0
#include "base/memory/buffer_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/memory/byte_buffer.h"
#include "tests/unit/base/users/users.h"

namespace spdld {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Small is up to 25 bytes; the small ones and the large ones may have 100 each.
class BufferMemoryTest : public ::testing::Test {
 protected:
  BufferMemory::Request request() { return {all_, kAnn}; }
  std::optional<BufferMemory::Share> take(BufferMemory::Request& request, std::uint64_t bytes) {
    return request.take(bytes, [this] { ++granted_; });
  }

  const std::shared_ptr<BufferMemory> all_ = std::make_shared<BufferMemory>(200);
  int granted_ = 0;
};

TEST_F(BufferMemoryTest, BoundsTheSumOfAUserAndNobodyElses) {
  const auto first = all_->take(kAnn, 60);
  ASSERT_TRUE(first);
  EXPECT_FALSE(all_->take(kAnn, 41));
  const auto second = all_->take(kAnn, 40);
  EXPECT_TRUE(second);
  const auto other = all_->take(kBob, 100);
  EXPECT_TRUE(other);
  EXPECT_THAT(all_->used(), ElementsAre(Pair(kAnn, 100), Pair(kBob, 100)));
}

TEST_F(BufferMemoryTest, BoundsTheSumOfSmallOnes) {
  std::vector<BufferMemory::Share> shares;
  for (int i = 0; i < 4; ++i) shares.push_back(*all_->take(kAnn, 25));
  EXPECT_FALSE(all_->take(kAnn, 1));
  shares.pop_back();
  EXPECT_TRUE(all_->take(kAnn, 25));
}

TEST_F(BufferMemoryTest, GivesMoreThanTheLimitToAUserThatHasNoOtherOfThatSize) {
  auto there = all_->take(kAnn, 26);
  auto huge = request();
  EXPECT_FALSE(take(huge, 1000));
  there.reset();
  EXPECT_EQ(granted_, 1);
  const auto share = take(huge, 1000);
  ASSERT_TRUE(share);
  EXPECT_FALSE(all_->take(kAnn, 26)) << "what is there is over the limit";
}

TEST_F(BufferMemoryTest, KeepsNoSmallOneWaitingForLargeOnes) {
  const auto there = all_->take(kAnn, 1000);
  auto huge = request();
  EXPECT_FALSE(take(huge, 1000));
  auto small = request();
  EXPECT_TRUE(take(small, 25));
  EXPECT_TRUE(all_->take(kAnn, 25));
}

TEST_F(BufferMemoryTest, KeepsNoLargeOneWaitingForSmallOnes) {
  std::vector<BufferMemory::Share> shares;
  for (int i = 0; i < 4; ++i) shares.push_back(*all_->take(kAnn, 25));
  auto small = request();
  EXPECT_FALSE(take(small, 25));
  auto huge = request();
  EXPECT_TRUE(take(huge, 1000));
}

TEST_F(BufferMemoryTest, LetsNoLaterRequestOfItsHalfPass) {
  auto there = all_->take(kAnn, 60);
  auto first = request();
  auto second = request();
  EXPECT_FALSE(take(first, 60));
  EXPECT_FALSE(take(second, 30)) << "there is room for it, but not its turn";
  EXPECT_FALSE(all_->take(kAnn, 30));
  there.reset();
  EXPECT_EQ(granted_, 2) << "there is room for both";
  EXPECT_TRUE(take(second, 30));
  EXPECT_TRUE(take(first, 60));
}

TEST_F(BufferMemoryTest, GrantsAsManyAsThereIsRoomFor) {
  auto there = all_->take(kAnn, 100);
  auto first = request();
  auto second = request();
  auto third = request();
  for (auto* one : {&first, &second, &third}) EXPECT_FALSE(take(*one, 50));
  there.reset();
  EXPECT_EQ(granted_, 2);
  EXPECT_FALSE(take(third, 50));
  EXPECT_TRUE(take(first, 50)) << "which is given back at once";
  EXPECT_EQ(granted_, 3);
}

TEST_F(BufferMemoryTest, GoesOnWhenTheFirstOfTheLineGivesUp) {
  auto there = all_->take(kAnn, 60);
  std::optional<BufferMemory::Request> first;
  first.emplace(all_, kAnn);
  auto second = request();
  EXPECT_FALSE(first->take(80, [] { FAIL() << "it is gone"; }));
  EXPECT_FALSE(take(second, 30));
  first.reset();
  EXPECT_EQ(granted_, 1);
  EXPECT_TRUE(take(second, 30));
}

TEST_F(BufferMemoryTest, TakesBackWhatWasGrantedAndNeverTaken) {
  auto there = all_->take(kAnn, 100);
  {
    auto gone = request();
    EXPECT_FALSE(take(gone, 70));
    there.reset();
    EXPECT_THAT(all_->used(), ElementsAre(Pair(kAnn, 70)));
  }
  EXPECT_THAT(all_->used(), IsEmpty());
}

TEST_F(BufferMemoryTest, TakesBackWhatWasGrantedForAnotherSize) {
  auto there = all_->take(kAnn, 100);
  auto grown = request();
  EXPECT_FALSE(take(grown, 40));
  there.reset();
  EXPECT_FALSE(take(grown, 70)) << "what it was granted is counted until it is given back";
  EXPECT_EQ(granted_, 2);
  const auto share = take(grown, 70);
  ASSERT_TRUE(share);
  EXPECT_THAT(all_->used(), ElementsAre(Pair(kAnn, 70)));
}

TEST_F(BufferMemoryTest, TakesBackWhatWasGrantedInTheOtherHalf) {
  auto there = all_->take(kAnn, 100);
  auto shrunk = request();
  EXPECT_FALSE(take(shrunk, 40));
  there.reset();
  const auto share = take(shrunk, 10);
  ASSERT_TRUE(share);
  EXPECT_THAT(all_->used(), ElementsAre(Pair(kAnn, 10)));
}

TEST_F(BufferMemoryTest, ForgetsUsersWithoutAny) {
  all_->take(kAnn, 10);
  EXPECT_THAT(all_->used(), IsEmpty());
  auto share = all_->take(kAnn, 10);
  BufferMemory::Share moved = *std::move(share);
  share.reset();
  EXPECT_THAT(all_->used(), ElementsAre(Pair(kAnn, 10)));
  moved = {};
  EXPECT_THAT(all_->used(), IsEmpty());
}

TEST_F(BufferMemoryTest, IsHeldByTheBufferUntilItsContentIsDropped) {
  ByteBuffer bytes;
  bytes.count(*all_->take(kAnn, 70));
  EXPECT_EQ(bytes.counted_bytes(), 70U);
  ByteBuffer other;
  std::swap(bytes, other);
  EXPECT_EQ(bytes.counted_bytes(), 0U);
  EXPECT_THAT(all_->used(), ElementsAre(Pair(kAnn, 70)));
  other.shrink(1000);
  EXPECT_THAT(all_->used(), IsEmpty());
  other.count(*all_->take(kAnn, 30));
  other = ByteBuffer();
  EXPECT_THAT(all_->used(), IsEmpty());
}

}  // namespace
}  // namespace spdld
