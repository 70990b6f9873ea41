// SPDX-License-Identifier: Apache-2.0
#include "source/file/held_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "source/file/file_fetcher.h"
#include "source/item/indexed_files.h"
#include "tests/support/clocks.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using spdld::testing::AheadClock;

// All that a file has is in the page cache; what is asked of it is counted.
class CountingDisk final : public Disk {
 public:
  explicit CountingDisk(const std::string& root)
      : disk_(UniqueFd(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)),
              std::make_shared<const Access>(AccessRules(), Credentials::own()),
              Access::Links::kFollow, false, 1) {}

  int open(const std::string& uri, OpenFile& file) override {
    ++opens;
    return disk_.open(uri, file);
  }
  ssize_t read_cached(const OpenFile& file, std::span<std::byte> out,
                      std::uint64_t offset) override {
    ++reads;
    if (offset >= cached_bytes) return -EAGAIN;
    const ssize_t count = disk_.read(file, out, offset);
    if (while_reading) while_reading();
    return count;
  }
  ssize_t read(const OpenFile& file, std::span<std::byte> out, std::uint64_t offset) override {
    return disk_.read(file, out, offset);
  }
  Opening opening(const std::string&) const override { return {.at_once = at_once, .device = 1}; }
  bool opening_blocks() const override { return false; }
  dev_t device() const override { return 1; }

  int opens = 0;
  int reads = 0;
  std::uint64_t cached_bytes = ~std::uint64_t{0};
  bool at_once = true;
  std::function<void()> while_reading;

 private:
  SystemDisk disk_;
};

class NoIndex final : public IndexedFiles {
 public:
  Status compare(std::uint64_t, FileBytes&) const override { return {Code::kDataLoss, "is other"}; }
};

constexpr std::uint64_t kRowBytes = 1000;
constexpr std::uint64_t kRows = 1000;

std::string row_text(std::uint64_t row) {
  return std::string(kRowBytes - 8, static_cast<char>('a' + row % 26)) +
         std::to_string(10'000'000 + row);
}

std::string rows_text() {
  std::string text;
  for (std::uint64_t row = 0; row < kRows; ++row) text += row_text(row);
  return text;
}

// Two files of equal rows, as an index saw them.
class HeldReaderTest : public ::testing::Test {
 protected:
  HeldReaderTest() {
    add("a.tar");
    add("b.tar");
    clock_->advance(std::chrono::seconds(60));
    start(nullptr);
  }

  void add(const std::string& name) {
    names_.push_back(name);
    dir_.file(name, rows_text());
    stamps_.push_back(stamp(name));
    // Until the file system's clock has gone on: a later change shows in the stamp.
    do dir_.file("later");
    while (stamp("later").ctime_ns == stamps_.back().ctime_ns);
  }
  ItemStamp stamp(const std::string& name) const {
    const UniqueFd fd(::open(dir_.path(name).c_str(), O_RDONLY | O_CLOEXEC));
    return stamp_of_fd(fd.get()).value();
  }

  void start(std::shared_ptr<ReadWindows> windows,
             std::chrono::nanoseconds unused = HeldFiles::kUnused) {
    auto disk = std::make_unique<CountingDisk>(dir_.path());
    disk_ = disk.get();
    reader_ = std::make_unique<HeldReader>(
        std::make_shared<const RangeReader>(one_root(dir_.path(), std::move(disk)), 0,
                                            RangeReader::Options{.clock = clock_}),
        std::move(windows), std::make_shared<HeldFiles>(io_, unused));
  }
  // How many descriptors of this process lead to the file.
  std::ptrdiff_t open_descriptors(const std::string& name) const {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::count_if(begin(all), end(all), [&](const std::filesystem::directory_entry& fd) {
      std::error_code gone;
      return std::filesystem::read_symlink(fd.path(), gone) == dir_.path(name);
    });
  }
  // Row r lies in the file of number r % files. Returns which were brought; each of them has its
  // bytes.
  std::vector<std::uint64_t> bring(const std::vector<std::uint64_t>& rows) {
    std::vector<FetchedItem> items(rows.size());
    std::vector<WantedItem> wanted;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t file = rows[i] % names_.size();
      items[i].begin();
      FileRange& range = items[i].add_range();
      range.uri = names_[file];
      range.offset = rows[i] * kRowBytes;
      range.size_bytes = kRowBytes;
      range.expected = {.stamp = stamps_[file], .files = &index_, .number = file};
      items[i].add_place({});
      wanted.push_back({.item = rows[i], .out = &items[i]});
    }
    reader_->bring(wanted);
    std::vector<std::uint64_t> brought;
    for (const WantedItem& item : wanted) {
      if (!item.brought) {
        EXPECT_EQ(item.out->bytes.capacity(), 0U);
        continue;
      }
      brought.push_back(item.item);
      const auto bytes = item.out->placed(0);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                row_text(item.item));
    }
    return brought;
  }
  // In place: the inode stays.
  void write(const std::string& name, std::uint64_t offset, const std::string& text) {
    std::fstream file(dir_.path(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file << text;
  }

  std::vector<std::string> names_;
  TempDir dir_;
  std::vector<ItemStamp> stamps_;
  NoIndex index_;
  std::shared_ptr<AheadClock> clock_ = std::make_shared<AheadClock>();
  IoPool io_{{.threads = 2}};
  CountingDisk* disk_ = nullptr;  // the reader's
  std::unique_ptr<HeldReader> reader_;
};

using Rows = std::vector<std::uint64_t>;

TEST_F(HeldReaderTest, BringsRowsOfSeveralFilesInAnyOrder) {
  const Rows rows{7, 0, 999, 2, 998, 501};
  EXPECT_EQ(bring(rows), rows);
  EXPECT_EQ(disk_->opens, 2);
  EXPECT_EQ(bring({}), Rows());
}

TEST_F(HeldReaderTest, OpensAFileOnceForManyCalls) {
  for (std::uint64_t row = 0; row < 50; ++row) EXPECT_EQ(bring({row}), Rows{row});
  EXPECT_LE(disk_->opens, 10);  // and looks at its name ten times a second
}

TEST_F(HeldReaderTest, LeavesWhatThePageCacheDoesNotHoldToOthers) {
  disk_->cached_bytes = 500 * kRowBytes;
  EXPECT_EQ(bring({0, 499, 500, 999}), (Rows{0, 499}));
  disk_->at_once = false;
  start(nullptr);
  disk_->at_once = false;
  EXPECT_EQ(bring({0}), Rows());
}

TEST_F(HeldReaderTest, BringsNothingOfAFileThatWasWrittenInPlace) {
  EXPECT_EQ(bring({0, 1}), (Rows{0, 1}));
  write("a.tar", 5, "other");
  EXPECT_EQ(bring({0, 2, 1}), Rows{1});
}

TEST_F(HeldReaderTest, BringsNothingOfAFileThatWasCutOrHasGrown) {
  EXPECT_EQ(bring({0, 1}), (Rows{0, 1}));
  std::filesystem::resize_file(dir_.path("a.tar"), 10 * kRowBytes);
  EXPECT_EQ(bring({0, 1}), Rows{1});
  write("b.tar", kRows * kRowBytes, "more");
  EXPECT_EQ(bring({0, 1}), Rows());
}

TEST_F(HeldReaderTest, BringsNothingOfAFileThatChangesBetweenTwoRowsOfACall) {
  disk_->while_reading = [this] {
    if (disk_->reads == 3) write("a.tar", 0, "other");
  };
  EXPECT_EQ(bring({0, 2, 4, 6, 8, 1, 3}), (Rows{1, 3}));
}

TEST_F(HeldReaderTest, NoticesAnotherFileUnderTheNameThatItHolds) {
  EXPECT_EQ(bring({0, 1}), (Rows{0, 1}));
  dir_.file("other", std::string(kRows * kRowBytes, 'x'));
  std::filesystem::rename(dir_.path("other"), dir_.path("a.tar"));
  // Until the reader looks; what it brings is of the file that was there.
  while (bring({0, 1}) != Rows{1}) {
  }
  dir_.remove("b.tar");
  while (!bring({1}).empty()) {
  }
}

TEST_F(HeldReaderTest, ReadsAFileThatHasComeBack) {
  std::filesystem::rename(dir_.path("a.tar"), dir_.path("away"));
  EXPECT_EQ(bring({0}), Rows());
  std::filesystem::rename(dir_.path("away"), dir_.path("a.tar"));
  // A rename is a change of the inode: the index knows it as another file until it was compared.
  stamps_[0] = stamp("a.tar");
  EXPECT_EQ(bring({0}), Rows{0});
}

TEST_F(HeldReaderTest, ClosesAFileThatNobodyReadsAndOpensItAnew) {
  start(nullptr, std::chrono::milliseconds(1));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(bring({0, 1}), (Rows{0, 1}));
    while (open_descriptors("a.tar") + open_descriptors("b.tar") > 0) std::this_thread::yield();
  }
}

TEST_F(HeldReaderTest, ClosesItsFilesWhenItGoesThoughThePoolStays) {
  EXPECT_EQ(bring({0}), Rows{0});
  EXPECT_EQ(open_descriptors("a.tar"), 1);
  reader_.reset();
  while (open_descriptors("a.tar") > 0) std::this_thread::yield();  // the pool may look just now
}

TEST_F(HeldReaderTest, BringsNoMoreThanItMayHold) {
  Rows many;
  for (std::uint64_t row = 0; row < kRows; ++row) many.push_back(row);
  many.insert(many.end(), many.begin(), many.begin() + 100);
  const Rows brought = bring(many);
  EXPECT_EQ(brought.size(), HeldReader::kMostBytes / kRowBytes);
}

TEST_F(HeldReaderTest, HoldsNoMoreFilesThanAQuarterOfTheDescriptors) {
  Rows rows{0, 1};
  for (std::uint64_t file = 2; file < 30; ++file) {
    add(std::to_string(file) + ".tar");
    rows.push_back(file);
  }
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  struct rlimit few = before;
  few.rlim_cur = 40;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  const Rows first = bring(rows);
  const int opens = disk_->opens;
  const Rows second = bring(rows);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(first, rows);
  EXPECT_EQ(second, rows);
  EXPECT_GE(disk_->opens - opens, 20);
}

TEST_F(HeldReaderTest, ReadsAWindowOnceForAllRowsInIt) {
  start(std::make_shared<ReadWindows>(8));
  for (std::uint64_t row = 0; row < kRows; row += 2) EXPECT_EQ(bring({row}), Rows{row});
  // A row that lies in two windows is read by itself.
  EXPECT_LE(disk_->reads, 2 * 4);
}

TEST_F(HeldReaderTest, ForgetsTheWindowThatWasUsedLongestAgo) {
  start(std::make_shared<ReadWindows>(2));
  const std::uint64_t apart = ReadWindows::kWindowBytes / kRowBytes + 2;  // even: of one file
  EXPECT_EQ(bring({0, apart}), (Rows{0, apart}));
  EXPECT_EQ(disk_->reads, 2);
  EXPECT_EQ(bring({2}), Rows{2});
  EXPECT_EQ(disk_->reads, 2);
  EXPECT_EQ(bring({2 * apart}), Rows{2 * apart});  // in place of the second one
  EXPECT_EQ(bring({4}), Rows{4});
  EXPECT_EQ(disk_->reads, 3);
  EXPECT_EQ(bring({apart}), Rows{apart});
  EXPECT_EQ(disk_->reads, 4);
}

TEST_F(HeldReaderTest, BringsNothingFromAWindowOnceItsFileHasChanged) {
  start(std::make_shared<ReadWindows>(8));
  EXPECT_EQ(bring({0, 1}), (Rows{0, 1}));
  write("a.tar", 900'000, "other");
  EXPECT_EQ(bring({0, 1}), Rows{1});
}

TEST_F(HeldReaderTest, KeepsNoWindowOfAFileThatMayChangeUnseen) {
  clock_->advance(std::chrono::seconds(-60));
  start(std::make_shared<ReadWindows>(8));
  for (const std::string& name : names_) write(name, 0, row_text(0).substr(0, 1));
  for (std::size_t file = 0; file < names_.size(); ++file) stamps_[file] = stamp(names_[file]);
  EXPECT_EQ(bring({0}), Rows{0});
  EXPECT_EQ(bring({0}), Rows{0});
  EXPECT_EQ(disk_->reads, 2);
}

}  // namespace
}  // namespace spdld::source
