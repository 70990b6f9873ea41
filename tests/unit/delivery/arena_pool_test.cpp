// SPDX-License-Identifier: Apache-2.0
#include "delivery/arena_pool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/clocks.h"
#include "tests/support/sizes.h"
#include "tests/unit/delivery/small_arena.h"

namespace spdld::delivery {
namespace {

using std::chrono::seconds;
using test::kMiB;
using ::testing::HasSubstr;

ArenaShape large(std::uint64_t bytes) {
  return {.kind = ArenaKind::kMemfd, .slot_bytes = bytes, .slot_count = 1};
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

class ArenaPoolTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Arena> take(ArenaPool& pool, const ArenaShape& shape, uid_t uid = 1000) {
    auto arena = pool.take(shape, uid);
    EXPECT_TRUE(arena) << arena.error().message();
    return arena ? std::move(*arena) : nullptr;
  }

  spdld::testing::HandClock clock_;
  ArenaBudget budget_{64 * kMiB, kNoFiles};
};

TEST_F(ArenaPoolTest, GivesAnIdleArenaOutAgainWarmAndWithANewGeneration) {
  ArenaPool pool(budget_, {.bytes = 64 * kMiB}, clock_);
  auto first = take(pool, kShape);
  const void* memory = first->slot(0).data();
  const std::string old_generation(first->generation().begin(), first->generation().end());
  const std::uint32_t old_id = first->id();
  pool.give_back(std::move(first), 1000);
  EXPECT_GT(pool.idle_bytes(), 0u);

  const auto second = take(pool, kShape);
  EXPECT_EQ(second->slot(0).data(), memory);
  EXPECT_NE(second->id(), old_id);
  EXPECT_NE(std::string(second->generation().begin(), second->generation().end()), old_generation);
  EXPECT_EQ(pool.idle_bytes(), 0u);
}

TEST_F(ArenaPoolTest, NeverGivesOneUsersArenaToAnother) {
  ArenaPool pool(budget_, {.bytes = 64 * kMiB}, clock_);
  auto first = take(pool, kShape, 1000);
  std::memset(first->slot(0).data(), 0x77, first->slot(0).size());
  pool.give_back(std::move(first), 1000);
  EXPECT_EQ(take(pool, kShape, 1001)->slot(0)[0], std::byte{0});
  ArenaShape larger = kShape;
  larger.slot_count = 4;
  EXPECT_EQ(take(pool, larger, 1000)->shape(), larger);
}

TEST_F(ArenaPoolTest, LetsIdleArenasGoWhenTheBudgetIsNeeded) {
  ArenaPool pool(budget_, {.bytes = 64 * kMiB}, clock_);
  pool.give_back(take(pool, large(40 * kMiB), 1), 1);
  ASSERT_GT(budget_.used_bytes(), 40 * kMiB);
  EXPECT_NE(take(pool, large(40 * kMiB), 2), nullptr);
  EXPECT_EQ(pool.idle_bytes(), 0u);
}

TEST_F(ArenaPoolTest, MakesRoomInAUsersShareByThatUsersIdleArenasAlone) {
  ArenaBudget budget(64 * kMiB, kNoFiles, {.bytes = 16 * kMiB});
  ArenaPool pool(budget, {.bytes = 64 * kMiB}, clock_);
  pool.give_back(take(pool, large(10 * kMiB), 1), 1);
  pool.give_back(take(pool, large(12 * kMiB), 2), 2);
  const auto second = take(pool, large(11 * kMiB), 2);
  EXPECT_EQ(pool.idle_bytes(), arena_bytes(large(10 * kMiB)));
  const auto refused = pool.take(large(11 * kMiB), 2);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("limits.arena"));
  EXPECT_EQ(pool.idle_bytes(), arena_bytes(large(10 * kMiB)));
}

TEST_F(ArenaPoolTest, KeepsNoMoreBytesThanItMay) {
  ArenaPool pool(budget_, {.bytes = arena_bytes(kShape)}, clock_);
  auto first = take(pool, kShape);
  auto second = take(pool, kShape);
  pool.give_back(std::move(first), 1000);
  pool.give_back(std::move(second), 1000);
  EXPECT_EQ(pool.idle_bytes(), arena_bytes(kShape));
  pool.release_idle();
  EXPECT_EQ(budget_.used_bytes(), 0u);
}

TEST_F(ArenaPoolTest, KeepsNoMoreArenasThanItMay) {
  ArenaPool pool(budget_, {.bytes = 64 * kMiB, .arenas = 3}, clock_);
  std::vector<std::unique_ptr<Arena>> taken;
  for (int i = 0; i < 5; ++i) taken.push_back(take(pool, kShape));
  for (auto& arena : taken) pool.give_back(std::move(arena), 1000);
  EXPECT_EQ(pool.idle_bytes(), 3 * arena_bytes(kShape));
}

TEST_F(ArenaPoolTest, KeepsNoArenaLongerThanItMay) {
  ArenaPool pool(budget_, {.bytes = 64 * kMiB, .age = seconds(30)}, clock_);
  auto first = take(pool, kShape);
  auto second = take(pool, kShape);
  pool.give_back(std::move(first), 1000);
  clock_.advance(seconds(20));
  pool.give_back(std::move(second), 1000);
  pool.tick();
  EXPECT_EQ(pool.idle_bytes(), 2 * arena_bytes(kShape));
  clock_.advance(seconds(10));
  pool.tick();
  EXPECT_EQ(pool.idle_bytes(), arena_bytes(kShape));
  clock_.advance(seconds(20));
  pool.tick();
  EXPECT_EQ(pool.idle_bytes(), 0u);
  EXPECT_EQ(budget_.used_bytes(), 0u);
}

TEST_F(ArenaPoolTest, KeepsNothingAtAgeZero) {
  ArenaPool pool(budget_, {.bytes = 64 * kMiB, .age = seconds(0)}, clock_);
  pool.give_back(take(pool, kShape), 1000);
  EXPECT_EQ(pool.idle_bytes(), 0u);
}

TEST_F(ArenaPoolTest, GivesUpTheBudgetOfABuriedArenaAtOnceAndItsDescriptorSoon) {
  ArenaPool pool(budget_, {.bytes = 64 * kMiB}, clock_);
  const std::size_t before = open_descriptors();
  auto arena = take(pool, kShape);
  pool.bury(std::move(arena));
  EXPECT_EQ(budget_.used_bytes(), 0u);
  pool.settle();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ArenaPoolTest, LetsIdleArenasGoWhenDescriptorsRunOut) {
  ArenaPool pool(budget_, {.bytes = 64 * kMiB, .arenas = 100}, clock_);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const std::size_t open = open_descriptors();
  rlimit few = before;
  few.rlim_cur = open + 80;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  // Each of another shape, so that none serves twice.
  for (std::uint32_t slots = 1; slots <= 300; ++slots) {
    ArenaShape shape = kShape;
    shape.slot_count = slots;
    auto arena = take(pool, shape);
    if (arena == nullptr) break;
    pool.give_back(std::move(arena), 1000);
    pool.settle();
    const UniqueFd another(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    EXPECT_TRUE(another) << "others need descriptors, too, at arena " << slots;
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  pool.release_idle();
  pool.settle();
  EXPECT_EQ(open_descriptors(), open);
}

}  // namespace
}  // namespace spdld::delivery
