// SPDX-License-Identifier: Apache-2.0
#include "source/media_index/media_index_build.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "source/files_source.h"
#include "source/kept/dataset_id.h"
#include "source/kept/kept_datasets.h"
#include "tests/support/toy_media.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

namespace fs = std::filesystem;
using test::ToyMedia;
using test::ToyProber;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MediaIndexTest : public ::testing::Test {
 protected:
  static constexpr int kFiles = 12;

  MediaIndexTest() {
    for (int i = 0; i < kFiles; ++i) put(i, 20 + i);
    dir_.age();
  }

  static std::string name(int i) { return "v" + std::to_string(100 + i) + ".toy"; }
  // Old enough for its times to be trusted.
  void put(int i, int frames, std::int64_t seconds = 1'600'000'000) {
    ToyMedia toy;
    const int video = toy.add_video();
    toy.put_frames(video, frames, 5);
    dir_.file("data/" + name(i), toy.bytes());
    touch("data/" + name(i), seconds);
  }
  void touch(const std::string& below, std::int64_t seconds) {
    const timespec times[2] = {{.tv_sec = seconds, .tv_nsec = 0},
                               {.tv_sec = seconds, .tv_nsec = 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, dir_.path(below).c_str(), times, 0), 0);
  }
  std::unique_ptr<Source> files(const std::string& pattern = "**") {
    FilesSpec spec;
    spec.root = dir_.path("data");
    spec.pattern = pattern;
    spec.label = FilesSpec::Label::kNone;
    auto source = open_files(spec, SourceOptions(io_));
    EXPECT_TRUE(source) << source.error().message();
    return std::move(source).value();
  }
  MediaIndexOptions options() {
    return {.directory = dir_.path("state"),
            .threads = 3,
            .progress = [this](const MediaIndexProgress& so_far) { progress_ = so_far; },
            .warnings = &warnings_,
            .keep_each = std::chrono::nanoseconds(0),
            // So late that the files' times can be trusted.
            .now_ns = [] { return std::numeric_limits<std::int64_t>::max(); }};
  }
  Result<OpenedMediaIndex> open(const ToyProber& prober) {
    warnings_.clear();
    return open_media_index(*files(), 0, prober, options());
  }
  std::vector<std::string> state_files(const std::string& ending) const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(dir_.path("state"), none)) {
      if (entry.path().extension() == ending) names.push_back(entry.path().string());
    }
    return names;
  }

  TempDir dir_;
  IoPool io_{{.threads = 2}};
  MediaIndexProgress progress_;
  std::vector<std::string> warnings_;
};

TEST_F(MediaIndexTest, HoldsWhatTheProberFound) {
  ToyProber prober;
  const auto opened = open(prober);
  ASSERT_TRUE(opened) << opened.error().message();
  const MediaIndex& index = *opened->index;
  EXPECT_EQ(index.size(), static_cast<std::size_t>(kFiles));
  EXPECT_EQ(prober.probed, kFiles);
  EXPECT_EQ(progress_.done, static_cast<std::uint64_t>(kFiles));
  const auto source = files();
  for (std::uint64_t item = 0; item < source->size(); ++item) {
    const MediaEntry* const entry = index.find(source->part_key(item, 0));
    ASSERT_NE(entry, nullptr);
    const auto record = read_media_record(entry->text, index.codecs());
    ASSERT_TRUE(record);
    EXPECT_EQ(record->streams.at(0).frames.size(), 20 + item);
  }
  EXPECT_THAT(state_files(".part"), IsEmpty());
  EXPECT_EQ(state_files(".mediaindex").size(), 1u);
}

TEST_F(MediaIndexTest, IsTakenAsItWasKept) {
  ToyProber prober;
  const auto first = open(prober);
  ASSERT_TRUE(first);
  const auto again = open(prober);
  ASSERT_TRUE(again);
  EXPECT_EQ(prober.probed, kFiles);
  EXPECT_EQ(progress_.kept, static_cast<std::uint64_t>(kFiles));
  EXPECT_EQ(again->name, first->name);
  const auto loaded = load_media_index(dir_.path("state"), first->name);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ((*loaded)->digest(), first->index->digest());
}

TEST_F(MediaIndexTest, ProbesAgainWhatHasChanged) {
  ToyProber prober;
  const auto first = open(prober);
  put(3, 99, 1'600'000'100);  // another size
  put(4, 24, 1'600'000'100);  // the same content at another time
  dir_.remove("data/" + name(5));
  const auto again = open(prober);
  ASSERT_TRUE(again);
  EXPECT_EQ(prober.probed, kFiles + 2);
  EXPECT_EQ(again->index->size(), static_cast<std::size_t>(kFiles) - 1);
  EXPECT_NE(again->name, first->name);
}

TEST_F(MediaIndexTest, GoesOnWhereItWasStopped) {
  for (int stop_after = 1; stop_after < kFiles; ++stop_after) {
    dir_.remove("state");
    std::stop_source stop;
    ToyProber first;
    std::atomic<int> seen = 0;
    first.before = [&](const std::string&) {
      if (++seen > stop_after) stop.request_stop();
    };
    MediaIndexOptions how = options();
    how.threads = 1;
    how.stop = stop.get_token();
    const auto stopped = open_media_index(*files(), 0, first, how);
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code(), Code::kCancelled);
    ToyProber second;
    ASSERT_TRUE(open(second));
    EXPECT_LE(second.probed, kFiles - stop_after);
    EXPECT_THAT(state_files(".part"), IsEmpty());
  }
}

TEST_F(MediaIndexTest, IsMadeAnewOnceWhereItIsDamaged) {
  ToyProber prober;
  ASSERT_TRUE(open(prober));
  const std::string file = state_files(".mediaindex").at(0);
  const auto whole = fs::file_size(file);
  for (const std::uintmax_t size : {whole - 1, whole / 2, std::uintmax_t{9}, std::uintmax_t{0}}) {
    fs::resize_file(file, size);
    prober.probed = 0;
    ASSERT_TRUE(open(prober));
    EXPECT_EQ(prober.probed, kFiles);
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("made anew")));
    ASSERT_TRUE(open(prober));
    EXPECT_EQ(prober.probed, kFiles) << "it was kept again";
    EXPECT_THAT(warnings_, IsEmpty());
  }
}

TEST_F(MediaIndexTest, KeepsWhyAFileIsNoMedia) {
  dir_.file("data/" + name(2), "text");
  touch("data/" + name(2), 1'600'000'000);
  ToyProber prober;
  const auto first = open(prober);
  ASSERT_TRUE(first);
  EXPECT_EQ(progress_.broken, 1u);
  const auto source = files();
  const MediaEntry* const entry = first->index->find(source->part_key(2, 0));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->code, Code::kInvalidArgument);
  EXPECT_THAT(std::string(entry->text), HasSubstr("is no toy"));
  ASSERT_TRUE(open(prober));
  EXPECT_EQ(prober.probed, kFiles) << "it is not probed again";
}

TEST_F(MediaIndexTest, ProbesAgainWithAnotherProber) {
  dir_.file("data/" + name(2), "text");
  touch("data/" + name(2), 1'600'000'000);
  ToyProber prober;
  const auto first = open(prober);
  ASSERT_TRUE(first);
  ToyProber newer;
  newer.number = "toy 2";
  const auto again = open(newer);
  ASSERT_TRUE(again);
  EXPECT_EQ(newer.probed, kFiles) << "with what was refused";
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_EQ(again->name, first->name) << "what was applied finds it by its name";
  ASSERT_TRUE(open(newer));
  EXPECT_EQ(newer.probed, kFiles) << "it was kept";
}

TEST_F(MediaIndexTest, LeavesWhatAnotherProberFoundOtherwise) {
  ToyProber prober;
  const auto first = open(prober);
  ASSERT_TRUE(first);
  put(3, 99, 1'600'000'100);
  ToyProber newer;
  newer.number = "toy 2";
  ASSERT_TRUE(open(newer));
  EXPECT_EQ(newer.probed, kFiles);
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_TRUE(load_media_index(dir_.path("state"), first->name)) << "a pipeline may name it";
}

TEST_F(MediaIndexTest, ForgetsTheCodecsOfFilesThatAreGone) {
  ToyMedia wide;
  wide.put_frames(wide.add_video(4096, 16), 20, 5);
  dir_.file("data/" + name(5), wide.bytes());
  touch("data/" + name(5), 1'600'000'000);
  const auto widths = [](const MediaIndex& index) {
    std::set<int> found;
    for (const MediaEntry& entry : index.entries()) {
      const auto record = read_media_record(entry.text, index.codecs());
      for (const StreamRecord& stream : record->streams) found.insert(stream.info.codec->width);
    }
    return found;
  };
  const auto codecs_in = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    std::uint32_t what = 0;
    std::uint64_t codecs = 0;
    std::memcpy(&what, text.data() + 8, sizeof what);
    std::memcpy(&codecs, text.data() + 12 + what, sizeof codecs);
    return codecs;
  };
  ToyProber prober;
  const auto first = open(prober);
  ASSERT_TRUE(first);
  EXPECT_THAT(widths(*first->index), ElementsAre(320, 4096));
  EXPECT_EQ(codecs_in(dir_.path("state/" + first->name + ".mediaindex")), 2u);
  dir_.remove("data/" + name(5));
  const auto again = open(prober);
  ASSERT_TRUE(again);
  EXPECT_EQ(prober.probed, kFiles);
  EXPECT_EQ(codecs_in(dir_.path("state/" + again->name + ".mediaindex")), 1u);
  const auto loaded = load_media_index(dir_.path("state"), again->name);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_THAT(widths(**loaded), ElementsAre(320));
}

TEST_F(MediaIndexTest, LeavesThePartsOfOtherFilesAlone) {
  std::stop_source stop;
  ToyProber prober;
  prober.before = [&, seen = std::make_shared<std::atomic<int>>(0)](const std::string&) {
    if (++*seen > 8) stop.request_stop();
  };
  MediaIndexOptions how = options();
  how.threads = 1;
  how.stop = stop.get_token();
  ASSERT_FALSE(open_media_index(*files(), 0, prober, how));
  const std::size_t parts = state_files(".part").size();
  EXPECT_EQ(parts, 9u);
  // A pipeline of some of these files is indexed meanwhile: it takes them from the parts, too.
  ToyProber few;
  ASSERT_TRUE(open_media_index(*files("v10[0-2].toy"), 0, few, options()));
  EXPECT_EQ(few.probed, 0);
  EXPECT_EQ(state_files(".part").size(), parts - 3) << "the index has three of them";
  ToyProber rest;
  ASSERT_TRUE(open(rest));
  EXPECT_EQ(rest.probed, kFiles - 9);
  EXPECT_THAT(state_files(".part"), IsEmpty());
}

TEST_F(MediaIndexTest, LeavesThePartsThatAnotherBuildWritesMeanwhile) {
  // Another build of the same files stops after this one has looked for kept parts.
  ToyProber inner;
  bool begun = false;
  std::stop_source stop;
  inner.before = [&, seen = 0](const std::string&) mutable {
    if (++seen > 6) stop.request_stop();
  };
  ToyProber outer;
  outer.before = [&](const std::string&) {
    if (std::exchange(begun, true)) return;
    MediaIndexOptions how = options();
    how.progress = {};
    how.threads = 1;
    how.stop = stop.get_token();
    ASSERT_FALSE(open_media_index(*files(), 0, inner, how));
    EXPECT_EQ(state_files(".part").size(), 7u);
  };
  MediaIndexOptions how = options();
  how.threads = 1;
  how.keep_each = std::chrono::hours(1);  // it has no parts of its own
  ASSERT_TRUE(open_media_index(*files(), 0, outer, how));
  EXPECT_EQ(outer.probed, kFiles);
  EXPECT_EQ(state_files(".part").size(), 7u);
  ToyProber next;
  ASSERT_TRUE(open(next));
  EXPECT_EQ(next.probed, 0);
  EXPECT_THAT(state_files(".part"), IsEmpty()) << "once an index has their files";
}

TEST_F(MediaIndexTest, SaysWhichFileChangedWhileItWasRead) {
  ToyProber prober;
  prober.before = [this](const std::string& path) {
    if (path.ends_with(name(7))) put(7, 50, 1'600'000'200);
  };
  const auto opened = open(prober);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kUnavailable);
  EXPECT_THAT(opened.error().message(), HasSubstr(name(7) + " changed while it was read"));
}

TEST_F(MediaIndexTest, GoesWithoutADirectoryThatCannotBeWritten) {
  dir_.file("state", "no directory");
  ToyProber prober;
  const auto opened = open(prober);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->name, "");
  EXPECT_FALSE(warnings_.empty());
}

TEST_F(MediaIndexTest, IsCollectedOnceNothingUsesIt) {
  KeptDatasets kept(dir_.path("state"));
  ToyProber prober;
  MediaIndexOptions how = options();
  how.directory = kept.media_indexes().directory();
  auto opened = open_media_index(*files(), 0, prober, how);
  ASSERT_TRUE(opened);
  const std::string file = kept.media_indexes().directory() + "/" + opened->name + ".mediaindex";
  const auto none = fs::file_time_type::duration::zero();
  auto shared = kept.media_indexes().share(opened->name, std::move(opened->index));
  ASSERT_TRUE(kept.collect({}, none).ok());
  EXPECT_TRUE(fs::exists(file)) << "a source has it";
  EXPECT_EQ(kept.media_indexes().open(opened->name).value(), shared);
  shared.reset();
  ASSERT_TRUE(kept.collect({clips_dataset("x", opened->name)}, none).ok());
  EXPECT_TRUE(fs::exists(file)) << "a pipeline names it";
  ASSERT_TRUE(kept.collect({}, none).ok());
  EXPECT_FALSE(fs::exists(file));
  EXPECT_EQ(kept.media_indexes().open(opened->name).error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace spdld::source
