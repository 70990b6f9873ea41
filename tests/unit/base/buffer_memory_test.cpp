// SPDX-License-Identifier: Apache-2.0
#include "base/buffer_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "base/byte_buffer.h"

namespace spdld {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr uid_t kAnn = 1001;
constexpr uid_t kBob = 1002;

class BufferMemoryTest : public ::testing::Test {
 protected:
  BufferMemory::Waiter waiter() { return {all_, kAnn}; }

  const std::shared_ptr<BufferMemory> all_ = std::make_shared<BufferMemory>(100);
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

TEST_F(BufferMemoryTest, GivesMoreThanTheLimitToWhoHasNoOther) {
  auto small = all_->take(kAnn, 1);
  auto waiting = waiter();
  EXPECT_FALSE(waiting.take(101));
  small.reset();
  const auto large = waiting.take(101);
  ASSERT_TRUE(large);
  EXPECT_FALSE(all_->take(kAnn, 1)) << "what is there is over the limit";
}

TEST_F(BufferMemoryTest, LetsNobodyPassWhoCameLater) {
  auto there = all_->take(kAnn, 60);
  auto first = waiter();
  auto second = waiter();
  EXPECT_FALSE(first.take(80));
  EXPECT_FALSE(second.take(10)) << "there is room for it, but not its turn";
  EXPECT_FALSE(all_->take(kAnn, 10));
  EXPECT_EQ(first.place(), 0U);
  EXPECT_EQ(second.place(), 1U);
  there.reset();
  EXPECT_FALSE(second.take(10));
  const auto share = first.take(80);
  EXPECT_TRUE(share);
  EXPECT_TRUE(second.take(10));
}

TEST_F(BufferMemoryTest, GoesOnWhenTheFirstOfTheLineGivesUp) {
  auto there = all_->take(kAnn, 60);
  std::optional<BufferMemory::Waiter> first;
  first.emplace(all_, kAnn);
  auto second = waiter();
  EXPECT_FALSE(first->take(80));
  EXPECT_FALSE(second.take(10));
  first.reset();
  EXPECT_TRUE(second.take(10));
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
