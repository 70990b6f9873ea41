// SPDX-License-Identifier: Apache-2.0
// Files that change under an open source: each item is what the index saw, or an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "source/file/disk.h"
#include "tests/support/tar_writer.h"
#include "tests/unit/source/clips/clips_fixture.h"

namespace spdld::source {
namespace {

using test::TarWriter;
using test::ToyMedia;
using ::testing::HasSubstr;

// What becomes of the file.
struct Change {
  bool other_inode = false;
  bool other_content = false;
  bool other_size = false;
  bool other_time = false;

  std::string text() const {
    return std::string(other_inode ? "replaced" : "rewritten") +
           (other_content ? ", other content" : "") + (other_size ? ", other size" : "") +
           (other_time ? ", other time" : "");
  }
  bool is_same() const { return !other_content && !other_size && !other_time; }
};

std::vector<Change> changes() {
  std::vector<Change> all;
  for (int bits = 0; bits < 16; ++bits)
    all.push_back({.other_inode = (bits & 1) != 0,
                   .other_content = (bits & 2) != 0,
                   .other_size = (bits & 4) != 0,
                   .other_time = (bits & 8) != 0});
  return all;
}

class ChangedFilesTest : public ClipsFixture {
 protected:
  // Changes the file below the directory, which has `content`, or `other` of the same size. Its
  // ctime is another in any case.
  void change(const std::string& name, const Change& change, const std::string& content,
              const std::string& other) const {
    ASSERT_EQ(content.size(), other.size());
    ASSERT_NE(content, other);
    const std::string path = dir_.path(name);
    struct stat before {};
    ASSERT_EQ(::stat(path.c_str(), &before), 0);
    std::string text = change.other_content ? other : content;
    if (change.other_size) text += std::string(512, '\0');
    const std::string written = change.other_inode ? path + ".new" : path;
    std::ofstream(written, std::ios::binary) << text;
    timespec times[2] = {before.st_atim, before.st_mtim};
    if (change.other_time) times[1].tv_sec -= 100;
    ASSERT_EQ(::utimensat(AT_FDCWD, written.c_str(), times, 0), 0);
    if (change.other_inode) std::filesystem::rename(written, path);
  }

  // Every item's part, or why it could not be had.
  struct Had {
    Status status;
    std::string bytes;
  };
  std::vector<Had> fetch_all(Source& source) {
    std::vector<Had> all;
    for (std::uint64_t item = 0; item < source.size(); ++item) {
      Had& had = all.emplace_back();
      had.status = fetch_and_wait(source, item, item_, {{.part = 0}});
      if (had.status.ok()) had.bytes = text_of(item_.part(0));
    }
    return all;
  }

  // Whether all items of `source` are what they were, as `change` says they must be.
  void expect(Source& source, const std::vector<Had>& before, const Change& change) {
    const std::vector<Had> now = fetch_all(source);
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (change.is_same()) {
        EXPECT_TRUE(now[i].status.ok()) << change.text() << ": " << now[i].status.message();
        EXPECT_EQ(now[i].bytes, before[i].bytes) << change.text() << ", item " << i;
      } else {
        EXPECT_EQ(now[i].status.code(), Code::kDataLoss) << change.text() << ", item " << i;
        EXPECT_THAT(now[i].status.message(), HasSubstr("has changed since it was indexed"));
      }
    }
  }
  void expect_each_change(const std::string& name, const std::string& content,
                          const std::string& other,
                          const std::function<std::unique_ptr<Source>()>& opened) {
    for (const Change& each : changes()) {
      dir_.file(name, content);
      const auto source = opened();
      ASSERT_NE(source, nullptr);
      const std::vector<Had> before = fetch_all(*source);
      for (const Had& had : before) ASSERT_TRUE(had.status.ok()) << had.status.message();
      change(name, each, content, other);
      expect(*source, before, each);
    }
  }
  std::unique_ptr<Source> open_shards(const WebdatasetSpec& spec) {
    auto source = try_open({.items = spec});
    EXPECT_TRUE(source) << source.error().message();
    return source ? std::move(source).value() : nullptr;
  }
  WebdatasetSpec shards(const std::string& suffix) const {
    WebdatasetSpec spec;
    spec.shards = {dir_.path("a.tar")};
    spec.parts = {{.field = "part", .suffixes = {suffix}}};
    return spec;
  }
};

// A video, or sound, of 40 packets; `turned`: two neighbours have each other's sizes, so that the
// file is as long and the packets lie elsewhere.
std::string media(bool sound, bool turned) {
  ToyMedia toy;
  const int stream = sound ? toy.add_sound(4000) : toy.add_video();
  for (std::int64_t i = 0; i < 40; ++i) {
    const bool longer = i == (turned ? 11 : 10);
    toy.put(stream, {.size_bytes = longer ? 50u : 40u,
                     .key = sound || i % 10 == 0,
                     .pts = sound ? i * 100 : i,
                     .dts = sound ? i * 100 : i,
                     .duration = sound ? 100 : 1});
  }
  return toy.bytes();
}

std::string tar_of(const std::string& suffix, int first, int step, char bytes = 'a') {
  TarWriter tar;
  for (int i = 0; i < 10; ++i)
    tar.file(std::to_string(first + step * i) + "." + suffix,
             std::string(600, static_cast<char>(bytes + i)));
  return tar.archive();
}

TEST_F(ChangedFilesTest, ShardsAreWhatTheIndexSaw) {
  expect_each_change("a.tar", tar_of("bin", 0, 1), tar_of("bin", 9, -1),
                     [this] { return open_shards(shards("bin")); });
}

TEST_F(ChangedFilesTest, LabelsOfShardsAreWhatTheIndexSaw) {
  const auto tar = [](const std::string& label) {
    return TarWriter().file("0.bin", "bytes").file("0.cls", label).archive();
  };
  WebdatasetSpec spec = shards("bin");
  spec.labels = {{.field = "label", .suffixes = {"cls"}}};
  expect_each_change("a.tar", tar("3"), tar("4"), [this, &spec] { return open_shards(spec); });
}

TEST_F(ChangedFilesTest, ClipsAreWhatTheIndexSaw) {
  expect_each_change("data/a.toy", media(false, false), media(false, true),
                     [this] { return open({.frames = 4, .hop_frames = 4}); });
}

TEST_F(ChangedFilesTest, WindowsAreWhatTheIndexSaw) {
  expect_each_change("data/a.toy", media(true, false), media(true, true),
                     [this] { return open({.unit = ClipsSpec::Unit::kSeconds, .seconds = 0.05}); });
}

TEST_F(ChangedFilesTest, ClipsOfShardsAreWhatBothIndexesSaw) {
  const auto tar = [](bool turned) {
    return TarWriter().file("0.txt", "text").file("0.toy", media(false, turned)).archive();
  };
  const auto open = [this] {
    auto source =
        try_open({.items = shards("toy"), .clips = ClipsSpec{.frames = 4, .hop_frames = 4}});
    EXPECT_TRUE(source) << source.error().message();
    return source ? std::move(source).value() : nullptr;
  };
  expect_each_change("a.tar", tar(false), tar(true), open);
}

TEST_F(ChangedFilesTest, FilesOfATableHaveTheirContentByName) {
  const std::string table = "path\nfirst.bin\nsecond.bin\n";
  dir_.file("data/first.bin", "first");
  dir_.file("data/second.bin", "other");
  TableSpec spec;
  spec.file = dir_.path("data/items.csv");
  spec.uris = {{.field = "part", .column = "path"}};
  for (const Change& each : changes()) {
    dir_.file("data/items.csv", table);
    const auto source = try_open({.items = spec});
    ASSERT_TRUE(source) << source.error().message();
    EXPECT_FALSE((*source)->has_changed());
    change("data/items.csv", each, table, "path\nother.bin\nthird_.bin\n");
    const std::vector<Had> now = fetch_all(**source);
    ASSERT_EQ(now.size(), 2u);
    EXPECT_EQ(now[0].bytes, "first");
    EXPECT_EQ(now[1].bytes, "other");
    EXPECT_TRUE((*source)->has_changed()) << each.text();
  }
}

TEST_F(ChangedFilesTest, MembersWithOtherBytesAreReadAnewThoughACacheHasTheOldOnes) {
  dir_.file("a.tar", tar_of("bin", 0, 1));
  const auto source = open_shards(shards("bin"));
  ASSERT_NE(source, nullptr);
  struct stat info {};
  ASSERT_EQ(::stat(dir_.path("a.tar").c_str(), &info), 0);
  item_.revision.asked = true;
  item_.revision.known = stamp_of(info);
  ASSERT_TRUE(fetch_and_wait(*source, 0, item_).ok());
  EXPECT_TRUE(item_.revision.unchanged);
  change("a.tar", {.other_content = true}, tar_of("bin", 0, 1), tar_of("bin", 0, 1, 'k'));
  ASSERT_TRUE(fetch_and_wait(*source, 0, item_).ok());
  EXPECT_FALSE(item_.revision.unchanged);
  EXPECT_EQ(text_of(item_), std::string(600, 'k'));
  item_.revision = {};
}

TEST_F(ChangedFilesTest, ShardsThatWereCopiedHaveNotChanged) {
  dir_.file("a.tar", tar_of("bin", 0, 1));
  const auto source = open_shards(shards("bin"));
  ASSERT_NE(source, nullptr);
  change("a.tar", {.other_inode = true}, tar_of("bin", 0, 1), tar_of("bin", 9, -1));
  EXPECT_FALSE(source->has_changed());
  change("a.tar", {.other_inode = true, .other_content = true}, tar_of("bin", 0, 1),
         tar_of("bin", 9, -1));
  EXPECT_TRUE(source->has_changed());
}

TEST_F(ChangedFilesTest, AnIndexOfCopiesReplacesThatOfTheFilesBefore) {
  KeptDatasets kept(dir_.path("state"));
  dir_.file("a.tar", tar_of("bin", 0, 1));
  auto first = try_open({.items = shards("bin")}, &kept);
  ASSERT_TRUE(first) << first.error().message();
  change("a.tar", {.other_inode = true}, tar_of("bin", 0, 1), tar_of("bin", 9, -1));
  auto second = try_open({.items = shards("bin")}, &kept);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_EQ((*first)->dataset(), (*second)->dataset());
  // Both read on, the second one without a comparison.
  for (const auto* const source : {&*first, &*second}) {
    ASSERT_TRUE(fetch_and_wait(**source, 1, item_).ok());
    EXPECT_EQ(text_of(item_), std::string(600, 'b'));
  }
}

TEST_F(ChangedFilesTest, AClipsFileThatWasCopiedIsProbedOnceMore) {
  dir_.file("data/a.toy", media(false, false));
  const auto source = open({.frames = 4, .hop_frames = 4});
  ASSERT_NE(source, nullptr);
  const int before = prober_.probed;
  fetch_all(*source);
  EXPECT_EQ(prober_.probed, before);
  change("data/a.toy", {.other_inode = true}, media(false, false), media(false, true));
  fetch_all(*source);
  EXPECT_GT(prober_.probed, before);
}

}  // namespace
}  // namespace spdld::source
