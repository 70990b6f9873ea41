// SPDX-License-Identifier: Apache-2.0
#include "engine/cache/sample_cache_disk.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "engine/cache/sample_cache.h"
#include "tests/support/scratch_dir.h"
#include "tests/unit/engine/content_of.h"
#include "tests/unit/source/item/fake_sink.h"

namespace spdld::engine {
namespace {

using source::FakeSink;
using ::testing::HasSubstr;

// Remembers where things went, and lets a test wait for it.
class Locations final : public CacheLog::Sink {
 public:
  void appended(std::uint64_t item, std::uint64_t location) override { tell(item, location); }
  void dropped(std::uint64_t item) override { tell(item, std::nullopt); }

  // Nothing: it was dropped.
  std::optional<std::uint64_t> wait(std::uint64_t item) {
    MutexLock lock(mutex_);
    while (!told_.contains(item)) changed_.wait(mutex_);
    return told_.at(item);
  }
  std::size_t told() {
    MutexLock lock(mutex_);
    return told_.size();
  }

 private:
  void tell(std::uint64_t item, std::optional<std::uint64_t> location) {
    MutexLock lock(mutex_);
    EXPECT_TRUE(told_.emplace(item, location).second) << "told twice of " << item;
    changed_.notify_all();
  }

  Mutex mutex_;
  CondVar changed_;
  std::map<std::uint64_t, std::optional<std::uint64_t>> told_ SPDLD_GUARDED_BY(mutex_);
};

class DiskLogTest : public ::testing::Test {
 protected:
  UniqueFd file() {
    auto opened = open_unnamed_file(dir_.path() + "/cache");
    EXPECT_TRUE(opened) << opened.error().message();
    UniqueFd copy(::fcntl(opened->get(), F_DUPFD_CLOEXEC, 0));
    behind_ = std::move(copy);
    return std::move(opened).value();
  }
  // Reads and waits, whichever way it goes.
  static Status read(DiskLog& log, std::uint64_t location, std::uint64_t size,
                     source::ItemBytes& out) {
    FakeSink sink;
    const auto state = log.read(location, size, out, sink, 1);
    if (!state) return state.error();
    return *state == source::FetchState::kReady ? Status() : sink.wait(1);
  }

  test::ScratchDir dir_;
  UniqueFd behind_;  // the log's file
  source::IoPool io_{{.threads = 2}};
  Locations locations_;
};

TEST_F(DiskLogTest, GivesBackWhatWasWritten) {
  DiskLog log(file(), io_);
  for (std::uint64_t item = 0; item < 100; ++item)
    log.append(item, content_of(item, item * 10), locations_);
  for (std::uint64_t item = 0; item < 100; ++item) {
    const auto location = locations_.wait(item);
    ASSERT_TRUE(location);
    source::ItemBytes out;
    ASSERT_TRUE(read(log, *location, item * 10, out).ok());
    ASSERT_EQ(out.bytes.size(), item * 10);
    const std::vector<std::byte> expected = content_of(item, item * 10);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.bytes.data()));
  }
  EXPECT_TRUE(log.failure().ok());
}

TEST_F(DiskLogTest, LeavesNothingInItsDirectoryAndLetsNobodyElseIn) {
  DiskLog log(file(), io_);
  const std::string cache = dir_.path() + "/cache";
  EXPECT_TRUE(std::filesystem::is_empty(cache));
  EXPECT_EQ(std::filesystem::status(cache).permissions(), std::filesystem::perms::owner_all);
  struct stat info {};
  ASSERT_EQ(::fstat(behind_.get(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(DiskLogTest, SaysWhichDirectoryItCannotUse) {
  const std::string path = dir_.write("file", "x") + "/cache";
  const auto refused = open_unnamed_file(path);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr(path));
  EXPECT_THAT(refused.error().message(), HasSubstr("cache.dir"));
}

TEST_F(DiskLogTest, StopsWritingOnAFullDiskAndSaysSo) {
  DiskLog log(UniqueFd(::open("/dev/full", O_RDWR | O_CLOEXEC)), io_);
  log.append(1, content_of(1), locations_);
  EXPECT_FALSE(locations_.wait(1));
  EXPECT_THAT(log.failure().message(), HasSubstr("its file cannot grow"));
  EXPECT_THAT(log.failure().message(), HasSubstr("No space left on device"));
  log.append(2, content_of(2), locations_);
  EXPECT_FALSE(locations_.wait(2));
}

TEST_F(DiskLogTest, StopsWritingWhereFilesMayNotGrowAndLivesOn) {
  DiskLog log(file(), io_);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1500;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  log.append(1, content_of(1), locations_);
  log.append(2, content_of(2), locations_);
  const auto first = locations_.wait(1);
  const auto second = locations_.wait(2);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(first);
  EXPECT_FALSE(second);
  EXPECT_THAT(log.failure().message(), HasSubstr("File too large"));
  source::ItemBytes out;
  ASSERT_TRUE(read(log, *first, 1000, out).ok());  // what is there can be read
  EXPECT_EQ(std::memcmp(out.bytes.data(), content_of(1).data(), 1000), 0);
}

TEST_F(DiskLogTest, TellsThatTheFileWasCutShort) {
  DiskLog log(file(), io_);
  log.append(1, content_of(1), locations_);
  const auto location = locations_.wait(1);
  ASSERT_TRUE(location);
  ASSERT_EQ(::ftruncate(behind_.get(), 500), 0);
  source::ItemBytes out;
  const Status status = read(log, *location, 1000, out);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("became shorter"));
}

TEST_F(DiskLogTest, TellsThatTheFileCannotBeRead) {
  const std::string path = dir_.write("log", "");
  DiskLog log(UniqueFd(::open(path.c_str(), O_WRONLY | O_CLOEXEC)), io_);
  log.append(1, content_of(1), locations_);
  ASSERT_TRUE(locations_.wait(1));
  source::ItemBytes out;
  EXPECT_THAT(read(log, 0, 1000, out).message(), HasSubstr("cannot read the sample cache's file"));
}

TEST_F(DiskLogTest, DropsWhatFindsTheQueueFullAndNeverWaits) {
  DiskLog log(file(), io_, 1500);
  log.append(1, content_of(1, 1501), locations_);  // alone too much
  EXPECT_FALSE(locations_.wait(1));
  for (std::uint64_t item = 10; item < 200; ++item) log.append(item, content_of(item), locations_);
  for (std::uint64_t item = 10; item < 200; ++item) locations_.wait(item);
  EXPECT_TRUE(locations_.wait(10));
  EXPECT_TRUE(log.failure().ok());
}

TEST_F(DiskLogTest, DropsWhatIsQueuedWhenItIsClosed) {
  {
    DiskLog log(file(), io_);
    for (std::uint64_t item = 0; item < 500; ++item)
      log.append(item, content_of(item, 10'000), locations_);
  }
  EXPECT_EQ(locations_.told(), 500U);
}

TEST_F(DiskLogTest, DropsEverythingOnceThePoolHasStopped) {
  DiskLog log(file(), io_);
  io_.stop();
  log.append(1, content_of(1), locations_);
  EXPECT_FALSE(locations_.wait(1));
  source::ItemBytes out;
  EXPECT_FALSE(read(log, 0, 1000, out).ok());
}

TEST(SampleCacheOnDisk, TellsABitThatTurnedFromWhatWasKept) {
  const std::vector<std::byte> kept = content_of(3);
  test::ScratchDir dir;
  source::IoPool io({.threads = 1});
  auto file = open_unnamed_file(dir.path());
  ASSERT_TRUE(file);
  SampleCache cache({.name = "test",
                     .form = spec::CacheSpec::Form::kEncoded,
                     .where = spec::CacheSpec::Where::kDisk,
                     .limit_bytes = 1 << 20},
                    std::make_unique<DiskLog>(std::move(file).value(), io));
  cache.keep(3, {}, {}, kept);
  std::optional<CachedItem> found;
  while (!(found = cache.find(3))) std::this_thread::yield();
  EXPECT_EQ(cache.view(*found), nullptr);
  EXPECT_TRUE(SampleCache::holds(*found, kept));
  std::vector<std::byte> other = kept;
  other[500] ^= std::byte{1};
  EXPECT_FALSE(SampleCache::holds(*found, other));
  EXPECT_FALSE(SampleCache::holds(*found, std::span(kept).first(999)));

  cache.forget_lost(3, *found, Status(Code::kDataLoss, "shorter"));
  EXPECT_FALSE(cache.find(3));
  EXPECT_EQ(cache.snapshot().corrupt, 1U);
  EXPECT_EQ(cache.snapshot().why, "");
}

}  // namespace
}  // namespace spdld::engine
