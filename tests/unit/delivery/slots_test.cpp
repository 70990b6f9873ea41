// SPDX-License-Identifier: Apache-2.0
#include "delivery/slots.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace spdld::delivery {
namespace {

constexpr HolderId kRank0 = 10;
constexpr HolderId kRank1 = 11;

TEST(SlotTable, TakesASlotRoundTheCircle) {
  SlotTable slots(1);
  const auto slot = slots.loan();
  ASSERT_TRUE(slot);
  EXPECT_EQ(slots.state(*slot), SlotState::kLoaned);
  EXPECT_FALSE(slots.loan()) << "no free slot, no new work";
  slots.commit(*slot);
  EXPECT_EQ(slots.state(*slot), SlotState::kReady);
  const auto lease = slots.acquire(*slot, kRank0);
  ASSERT_TRUE(lease);
  EXPECT_EQ(slots.state(*slot), SlotState::kLeased);
  EXPECT_EQ(slots.held(kRank0), 1u);
  EXPECT_TRUE(slots.release(*lease, kRank0).value()) << "it became free";
  EXPECT_TRUE(slots.idle());
}

TEST(SlotTable, RefusesAndCountsARepeatedRelease) {
  SlotTable slots(2);
  const std::uint32_t slot = *slots.loan();
  slots.commit(slot);
  const std::uint64_t lease = *slots.acquire(slot, kRank0);
  ASSERT_TRUE(slots.release(lease, kRank0));
  const auto again = slots.release(lease, kRank0);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kNotFound);
  EXPECT_EQ(slots.counts().bad_releases, 1u);
}

TEST(SlotTable, NeverLetsALateReleaseMeetAnotherBatch) {
  SlotTable slots(1);
  std::uint32_t slot = *slots.loan();
  slots.commit(slot);
  const std::uint64_t old_lease = *slots.acquire(slot, kRank0);
  ASSERT_TRUE(slots.release(old_lease, kRank0));
  slot = *slots.loan();
  slots.commit(slot);
  ASSERT_TRUE(slots.acquire(slot, kRank0));
  EXPECT_FALSE(slots.release(old_lease, kRank0));
  EXPECT_EQ(slots.state(slot), SlotState::kLeased);
}

TEST(SlotTable, LetsNobodyReleaseWhatAnotherHolds) {
  SlotTable slots(1);
  const std::uint32_t slot = *slots.loan();
  slots.commit(slot);
  const std::uint64_t lease = *slots.acquire(slot, kRank0);
  EXPECT_FALSE(slots.release(lease, kRank1));
  EXPECT_EQ(slots.state(slot), SlotState::kLeased);
}

TEST(SlotTable, SurvivesLeasesThatNeverWere) {
  SlotTable slots(4);
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(slots.release(random(), kRank0));
  EXPECT_EQ(slots.counts().bad_releases, 1000u);
  EXPECT_EQ(slots.counts().free, 4u);
}

TEST(SlotTable, GivesReplicasTheSameBatchAndFreesItAfterTheLast) {
  SlotTable slots(1);
  const std::uint32_t slot = *slots.loan();
  slots.commit(slot, 2);
  const std::uint64_t first = *slots.acquire(slot, kRank0);
  EXPECT_FALSE(slots.acquire(slot, kRank0)) << "nobody has it twice";
  EXPECT_EQ(slots.state(slot), SlotState::kReady);
  EXPECT_FALSE(slots.release(first, kRank0).value()) << "the other one has not seen it";
  const std::uint64_t second = *slots.acquire(slot, kRank1);
  EXPECT_EQ(first, second);
  EXPECT_TRUE(slots.release(second, kRank1).value());
}

TEST(SlotTable, FreesABatchThatItsLastReaderForgoes) {
  SlotTable slots(2);
  const std::uint32_t slot = *slots.loan();
  slots.commit(slot, 2);
  EXPECT_FALSE(slots.forgo(slot));
  EXPECT_TRUE(slots.forgo(slot));
  EXPECT_FALSE(slots.forgo(slot));
  EXPECT_TRUE(slots.idle());
}

TEST(SlotTable, DiscardsWhatASeekMadeUseless) {
  SlotTable slots(1);
  const std::uint32_t slot = *slots.loan();
  slots.commit(slot, 3);
  const std::uint64_t lease = *slots.acquire(slot, kRank0);
  EXPECT_FALSE(slots.discard(slot)) << "one still reads it";
  EXPECT_FALSE(slots.acquire(slot, kRank1));
  EXPECT_TRUE(slots.release(lease, kRank0).value());
}

TEST(SlotTable, FreesWhatAWriterGaveUp) {
  SlotTable slots(1);
  slots.abort(*slots.loan());
  EXPECT_TRUE(slots.idle());
}

TEST(SlotTable, ReclaimsWhatTheDeadHeldAndNothingElse) {
  SlotTable slots(3);
  std::vector<std::uint64_t> leases;
  for (const HolderId holder : {kRank0, kRank0, kRank1}) {
    const std::uint32_t slot = *slots.loan();
    slots.commit(slot);
    leases.push_back(*slots.acquire(slot, holder));
  }
  EXPECT_EQ(slots.reclaim(kRank0), 2u);
  EXPECT_EQ(slots.reclaim(kRank0), 0u) << "once is enough";
  EXPECT_EQ(slots.counts().leased, 1u);
  EXPECT_FALSE(slots.release(leases[0], kRank0));
  EXPECT_TRUE(slots.release(leases[2], kRank1));
}

TEST(SlotTable, NeverReusesWhatALiveProcessMayStillRead) {
  SlotTable slots(2);
  const std::uint32_t slot = *slots.loan();
  slots.commit(slot);
  const std::uint64_t lease = *slots.acquire(slot, kRank0);
  EXPECT_EQ(slots.retire(kRank0), 1u);
  EXPECT_EQ(slots.retire(kRank0), 0u);
  EXPECT_EQ(slots.state(slot), SlotState::kRetired);
  EXPECT_FALSE(slots.release(lease, kRank0)) << "its connection is gone: nobody can send this";
  ASSERT_TRUE(slots.loan());
  EXPECT_FALSE(slots.loan()) << "the retired slot is not given out";
  EXPECT_EQ(slots.reclaim(kRank0), 1u) << "but it is once the process has exited";
  EXPECT_EQ(slots.loan(), slot);
}

TEST(SlotTable, KeepsARetiredSlotUntilTheOtherReplicaIsDoneToo) {
  SlotTable slots(1);
  const std::uint32_t slot = *slots.loan();
  slots.commit(slot, 2);
  ASSERT_TRUE(slots.acquire(slot, kRank0));
  const std::uint64_t lease = *slots.acquire(slot, kRank1);
  EXPECT_EQ(slots.retire(kRank0), 1u);
  EXPECT_EQ(slots.state(slot), SlotState::kLeased);
  EXPECT_TRUE(slots.has_retired());
  EXPECT_FALSE(slots.release(lease, kRank1).value());
  EXPECT_EQ(slots.state(slot), SlotState::kRetired);
  EXPECT_EQ(slots.reclaim(kRank0), 1u);
  EXPECT_FALSE(slots.has_retired());
}

TEST(SlotTable, NeverLendsOneSlotTwiceWhateverTheThreads) {
  constexpr std::uint32_t kSlots = 4;
  SlotTable slots(kSlots);
  std::vector<std::atomic<int>> users(kSlots);
  std::vector<std::thread> threads;
  for (HolderId holder = 0; holder < 4; ++holder) {
    threads.emplace_back([&, holder] {
      std::minstd_rand random(static_cast<unsigned>(holder) + 1);
      for (int i = 0; i < 2000; ++i) {
        const auto slot = slots.loan();
        if (!slot) continue;
        EXPECT_EQ(users[*slot].fetch_add(1), 0);
        switch (random() % 3) {
          case 0: {
            users[*slot].fetch_sub(1);
            slots.abort(*slot);
            break;
          }
          case 1: {
            slots.commit(*slot);
            const auto lease = slots.acquire(*slot, holder);
            ASSERT_TRUE(lease);
            users[*slot].fetch_sub(1);
            EXPECT_TRUE(slots.release(*lease, holder));
            break;
          }
          default: {
            slots.commit(*slot);
            ASSERT_TRUE(slots.acquire(*slot, holder));
            slots.retire(holder);
            users[*slot].fetch_sub(1);
            slots.reclaim(holder);
          }
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(slots.idle());
}

}  // namespace
}  // namespace spdld::delivery
