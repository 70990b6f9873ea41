// SPDX-License-Identifier: Apache-2.0
#include "delivery/memory_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/clocks.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/sizes.h"

namespace spdld::delivery {
namespace {

using test::kMiB;
using ::testing::AllOf;
using ::testing::HasSubstr;

MemoryFiles files_in(const test::ScratchDir& dir) {
  return {.meminfo = dir.path() + "/meminfo",
          .self_cgroup = dir.path() + "/self_cgroup",
          .cgroup_root = dir.path() + "/cgroup",
          .smaps = dir.path() + "/smaps_rollup"};
}

TEST(OwnMemory, CountsPartsOfSharedPages) {
  const test::ScratchDir dir;
  dir.write("smaps_rollup",
            "5583bd588000-7fff4ccad000 ---p 00000000 00:00 0  [rollup]\n"
            "Rss:    4096 kB\nPss:    2048 kB\nPss_Dirty:  116 kB\n");
  EXPECT_EQ(own_memory(files_in(dir)), 2 * kMiB);
}

TEST(OwnMemory, IsNotKnownWhereTheKernelTellsNothing) {
  const test::ScratchDir dir;
  EXPECT_EQ(own_memory(files_in(dir)), std::nullopt);
  dir.write("smaps_rollup", "Rss:    4096 kB\nPss:    many kB\n");
  EXPECT_EQ(own_memory(files_in(dir)), std::nullopt);
}

TEST(MemoryRoom, IsUnboundedWhereTheKernelTellsNothing) {
  const test::ScratchDir dir;
  EXPECT_GT(memory_room(files_in(dir)).available_bytes, 1ull << 60);
}

TEST(MemoryRoom, IsWhatTheMachineHasAvailable) {
  const test::ScratchDir dir;
  dir.write("meminfo", "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    2048 kB\n");
  const MemoryRoom room = memory_room(files_in(dir));
  EXPECT_EQ(room.available_bytes, 2 * kMiB);
  EXPECT_THAT(room.bound_by, HasSubstr("machine"));
}

TEST(MemoryRoom, TakesTheTightestCgroupOnTheWayUp) {
  const test::ScratchDir dir;
  dir.write("meminfo", "MemAvailable: 1048576 kB\n");
  dir.write("self_cgroup", "0::/a/b\n");
  dir.write("cgroup/a/b/memory.max", "max\n");
  dir.write("cgroup/a/b/memory.current", "1000\n");
  dir.write("cgroup/a/memory.max", std::to_string(100 * kMiB));
  dir.write("cgroup/a/memory.current", std::to_string(90 * kMiB));
  dir.write("cgroup/a/memory.stat", "anon 5\nactive_file 1048576\ninactive_file 3145728\n");
  const MemoryRoom room = memory_room(files_in(dir));
  EXPECT_EQ(room.available_bytes, 14 * kMiB) << "page cache counts as free";
  EXPECT_THAT(room.bound_by, AllOf(HasSubstr("cgroup /a:"), HasSubstr("100.0 MiB")));
}

TEST(MemoryRoom, ReadsTheMemoryControllerOfVersionOne) {
  const test::ScratchDir dir;
  dir.write("self_cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n");
  dir.write("cgroup/memory/job/memory.limit_in_bytes", std::to_string(8 * kMiB));
  dir.write("cgroup/memory/job/memory.usage_in_bytes", std::to_string(3 * kMiB));
  EXPECT_EQ(memory_room(files_in(dir)).available_bytes, 5 * kMiB);
}

TEST(MemoryRoom, SeesTheContainersOwnGroupAtTheRoot) {
  const test::ScratchDir dir;
  dir.write("self_cgroup", "0::/../../outside\n");
  dir.write("cgroup/memory.max", std::to_string(kMiB));
  dir.write("cgroup/memory.current", std::to_string(2 * kMiB));
  EXPECT_EQ(memory_room(files_in(dir)).available_bytes, 0u) << "over its limit is no room at all";
}

TEST(MemoryRoom, SurvivesFilesThatMakeNoSense) {
  const test::ScratchDir dir;
  dir.write("meminfo", "MemAvailable: many kB\n\nMemAvailable:\n");
  dir.write("self_cgroup", "nonsense\n:::\n1:\n0::no/slash\n");
  dir.write("cgroup/memory.max", "-1");
  dir.write("cgroup/memory.current", "");
  EXPECT_GT(memory_room(files_in(dir)).available_bytes, 1ull << 60);
}

TEST(ArenaBudget, GivesBackWhatAReservationHeld) {
  const test::ScratchDir dir;
  ArenaBudget budget(10 * kMiB, files_in(dir));
  {
    auto first = budget.reserve(6 * kMiB, 1000, "an arena");
    ASSERT_TRUE(first);
    EXPECT_EQ(budget.used_bytes(), 6 * kMiB);
    ArenaBudget::Reservation moved = std::move(*first);
    EXPECT_EQ(moved.bytes(), 6 * kMiB);
    ArenaBudget::Reservation assigned;
    assigned = std::move(moved);
    EXPECT_EQ(budget.used_bytes(), 6 * kMiB);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(ArenaBudget, RefusesWithTheNumbersAndTheWayOut) {
  const test::ScratchDir dir;
  ArenaBudget budget(10 * kMiB, files_in(dir));
  auto first = budget.reserve(6 * kMiB, 1000, "an arena");
  ASSERT_TRUE(first);
  const auto second = budget.reserve(5 * kMiB, 1000, "another");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(second.error().message(),
            "another needs 5.0 MiB, but the arena budget of 10.0 MiB has 4.0 MiB left (6.0 MiB in "
            "use); raise arena.budget, or lower batch.size or delivery.prefetch");
  EXPECT_EQ(budget.used_bytes(), 6 * kMiB);
}

TEST(ArenaBudget, KeepsWhatIsInUseWhereItsLimitIsLowered) {
  const test::ScratchDir dir;
  ArenaBudget budget(10 * kMiB, files_in(dir));
  auto first = budget.reserve(6 * kMiB, 1000, "an arena");
  ASSERT_TRUE(first);
  budget.set_limit(4 * kMiB, 4 * kMiB);
  const auto second = budget.reserve(1, 1000, "another");
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message(),
              HasSubstr("the arena budget of 4.0 MiB has 0 B left (6.0 MiB in use)"));
  budget.set_limit(20 * kMiB, 8 * kMiB);
  EXPECT_EQ(budget.room_for(3 * kMiB, 1000), ArenaBudget::Room::kUserFull);
  EXPECT_EQ(budget.room_for(3 * kMiB, 1001), ArenaBudget::Room::kEnough);
}

TEST(ArenaBudget, RefusesWhatTheCgroupWouldKillTheDaemonFor) {
  const test::ScratchDir dir;
  dir.write("self_cgroup", "0::/pod\n");
  dir.write("cgroup/pod/memory.max", std::to_string(64 * kMiB));
  dir.write("cgroup/pod/memory.current", std::to_string(60 * kMiB));
  ArenaBudget budget(1024 * kMiB, files_in(dir));
  const auto refused = budget.reserve(5 * kMiB, 1000, "an arena");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("only 4.0 MiB are free"), HasSubstr("cgroup /pod: limit 64.0 MiB"),
                    HasSubstr("raise the memory limit")));
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(ArenaBudget, BoundsEachUserButThoseThatAreNot) {
  const test::ScratchDir dir;
  ArenaBudget budget(10 * kMiB, files_in(dir), {.bytes = 6 * kMiB, .unbound = {0}});
  auto first = budget.reserve(4 * kMiB, 1001, "an arena");
  ASSERT_TRUE(first);
  EXPECT_EQ(budget.room_for(3 * kMiB, 1001), ArenaBudget::Room::kUserFull);
  const auto refused = budget.reserve(3 * kMiB, 1001, "another");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.error().message(),
            "another needs 3.0 MiB, but of the 6.0 MiB that one user's arenas may take "
            "(limits.arena; the arena budget is 10.0 MiB), user 1001 has 4.0 MiB in use; processes "
            "that live on after their session count, too: end what is not needed, lower batch.size "
            "or delivery.prefetch, or have limits.arena raised");
  auto other = budget.reserve(3 * kMiB, 1002, "another user's");
  ASSERT_TRUE(other);
  EXPECT_EQ(budget.used_bytes(1001), 4 * kMiB);
  EXPECT_EQ(budget.used_bytes(1002), 3 * kMiB);
  EXPECT_EQ(budget.limit_bytes(1002), 6 * kMiB);
  EXPECT_EQ(budget.share_bytes(1002), 6 * kMiB);
  EXPECT_EQ(budget.share_bytes(0), std::nullopt);
  EXPECT_EQ(budget.limit_bytes(0), 10 * kMiB);
  EXPECT_EQ(budget.room_for(4 * kMiB, 0), ArenaBudget::Room::kFull);
  EXPECT_TRUE(budget.reserve(3 * kMiB, 0, "the admin's"));
  *first = ArenaBudget::Reservation();
  EXPECT_EQ(budget.used_bytes(1001), 0u);
}

TEST(OwnMemory, IsLookedAtOnceInTenSeconds) {
  const test::ScratchDir dir;
  testing::HandClock clock;
  OwnMemory memory(clock, files_in(dir));
  dir.write("smaps_rollup", "Pss: 2048 kB\n");
  EXPECT_EQ(memory.bytes(), 2 * kMiB);
  dir.write("smaps_rollup", "Pss: 1024 kB\n");
  clock.advance(std::chrono::milliseconds(9999));
  EXPECT_EQ(memory.bytes(), 2 * kMiB);
  clock.advance(std::chrono::milliseconds(1));
  EXPECT_EQ(memory.bytes(), kMiB);
}

TEST(ArenaBudget, PromisesNoPartOfShmTwice) {
  const test::ScratchDir dir;
  ArenaBudget budget(100 * kMiB, files_in(dir));
  auto first = budget.promise_shm(6 * kMiB, 10 * kMiB);
  ASSERT_TRUE(first);
  EXPECT_FALSE(budget.promise_shm(5 * kMiB, 10 * kMiB));
  first->keep(2 * kMiB);  // taken: the file system itself tells of them now
  EXPECT_FALSE(budget.promise_shm(5 * kMiB, 8 * kMiB));
  EXPECT_TRUE(budget.promise_shm(4 * kMiB, 8 * kMiB));
  first.reset();
  EXPECT_TRUE(budget.promise_shm(8 * kMiB, 8 * kMiB));
}

TEST(ArenaBudget, NeverGoesOverItsLimitWhateverTheThreads) {
  const test::ScratchDir dir;
  ArenaBudget budget(10, files_in(dir));
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) {
        auto held = budget.reserve(3, 1000, "x");
        EXPECT_LE(budget.used_bytes(), 10u);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(budget.used_bytes(), 0u);
}

}  // namespace
}  // namespace spdld::delivery
