// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "source/file/disk.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {

// What every Disk promises. A Maker has
//   std::unique_ptr<Disk> make(const TempDir& root);
// which makes a disk of the files below `root`.
template <typename Maker>
class DiskSuite : public ::testing::Test {
 protected:
  DiskSuite() {
    root_.file("a.bin", content_);
    root_.file("deep/er/b.bin", "b");
    root_.file("empty.bin", "");
  }

  static constexpr std::size_t kMostBytes = 100'000;  // more than any of the files has

  static OpenFile opened(Disk& disk, const std::string& uri) {
    OpenFile file;
    EXPECT_EQ(disk.open(uri, file), 0) << uri;
    EXPECT_TRUE(file.fd) << uri;
    return file;
  }
  // All that read() gives from `offset` on; it may give less at a time than it is asked for.
  static std::string text_of(Disk& disk, const OpenFile& file, std::uint64_t offset = 0) {
    std::string text;
    std::byte part[64];
    while (text.size() <= kMostBytes) {
      const ssize_t count = disk.read(file, part, offset + text.size());
      EXPECT_GE(count, 0);
      EXPECT_LE(count, static_cast<ssize_t>(sizeof part));
      if (count <= 0) return text;
      text.append(reinterpret_cast<const char*>(part), static_cast<std::size_t>(count));
    }
    ADD_FAILURE() << "the file has no end";
    return text;
  }

  Maker maker_;
  TempDir root_;
  const std::string content_ = [] {
    std::string text;
    for (int i = 0; i < 1000; ++i) text += std::to_string(i) + ' ';
    return text;
  }();
};

TYPED_TEST_SUITE_P(DiskSuite);

TYPED_TEST_P(DiskSuite, OpensFilesAndTellsTheirSizes) {
  const auto disk = this->maker_.make(this->root_);
  EXPECT_EQ(this->opened(*disk, "a.bin").size_bytes, this->content_.size());
  EXPECT_EQ(this->opened(*disk, "deep/er/b.bin").size_bytes, 1U);
  EXPECT_EQ(this->opened(*disk, "empty.bin").size_bytes, 0U);
}

TYPED_TEST_P(DiskSuite, ReadsTheBytesFromAnyOffsetToTheEnd) {
  const auto disk = this->maker_.make(this->root_);
  const OpenFile file = this->opened(*disk, "a.bin");
  for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, std::size_t{777},
                                   this->content_.size() - 1, this->content_.size()})
    EXPECT_EQ(this->text_of(*disk, file, offset), this->content_.substr(offset));
  EXPECT_EQ(this->text_of(*disk, file, this->content_.size() + 5), "");
  EXPECT_EQ(this->text_of(*disk, this->opened(*disk, "empty.bin")), "");
}

TYPED_TEST_P(DiskSuite, GivesTheSameBytesFromThePageCacheOrNone) {
  const auto disk = this->maker_.make(this->root_);
  const OpenFile file = this->opened(*disk, "a.bin");
  EXPECT_EQ(this->text_of(*disk, file), this->content_);  // so that the page cache holds it
  bool is_cached = false;
  for (const std::uint64_t offset : {0, 1, 500}) {
    std::string bytes(100, '\0');
    const ssize_t count = disk->read_cached(file, std::as_writable_bytes(std::span(bytes)), offset);
    if (count == 0 || Disk::is_uncached(count)) continue;
    ASSERT_GT(count, 0);
    ASSERT_LE(count, 100);
    const auto size = static_cast<std::size_t>(count);
    EXPECT_EQ(bytes.substr(0, size), this->content_.substr(offset, size));
    is_cached = true;
  }
  if (!is_cached) GTEST_SKIP() << "this file system tells nothing of its page cache";
}

TYPED_TEST_P(DiskSuite, TellsAMissingFileFromOneThatIsNoFile) {
  const auto disk = this->maker_.make(this->root_);
  ASSERT_EQ(::mkfifo(this->root_.path("pipe").c_str(), 0600), 0);
  OpenFile file;
  EXPECT_EQ(disk->open("none.bin", file), ENOENT);
  EXPECT_EQ(disk->open("none/b.bin", file), ENOENT);
  EXPECT_EQ(disk->open("a.bin/b.bin", file), ENOTDIR);
  EXPECT_EQ(disk->open("deep", file), EISDIR);
  EXPECT_EQ(disk->open("pipe", file), EISDIR);
  EXPECT_FALSE(file.fd);
  EXPECT_EQ(this->text_of(*disk, this->opened(*disk, "a.bin")), this->content_) << "afterwards";
}

TYPED_TEST_P(DiskSuite, KeepsAnOpenFileThatIsRemoved) {
  const auto disk = this->maker_.make(this->root_);
  const OpenFile file = this->opened(*disk, "a.bin");
  this->root_.remove("a.bin");
  EXPECT_EQ(this->text_of(*disk, file), this->content_);
  OpenFile again;
  EXPECT_EQ(disk->open("a.bin", again), ENOENT);
}

TYPED_TEST_P(DiskSuite, OpensAKnownNameAtOnceUnlessOpeningBlocks) {
  const auto disk = this->maker_.make(this->root_);
  this->opened(*disk, "a.bin");
  EXPECT_EQ(disk->opening("a.bin").at_once, !disk->opening_blocks());
}

TYPED_TEST_P(DiskSuite, ServesManyThreadsAtOnce) {
  const auto disk = this->maker_.make(this->root_);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int turn = 0; turn < 20; ++turn) {
        EXPECT_EQ(this->text_of(*disk, this->opened(*disk, "a.bin")), this->content_);
        OpenFile none;
        EXPECT_EQ(disk->open("none.bin", none), ENOENT);
        disk->opening("a.bin");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

REGISTER_TYPED_TEST_SUITE_P(DiskSuite, OpensFilesAndTellsTheirSizes,
                            ReadsTheBytesFromAnyOffsetToTheEnd,
                            GivesTheSameBytesFromThePageCacheOrNone,
                            TellsAMissingFileFromOneThatIsNoFile, KeepsAnOpenFileThatIsRemoved,
                            OpensAKnownNameAtOnceUnlessOpeningBlocks, ServesManyThreadsAtOnce);

}  // namespace spdld::source
