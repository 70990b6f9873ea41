// SPDX-License-Identifier: Apache-2.0
#include "base/users/listing_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

namespace spdld {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr uid_t kOne = 100001;
constexpr uid_t kOther = 100002;
constexpr uid_t kAdmin = 100003;
constexpr std::uint64_t kMiB = 1 << 20;

class ListingMemoryTest : public ::testing::Test {
 protected:
  const std::shared_ptr<ListingMemory> memory_ =
      std::make_shared<ListingMemory>(8 * kMiB, TrustedUsers({kAdmin}));
};

TEST_F(ListingMemoryTest, BoundsTheSumOfOneUser) {
  const auto first = memory_->share(kOne);
  const auto second = memory_->share(kOne);
  ASSERT_TRUE(first->resize(6 * kMiB).ok());
  const Status refused = second->resize(3 * kMiB);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(),
              HasSubstr("would take 3.0 MiB of memory or more, the other datasets of user 100001 "
                        "take 6.0 MiB, and limits.listing_memory allows 8.0 MiB"));
  EXPECT_EQ(second->bytes(), 0U);
  EXPECT_TRUE(memory_->share(kOther)->resize(8 * kMiB).ok()) << "another user has room";
  ASSERT_TRUE(first->resize(5 * kMiB).ok());
  EXPECT_TRUE(second->resize(3 * kMiB).ok());
  EXPECT_THAT(memory_->used(), UnorderedElementsAre(Pair(kOne, 8 * kMiB)));
}

TEST_F(ListingMemoryTest, GivesBackWhatAShareHadWhenItEnds) {
  EXPECT_TRUE(memory_->share(kOne)->resize(8 * kMiB).ok());
  EXPECT_TRUE(memory_->used().empty());
  EXPECT_TRUE(memory_->share(kOne)->resize(8 * kMiB).ok());
}

TEST_F(ListingMemoryTest, CoversSomeMoreThanIsAskedForAsLongAsThereIsRoom) {
  const auto share = memory_->share(kOne);
  ASSERT_TRUE(share->cover(1).ok());
  EXPECT_EQ(share->bytes(), kMiB + 1);
  ASSERT_TRUE(share->cover(kMiB).ok());
  EXPECT_EQ(share->bytes(), kMiB + 1);
  ASSERT_TRUE(share->cover(8 * kMiB).ok());
  EXPECT_EQ(share->bytes(), 8 * kMiB);
  EXPECT_FALSE(share->cover(8 * kMiB + 1).ok());
  EXPECT_EQ(share->bytes(), 8 * kMiB);
}

TEST_F(ListingMemoryTest, BindsTrustedUsersByTheSumOfAllAlone) {
  EXPECT_EQ(memory_->limit(kAdmin), std::nullopt);
  EXPECT_EQ(memory_->limit(kOne), 8 * kMiB);
  const auto admins = memory_->share(kAdmin);
  ASSERT_TRUE(admins->resize(30 * kMiB).ok());
  EXPECT_TRUE(memory_->share(kOne)->resize(2 * kMiB).ok());
  for (const uid_t uid : {kOne, kAdmin}) {
    EXPECT_THAT(memory_->share(uid)->resize(3 * kMiB).message(),
                HasSubstr("all other datasets take 30.0 MiB, and these may take 4 times "
                          "limits.listing_memory, 32.0 MiB"));
  }
}

TEST_F(ListingMemoryTest, RefusesWhatIsBeyondAllNumbers) {
  const auto share = memory_->share(kOne);
  ASSERT_TRUE(share->resize(kMiB).ok());
  EXPECT_FALSE(share->resize(~std::uint64_t{0}).ok());
  EXPECT_FALSE(share->cover(~std::uint64_t{0} - 1).ok());
  EXPECT_EQ(share->bytes(), kMiB);
}

}  // namespace
}  // namespace spdld
