// SPDX-License-Identifier: Apache-2.0
#include "delivery/arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstring>
#include <fstream>
#include <string>

#include "tests/support/sizes.h"
#include "tests/unit/delivery/small_arena.h"

namespace spdld::delivery {
namespace {

using test::kMiB;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ArenaTest : public ::testing::Test {
 protected:
  std::unique_ptr<Arena> make(ArenaShape shape, std::uint32_t id = 7) {
    auto arena = Arena::create(shape, id, budget_);
    EXPECT_TRUE(arena) << arena.error().message();
    return arena ? std::move(*arena) : nullptr;
  }
  ArenaBudget budget_{64 * kMiB, kNoFiles};
};

// What the kernel has taken for it.
std::uint64_t pages_bytes(const Arena& arena) {
  struct stat found {};
  EXPECT_EQ(::fstat(arena.client_fd(), &found), 0);
  return static_cast<std::uint64_t>(found.st_blocks) * 512;
}

TEST_F(ArenaTest, TellsItsLayoutInItsHeader) {
  const auto arena = make(kShape);
  wire::ArenaHeader header;
  ASSERT_EQ(::pread(arena->client_fd(), &header, sizeof header, 0),
            static_cast<ssize_t>(sizeof header));
  EXPECT_EQ(header.magic, wire::kArenaMagic);
  EXPECT_EQ(header.arena_id, 7u);
  EXPECT_EQ(header.slot_count, 3u);
  EXPECT_EQ(header.total_bytes, arena->total_bytes());
  EXPECT_EQ(header.slot_stride, 12'288u) << "slots begin on pages, and waste no more than one";
  EXPECT_EQ(arena->slot_offset(2), header.slots_offset + 2 * header.slot_stride);
  EXPECT_LE(arena->slot_offset(2) + kShape.slot_bytes, arena->total_bytes());
  EXPECT_EQ(std::memcmp(header.generation, arena->generation().data(), 16), 0);
}

TEST_F(ArenaTest, ShowsConsumersWhatTheDaemonWritesAfterSealing) {
  const auto arena = make(kShape);
  std::memset(arena->slot(1).data(), 0x5a, arena->slot(1).size());
  unsigned char byte = 0;
  ASSERT_EQ(::pread(arena->client_fd(), &byte, 1,
                    static_cast<off_t>(arena->slot_offset(1) + kShape.slot_bytes - 1)),
            1);
  EXPECT_EQ(byte, 0x5a);
}

TEST_F(ArenaTest, LetsNobodyWriteOrResizeThroughItsFd) {
  const auto arena = make(kShape);
  const int fd = arena->client_fd();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_EQ(::ftruncate(fd, 0), -1);
  EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(arena->total_bytes() * 2)), -1);
  EXPECT_EQ(::pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
  EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);

  void* readable = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  ASSERT_NE(readable, MAP_FAILED);
  EXPECT_EQ(::mprotect(readable, 4096, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(::madvise(readable, 4096, MADV_REMOVE), -1);
  ::munmap(readable, 4096);

  const std::string again = "/proc/self/fd/" + std::to_string(fd);
  const UniqueFd reopened(::open(again.c_str(), O_RDWR | O_CLOEXEC));
  if (reopened) {
    EXPECT_EQ(::pwrite(reopened.get(), "x", 1, 0), -1);
    EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reopened.get(), 0),
              MAP_FAILED);
  }
}

TEST_F(ArenaTest, TakesASlotsPagesOnceAndBeforeItIsWritten) {
  const auto arena = make({.kind = ArenaKind::kMemfd, .slot_bytes = kMiB, .slot_count = 4});
  EXPECT_LT(pages_bytes(*arena), kMiB);
  ASSERT_TRUE(arena->back(2).ok());
  EXPECT_GE(pages_bytes(*arena), kMiB);
  const std::uint64_t before = pages_bytes(*arena);
  ASSERT_TRUE(arena->back(2).ok());
  EXPECT_EQ(pages_bytes(*arena), before);
  for (std::uint32_t slot = 0; slot < 4; ++slot) ASSERT_TRUE(arena->back(slot).ok());
  EXPECT_GE(pages_bytes(*arena), arena->total_bytes());
}

TEST_F(ArenaTest, TakesNoPagesWhenItIsMadeWhateverItsKind) {
  const auto arena = make({.kind = ArenaKind::kPosix, .slot_bytes = kMiB, .slot_count = 4});
  EXPECT_LT(pages_bytes(*arena), kMiB);
  ASSERT_TRUE(arena->back(3).ok());
  EXPECT_GE(pages_bytes(*arena), kMiB);
  EXPECT_LT(pages_bytes(*arena), 2 * kMiB);
}

TEST_F(ArenaTest, OfKindPosixIsRefusedWhenShmCannotHoldItBesideWhatOthersHaveYetToTake) {
  struct statvfs shm {};
  ASSERT_EQ(::statvfs("/dev/shm", &shm), 0);
  const std::uint64_t free_bytes = std::uint64_t{shm.f_bavail} * shm.f_frsize;
  ArenaBudget budget(4 * free_bytes, kNoFiles);
  const ArenaShape most{
      .kind = ArenaKind::kPosix, .slot_bytes = free_bytes / 10 * 6, .slot_count = 1};
  auto first = Arena::create(most, 1, budget);
  ASSERT_TRUE(first) << first.error().message();
  const auto second = Arena::create(most, 2, budget);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(second.error().message(),
              AllOf(HasSubstr("does not fit into /dev/shm"), HasSubstr("--shm-size"),
                    HasSubstr("arena.kind: memfd")));
  first->reset();
  EXPECT_TRUE(Arena::create(most, 3, budget));
}

TEST_F(ArenaTest, OfKindPosixIsReadOnlyAndHasNoName) {
  ArenaShape shape = kShape;
  shape.kind = ArenaKind::kPosix;
  const auto arena = make(shape);
  EXPECT_EQ(::fcntl(arena->client_fd(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, arena->client_fd(), 0),
            MAP_FAILED);
  struct stat found {};
  ASSERT_EQ(::fstat(arena->client_fd(), &found), 0);
  EXPECT_EQ(found.st_nlink, 0u) << "it was unlinked";
  std::memset(arena->slot(0).data(), 1, arena->slot(0).size());
}

TEST_F(ArenaTest, OnHugePagesSaysHowManyAreMissing) {
  std::ifstream pool("/proc/sys/vm/nr_hugepages");
  int pages = -1;
  if (!(pool >> pages) || pages != 0) GTEST_SKIP() << "this machine has a pool of huge pages";
  const auto arena = Arena::create(
      {.kind = ArenaKind::kHugetlb, .slot_bytes = 3 * kMiB, .slot_count = 2}, 1, budget_);
  ASSERT_FALSE(arena);
  EXPECT_EQ(arena.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(arena.error().message(),
              AllOf(HasSubstr("4 huge pages of 2 MiB"), HasSubstr("vm.nr_hugepages"),
                    HasSubstr("arena.kind: memfd")));
  EXPECT_EQ(budget_.used_bytes(), 0u) << "what failed holds no budget";
}

TEST_F(ArenaTest, CountsAgainstTheBudgetWhileItLives) {
  auto arena = make({.kind = ArenaKind::kMemfd, .slot_bytes = 40 * kMiB, .slot_count = 1});
  const auto refused = Arena::create(
      {.kind = ArenaKind::kMemfd, .slot_bytes = 10 * kMiB, .slot_count = 3}, 2, budget_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("3 batches of 10.0 MiB"), HasSubstr("arena budget of 64.0 MiB")));
  arena.reset();
  EXPECT_EQ(budget_.used_bytes(), 0u);
}

TEST_F(ArenaTest, CannotBeOfAbsurdSize) {
  for (const ArenaShape& shape :
       {ArenaShape{.kind = ArenaKind::kMemfd, .slot_bytes = 0, .slot_count = 1},
        ArenaShape{.kind = ArenaKind::kMemfd, .slot_bytes = 1, .slot_count = 0},
        ArenaShape{.kind = ArenaKind::kMemfd, .slot_bytes = ~0ull, .slot_count = 1},
        ArenaShape{.kind = ArenaKind::kHugetlb, .slot_bytes = 1ull << 45, .slot_count = ~0u}}) {
    EXPECT_EQ(arena_bytes(shape), 0u);
    const auto arena = Arena::create(shape, 1, budget_);
    ASSERT_FALSE(arena);
    EXPECT_EQ(arena.error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace spdld::delivery
