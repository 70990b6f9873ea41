// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/sample_caches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <thread>

#include "tests/support/pipelines.h"
#include "tests/support/scratch_dir.h"
#include "tests/support/sizes.h"
#include "tests/unit/engine/kept_source.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"

namespace spdld::engine {
namespace {

using spdld::testing::KeptSource;
using test::kMiB;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kDecode = "  - fetch\n  - decode_image\n  - resize: {size: [32, 32]}\n";

std::vector<KeptSource::Bytes> images(std::size_t count = 4) {
  std::vector<KeptSource::Bytes> items;
  for (std::size_t i = 0; i < count; ++i)
    items.push_back(media::test::make_jpeg({.width = 120, .height = 90, .seed = i}));
  return items;
}

class SampleCachesTest : public ::testing::Test {
 protected:
  SampleCaches caches(std::uint64_t ram_bytes, std::uint64_t disk_bytes = 0) {
    return SampleCaches({.ram_bytes = ram_bytes,
                         .disk_bytes = disk_bytes,
                         .dir = dir_.path() + "/cache",
                         .io = io_,
                         .free_memory = [] { return std::uint64_t{1} << 40; },
                         .free_disk = [this](const std::string&) { return free_disk_; }});
  }
  static std::shared_ptr<const Plan> plan(const std::string& cache,
                                          const std::string& stages = kDecode) {
    const bool decodes = stages.find("decode") != std::string::npos;
    const auto made = testing::compile(
        stages, std::string("batch: {size: 4") + (decodes ? "" : ", max_bytes: 1MiB") + "}\n" +
                    (cache.empty() ? "" : "cache: {" + cache + "}\n"));
    EXPECT_TRUE(made) << made.error().message();
    return *made;
  }

  test::ScratchDir dir_;
  std::uint64_t free_disk_ = std::uint64_t{1} << 40;
  source::IoPool io_{{.threads = 1}};
  KeptSource source_{images()};
  KeptSource other_{images(), "elsewhere"};
};

TEST_F(SampleCachesTest, OpensNoneForAPipelineThatAsksForNone) {
  SampleCaches caches = this->caches(kMiB);
  const auto opened = caches.open(*plan(""), source_);
  ASSERT_TRUE(opened);
  EXPECT_EQ(*opened, nullptr);
}

TEST_F(SampleCachesTest, SharesOneCacheAmongPipelinesThatBeginAlike) {
  SampleCaches caches = this->caches(8 * kMiB);
  const auto first = caches.open(*plan("size: 1MiB"), source_);
  const auto second =
      caches.open(*plan("size: 2MiB",
                        "  - fetch: {concurrency: 3}\n  - decode_image\n"
                        "  - random_resized_crop: {size: 16}\n  - random_horizontal_flip\n"),
                  source_);
  ASSERT_TRUE(first && second);
  ASSERT_NE(*first, nullptr);
  EXPECT_EQ(*first, *second);
  EXPECT_EQ((*first)->limit_bytes(), 2 * kMiB);
  EXPECT_EQ(caches.snapshots().size(), 1U);
}

TEST_F(SampleCachesTest, SharesNothingBetweenWhatCouldDiffer) {
  SampleCaches caches = this->caches(32 * kMiB, 32 * kMiB);
  std::vector<std::shared_ptr<SampleCache>> all;
  const auto open = [&](const std::string& cache, const std::string& stages, KeptSource& source) {
    auto opened = caches.open(*plan(cache, stages), source);
    ASSERT_TRUE(opened) << opened.error().message();
    ASSERT_NE(*opened, nullptr);
    all.push_back(*opened);
  };
  const std::string resize = "  - resize: {size: [32, 32]}\n";
  open("size: 1MiB", kDecode, source_);
  open("size: 1MiB", kDecode, other_);
  open("size: 1MiB", "  - fetch\n  - decode_image: {mode: gray}\n" + resize, source_);
  open("size: 1MiB", "  - fetch\n  - decode_image: {exif: false}\n" + resize, source_);
  open("size: 1MiB", "  - fetch\n  - decode_image: {max_pixels: 100000}\n" + resize, source_);
  open("size: 1MiB, form: encoded", kDecode, source_);
  open("size: 1MiB, where: disk", kDecode, source_);
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " and " << j;
  }
}

TEST_F(SampleCachesTest, RefusesWhatExceedsTheBoundWithTheNumbersAndTheWayOut) {
  SampleCaches caches = this->caches(4 * kMiB);
  const auto refused = caches.open(*plan("size: 5MiB"), source_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.error().message(),
            "test.yaml:9:8: cache: it asks for 5.0 MiB of ram, more than the 4.0 MiB that all "
            "caches together may take: lower 'size', or raise cache.ram in the daemon's "
            "configuration");
  EXPECT_EQ(caches.check(*plan("size: 5MiB")), refused.error());
  EXPECT_TRUE(caches.check(*plan("size: 4MiB")).ok());
}

TEST_F(SampleCachesTest, RefusesADiskThatIsNotAllowed) {
  SampleCaches caches = this->caches(4 * kMiB);
  const Status refused = caches.check(*plan("size: 1MiB, where: disk"));
  EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("set cache.disk"), HasSubstr("where: ram")));
  EXPECT_FALSE(caches.open(*plan("size: 1MiB, where: disk"), source_));
}

TEST_F(SampleCachesTest, RefusesMoreThanTheDiskHas) {
  SampleCaches caches = this->caches(0, 100 * kMiB);
  free_disk_ = 3 * kMiB;
  const auto refused = caches.open(*plan("size: 5MiB, where: disk"), source_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("needs 5.0 MiB of disk, and " + dir_.path() + "/cache has 3.0 MiB left"));
  EXPECT_TRUE(caches.snapshots().empty());
}

TEST_F(SampleCachesTest, NamesWhoUsesTheRoom) {
  SampleCaches caches = this->caches(4 * kMiB);
  const auto first = caches.open(*plan("size: 3MiB"), source_);
  const SampleCache::Use use(*first);
  const auto refused = caches.open(*plan("size: 2MiB"), other_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(),
              AllOf(HasSubstr("it needs 2.0 MiB of ram, and 3.0 MiB of the 4.0 MiB"),
                    HasSubstr("are in use (1 cache, which 'spdlctl status' shows)")));
  // The same for one that would grow.
  EXPECT_FALSE(caches.open(*plan("size: 5MiB"), source_));
  EXPECT_EQ((*first)->limit_bytes(), 3 * kMiB);
}

TEST_F(SampleCachesTest, LetsOneTryAgainWhereTheRoomIsOnlyHeldByWhoHasEnded) {
  SampleCaches caches = this->caches(4 * kMiB);
  auto held = *caches.open(*plan("size: 3MiB"), source_);
  { const SampleCache::Use use(held); }
  const auto refused = caches.open(*plan("size: 2MiB"), other_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  EXPECT_THAT(refused.error().message(), HasSubstr("try again in a moment"));
  held.reset();
  EXPECT_TRUE(caches.open(*plan("size: 2MiB"), other_));
}

TEST_F(SampleCachesTest, KeepsACacheThatNobodyUsesUntilItsRoomIsNeeded) {
  SampleCaches caches = this->caches(4 * kMiB);
  const SampleCache* first = nullptr;
  {
    const auto opened = caches.open(*plan("size: 2MiB"), source_);
    first = opened->get();
    (*opened)->keep(1, {}, {}, std::vector<std::byte>(10));
  }
  {
    const auto again = caches.open(*plan("size: 2MiB"), source_);
    EXPECT_EQ(again->get(), first);
    EXPECT_TRUE((*again)->find(1));
  }
  const auto other = caches.open(*plan("size: 3MiB"), other_);
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_EQ(caches.snapshots().size(), 1U);
  EXPECT_EQ(caches.snapshots()[0].name, "decoded elsewhere");
}

TEST_F(SampleCachesTest, EvictsTheLongestUnusedFirst) {
  SampleCaches caches = this->caches(4 * kMiB);
  KeptSource third{images(), "third"};
  (void)caches.open(*plan("size: 2MiB"), source_);
  (void)caches.open(*plan("size: 2MiB"), other_);
  (void)caches.open(*plan("size: 2MiB"), source_);
  (void)caches.open(*plan("size: 2MiB"), third);
  const auto left = caches.snapshots();
  ASSERT_EQ(left.size(), 2U);
  EXPECT_EQ(left[0].name, "decoded kept");
  EXPECT_EQ(left[1].name, "decoded third");
}

TEST_F(SampleCachesTest, LetsUnusedCachesGoWhereItsBoundIsLoweredAndKeepsThoseInUse) {
  SampleCaches caches = this->caches(4 * kMiB);
  const auto used = *caches.open(*plan("size: 2MiB"), source_);
  (void)caches.open(*plan("size: 2MiB"), other_);
  caches.set_ram(kMiB);
  ASSERT_EQ(caches.snapshots().size(), 1U);
  EXPECT_EQ(caches.snapshots()[0].name, "decoded kept");
  EXPECT_FALSE(caches.open(*plan("size: 1MiB"), other_));
  caches.set_ram(3 * kMiB);
  EXPECT_TRUE(caches.open(*plan("size: 1MiB"), other_));
}

TEST_F(SampleCachesTest, TakesNothingFromWhoStillReads) {
  SampleCaches caches = this->caches(2 * kMiB);
  const std::vector<std::byte> bytes(1000, std::byte{42});
  auto reader = *caches.open(*plan("size: 2MiB"), source_);
  reader->keep(1, {}, {}, bytes);
  const CachedItem found = *reader->find(1);
  EXPECT_FALSE(caches.open(*plan("size: 1MiB"), other_));
  EXPECT_EQ(std::memcmp(reader->view(found), bytes.data(), bytes.size()), 0);
  reader.reset();
  EXPECT_TRUE(caches.open(*plan("size: 1MiB"), other_));
}

TEST_F(SampleCachesTest, LeavesARunWithoutACacheThatWouldCostMoreThanItSaves) {
  SampleCaches caches = this->caches(4 * kMiB);
  KeptSource many{images(4000)};
  const auto small = plan("size: 40kB");
  EXPECT_FALSE(caches.estimate(*small, many).used);
  const auto opened = caches.open(*small, many);
  ASSERT_TRUE(opened);
  EXPECT_EQ(*opened, nullptr);
  EXPECT_TRUE(caches.snapshots().empty());
  EXPECT_TRUE(caches.unused({"another"}).empty());
  ASSERT_EQ(caches.unused({"test"}).size(), 1U);
  EXPECT_THAT(caches.unused({"test"})[0],
              HasSubstr("pipeline 'test': its cache is not used: it holds so little"));
  // Raised as that says, it is used.
  EXPECT_NE(*caches.open(*plan("size: 4MiB"), many), nullptr);
  EXPECT_TRUE(caches.unused({"test"}).empty());
}

TEST_F(SampleCachesTest, WarnsOfACacheWhoseDiskIsFull) {
  SampleCaches caches = this->caches(0, 4 * kMiB);
  const auto opened = *caches.open(*plan("size: 2MiB, where: disk"), source_);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  opened->keep(1, {}, {}, std::vector<std::byte>(1000));
  while (opened->snapshot().dropped == 0) std::this_thread::yield();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_EQ(caches.snapshots().size(), 1U);
  EXPECT_THAT(caches.snapshots()[0].why,
              AllOf(HasSubstr("it keeps nothing more"), HasSubstr("cache.dir")));
  EXPECT_EQ(opened->snapshot().bytes, 0U);
}

TEST_F(SampleCachesTest, LooksAtNoItemWhereAnEstimateWasMadeBefore) {
  SampleCaches caches = this->caches(4 * kMiB);
  const auto asks = plan("size: 1MiB");
  const CacheEstimate estimate = caches.estimate(*asks, source_);
  const std::uint64_t brought = source_.brought();
  EXPECT_GT(brought, 0U);
  const auto opened = caches.open(*asks, source_, estimate);
  ASSERT_TRUE(opened);
  EXPECT_NE(*opened, nullptr);
  EXPECT_EQ(source_.brought(), brought);
  EXPECT_FALSE(caches.open(*plan("size: 5MiB"), source_, estimate));
}

TEST_F(SampleCachesTest, RefusesASourceThatCannotTellWhatChanged) {
  SampleCaches caches = this->caches(4 * kMiB);
  KeptSource unknown{images(), ""};
  const auto refused = caches.open(*plan("size: 1MiB"), unknown);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("cannot tell whether an item has changed"));
}

TEST_F(SampleCachesTest, SaysWhichDirectoryItCannotUse) {
  SampleCaches caches({.ram_bytes = 0,
                       .disk_bytes = 10 * kMiB,
                       .dir = dir_.write("file", "x") + "/cache",
                       .io = io_,
                       .free_memory = nullptr,
                       .free_disk = [](const std::string&) { return 100 * kMiB; }});
  const auto refused = caches.open(*plan("size: 1MiB, where: disk"), source_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("see cache.dir"));
}

TEST_F(SampleCachesTest, TellsNothingToWorryAboutWhileAllIsWell) {
  SampleCaches caches = this->caches(4 * kMiB);
  const auto opened = caches.open(*plan("size: 1MiB"), source_);
  EXPECT_EQ(caches.snapshots().at(0).why, "");
  EXPECT_TRUE(caches.unused({"test"}).empty());
}

}  // namespace
}  // namespace spdld::engine
