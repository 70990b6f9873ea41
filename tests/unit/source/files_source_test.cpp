// SPDX-License-Identifier: Apache-2.0
#include "source/files_source.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "source/file/disk.h"
#include "source/kept/kept_datasets.h"
#include "tests/conformance/disk_suite.h"
#include "tests/conformance/source_suite.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Reads as always, but as if nothing were cached and the files lay on a network.
class UncachedDisk final : public Disk {
 public:
  explicit UncachedDisk(const std::string& root)
      : disk_(UniqueFd(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)),
              std::make_shared<const Access>(AccessRules(), Credentials::own()),
              Access::Links::kFollow, true, 5) {}
  int open(const std::string& uri, OpenFile& file) override { return disk_.open(uri, file); }
  ssize_t read_cached(const OpenFile&, std::span<std::byte>, std::uint64_t) override {
    return -EAGAIN;
  }
  ssize_t read(const OpenFile& file, std::span<std::byte> out, std::uint64_t offset) override {
    return disk_.read(file, out.first(std::min<std::size_t>(out.size(), 1000)), offset);
  }
  bool opening_blocks() const override { return true; }
  dev_t device() const override { return 5; }

 private:
  SystemDisk disk_;
};

class UncachedDiskMaker {
 public:
  static std::unique_ptr<Disk> make(const TempDir& root) {
    return std::make_unique<UncachedDisk>(root.path());
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Uncached, DiskSuite, UncachedDiskMaker);

template <bool kCached>
class FilesMaker {
 public:
  std::unique_ptr<Source> make(const std::map<std::string, std::string>& items) {
    dir_ = std::make_unique<TempDir>();
    for (const auto& [uri, bytes] : items) dir_->file(uri, bytes);
    SourceOptions options(io_);
    if (!kCached) options.disk = std::make_unique<UncachedDisk>(dir_->path());
    auto source = open_files({.root = dir_->path(), .label = FilesSpec::Label::kParentDir},
                             std::move(options));
    EXPECT_TRUE(source) << source.error().message();
    return std::move(source).value();
  }
  static constexpr Code kLost = Code::kNotFound;
  static std::string name(const std::string& uri) { return uri; }
  static std::string file(const std::string& uri) { return uri; }
  void lose(const std::string& uri) { dir_->remove(uri); }

 private:
  IoPool io_{{.threads = 4}};
  std::unique_ptr<TempDir> dir_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(CachedFiles, SourceSuite, FilesMaker<true>);
INSTANTIATE_TYPED_TEST_SUITE_P(UncachedFiles, SourceSuite, FilesMaker<false>);

const Credentials kStranger{.uid = geteuid() + 4711, .gid = getegid() + 4711};

class FilesSourceTest : public ::testing::Test {
 protected:
  FilesSpec spec(const std::string& pattern = "**/*") const {
    return {.root = dir_.path(), .pattern = pattern};
  }
  FilesSpec labelled(ClassesSpec classes = {}) const {
    return {.root = dir_.path(), .label = FilesSpec::Label::kParentDir, .classes = classes};
  }
  SourceOptions options() {
    SourceOptions options(io_);
    options.warnings = &warnings_;
    return options;
  }
  Result<std::unique_ptr<Source>> open(const FilesSpec& spec) {
    return open_files(spec, options());
  }

  static std::vector<std::string> uris(const Result<std::unique_ptr<Source>>& source) {
    EXPECT_TRUE(source) << source.error().message();
    std::vector<std::string> uris;
    if (!source) return uris;
    for (std::uint64_t i = 0; i < (*source)->size(); ++i) uris.push_back((*source)->uri(i));
    return uris;
  }
  static Status failure(const Result<std::unique_ptr<Source>>& source) {
    EXPECT_FALSE(source);
    return source ? Status() : source.error();
  }

  TempDir dir_;
  std::vector<std::string> warnings_;
  IoPool io_{{.threads = 2}};
};

TEST_F(FilesSourceTest, TakesOnlyWhatMatches) {
  for (const char* name : {"a/1.jpg", "a/2.png", "a/3.gif", "b.jpg", "b/x/4.JPG", ".git/5.jpg"}) {
    dir_.file(name);
  }
  EXPECT_THAT(uris(open(spec("**/*.{jpg,png}"))), ElementsAre("a/1.jpg", "a/2.png", "b.jpg"));
  EXPECT_THAT(uris(open(spec("*/*.jpg"))), ElementsAre("a/1.jpg"));
}

TEST_F(FilesSourceTest, TellsWhereItsBytesComeFromWhateverTheLinksToThere) {
  dir_.file("data/a.jpg", "x");
  dir_.file("other/a.jpg", "x");
  std::filesystem::create_directory_symlink(dir_.path("data"), dir_.path("link"));
  const auto direct = open({.root = dir_.path("data")});
  const auto linked = open({.root = dir_.path("link")});
  const auto other = open({.root = dir_.path("other")});
  ASSERT_TRUE(direct && linked && other);
  EXPECT_EQ((*direct)->origin(), (*linked)->origin());
  EXPECT_NE((*direct)->origin(), (*other)->origin());
}

TEST_F(FilesSourceTest, BringsAnItemThatIsNotWhatTheCallerKnows) {
  dir_.file("a.jpg", "content");
  const auto source = open(spec());
  ASSERT_TRUE(source);
  FetchedItem out;
  out.revision.asked = true;
  out.revision.known.emplace().device = 1;
  FakeSink sink;
  const std::vector<PartRequest> requests(1);
  const auto state = (*source)->fetch(0, requests, out, sink, 1);
  ASSERT_TRUE(state);
  if (*state == FetchState::kPending) {
    ASSERT_TRUE(sink.wait(1).ok());
  }
  EXPECT_FALSE(out.revision.unchanged);
  EXPECT_EQ(text_of(out), "content");
}

TEST_F(FilesSourceTest, SortsWholePathsBytewise) {
  for (const char* name : {"a/x", "a-/x", "a.b", "a0", "a/b/c", "a/b-", "a/b.c", "A", "\xc3\xa4"}) {
    dir_.file(name);
  }
  const auto sorted = uris(open(spec()));
  EXPECT_THAT(sorted, SizeIs(9));
  EXPECT_TRUE(std::is_sorted(sorted.begin(), sorted.end()));
}

TEST_F(FilesSourceTest, SortsWholePathsBytewiseWhateverTheirNames) {
  KeyedRng rng(17);
  const std::string letters = "ab-/.0";
  for (int i = 0; i < 400; ++i) {
    std::string path = "d";
    for (std::uint64_t length = rng.below(8) + 1; length > 0; --length) {
      const char letter = letters[rng.below(letters.size())];
      path += letter == '/' && path.back() == '/' ? "x" : std::string(1, letter);
    }
    std::error_code blocked;
    const auto full = std::filesystem::path(dir_.path(path + "x"));
    std::filesystem::create_directories(full.parent_path(), blocked);
    if (!blocked && !std::filesystem::is_directory(full)) std::ofstream(full) << "x";
  }
  const auto sorted = uris(open(spec()));
  EXPECT_GT(sorted.size(), 50u);
  EXPECT_TRUE(std::is_sorted(sorted.begin(), sorted.end()));
}

TEST_F(FilesSourceTest, NamesItsFieldAsTold) {
  dir_.file("a");
  FilesSpec named = spec();
  named.field = "audio";
  const auto source = open_files(named, options());
  ASSERT_TRUE(source);
  EXPECT_EQ((*source)->fields()[0].name, "audio");
  EXPECT_THAT((*source)->fields(), SizeIs(1));
  EXPECT_THAT((*source)->classes(), IsEmpty());
}

TEST_F(FilesSourceTest, RefusesARootThatIsNotThere) {
  const Status status = failure(open({.root = dir_.path("none")}));
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_EQ(status.message(),
            "source.files.root: there is no directory " + dir_.path("none") +
                " where spdld runs; correct it, or the variable that it is made of: "
                "--var NAME=VALUE, or vars={\"NAME\": VALUE} in a Loader");
}

TEST_F(FilesSourceTest, RefusesARootThatIsAFileOrRelative) {
  dir_.file("file");
  EXPECT_EQ(failure(open({.root = dir_.path("file")})).message(),
            "source.files.root: " + dir_.path("file") +
                " is a file, or below one: name the directory that holds the files");
  for (const auto& [name, way_out] : std::map<std::string, std::string>{
           {"shard-0.tar", "named under source.webdataset.shards"},
           {"pets.tar.gz", "unpack it: tar -xf " + dir_.path("pets.tar.gz")},
           {"pets.zip", "unpack it: unzip " + dir_.path("pets.zip")}}) {
    dir_.file(name);
    EXPECT_THAT(failure(open({.root = dir_.path(name)})).message(), HasSubstr(way_out));
  }
  EXPECT_EQ(failure(open({.root = "data"})).code(), Code::kInvalidArgument);
}

TEST_F(FilesSourceTest, DoesNotReadADirectoryThatIsExcluded) {
  dir_.file("a/1.jpg");
  // Reading either would be an error.
  std::string deep = "private";
  for (int i = 0; i < 300; ++i) deep += "/d";
  dir_.file(deep + "/2.jpg");
  dir_.link("private", "linked");
  FilesSpec without = spec();
  without.exclude = {"{private,linked}/**"};
  EXPECT_THAT(uris(open(without)), ElementsAre("a/1.jpg"));
  without.exclude = {"private/**"};
  EXPECT_THAT(failure(open(without)).message(), HasSubstr("directories deep"));
}

TEST_F(FilesSourceTest, ReadsHiddenFilesThatNoExclusionCovers) {
  dir_.file("private/.x/1.jpg");
  dir_.file("private/y/2.jpg");
  FilesSpec without = spec("**/{.x,y}/*");
  without.exclude = {"private/**"};
  EXPECT_THAT(uris(open(without)), ElementsAre("private/.x/1.jpg"));
}

TEST_F(FilesSourceTest, RefusesAPatternThatIsNone) {
  dir_.file("a");
  EXPECT_THAT(failure(open(spec("[a"))).message(), HasSubstr("'[' is not closed"));
}

TEST_F(FilesSourceTest, SaysWhatItSawWhenNothingMatches) {
  dir_.file("n01/a.jpeg");
  dir_.file("n01/b.jpeg");
  const Status status = failure(open(spec("**/*.JPEG")));
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("**/*.JPEG"), HasSubstr("2 files were seen"),
                                      HasSubstr("n01/"), HasSubstr(dir_.path())));
}

TEST_F(FilesSourceTest, SaysThatADirectoryIsEmpty) {
  EXPECT_THAT(failure(open(spec())).message(), HasSubstr("there are no files"));
}

TEST_F(FilesSourceTest, RefusesMoreItemsThanItMayHave) {
  for (int i = 0; i < 5; ++i) dir_.file(std::to_string(i));
  SourceOptions few = options();
  few.max_items = 4;
  const Status status = failure(open_files(spec(), std::move(few)));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("4 files"));
}

TEST_F(FilesSourceTest, RefusesDirectoriesThatAreTooDeep) {
  std::string path;
  for (int i = 0; i < 300; ++i) path += "d/";
  dir_.file(path + "x");
  EXPECT_EQ(failure(open(spec())).code(), Code::kResourceExhausted);
}

TEST_F(FilesSourceTest, TellsItsProgressAndStopsWhenAsked) {
  for (int i = 0; i < 50; ++i) dir_.file(std::to_string(i % 7) + "/" + std::to_string(i));
  std::uint64_t seen = 0;
  SourceOptions told = options();
  told.progress = [&seen](std::uint64_t files, const std::string&) { seen = files; };
  ASSERT_TRUE(open_files(spec(), std::move(told)));
  EXPECT_EQ(seen, 50u);

  std::stop_source stop;
  stop.request_stop();
  SourceOptions stopped = options();
  stopped.stop = stop.get_token();
  EXPECT_EQ(failure(open_files(spec(), std::move(stopped))).code(), Code::kCancelled);
}

TEST_F(FilesSourceTest, FollowsSymlinksWhenToldTo) {
  TempDir elsewhere;
  elsewhere.file("pool/1.jpg", "one");
  elsewhere.file("2.jpg", "two");
  dir_.link(elsewhere.path("pool"), "a");
  dir_.link(elsewhere.path("2.jpg"), "b/2.jpg");
  const auto source = open(labelled());
  EXPECT_THAT(uris(source), ElementsAre("a/1.jpg", "b/2.jpg"));
  FetchedItem buffer;
  ASSERT_TRUE(fetch_and_wait(**source, 0, buffer).ok());
  EXPECT_EQ(text_of(buffer), "one");
}

TEST_F(FilesSourceTest, LeavesSymlinksOutWhenToldTo) {
  dir_.file("a/1.jpg");
  dir_.link("a", "b");
  dir_.link("1.jpg", "a/2.jpg");
  FilesSpec plain = labelled();
  plain.follow_symlinks = false;
  const auto source = open(plain);
  EXPECT_THAT(uris(source), ElementsAre("a/1.jpg"));
  EXPECT_THAT((*source)->classes(), ElementsAre("a"));
}

TEST_F(FilesSourceTest, EndsInSpiteOfSymlinksThatLoop) {
  dir_.file("a/1.jpg");
  dir_.link("..", "a/up");
  dir_.link(".", "a/self");
  EXPECT_THAT(uris(open(spec())), ElementsAre("a/1.jpg"));
  EXPECT_THAT(warnings_, SizeIs(2));
  EXPECT_THAT(warnings_[0], HasSubstr("symlink to a directory that it lies in"));
}

TEST_F(FilesSourceTest, RefusesSymlinksThatFanOutThoughNothingMatches) {
  // Each level leads to the next in two ways: 2^20 paths over 21 directories.
  for (int level = 0; level < 20; ++level) {
    const std::string next = "../" + std::to_string(level + 1);
    dir_.link(next, std::to_string(level) + "/a");
    dir_.link(next, std::to_string(level) + "/b");
  }
  dir_.directory("20");
  SourceOptions few = options();
  few.max_directories = 1000;
  const Status status = failure(open_files(spec("**/*.none"), std::move(few)));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("leads through more than the 1000 directories"));
  EXPECT_THAT(status.message(), HasSubstr("set 'follow_symlinks: false', or narrow"));
}

TEST_F(FilesSourceTest, TakesAsManyDirectoriesAsItMayHave) {
  for (int i = 0; i < 5; ++i) dir_.file(std::to_string(i) + "/x");
  SourceOptions enough = options();
  enough.max_directories = 5;
  EXPECT_THAT(uris(open_files(spec(), std::move(enough))), SizeIs(5));
}

TEST_F(FilesSourceTest, NamesASymlinkThatLeadsNowhere) {
  dir_.file("a.jpg");
  dir_.link("missing", "b.jpg");
  const Status status = failure(open(spec("*.jpg")));
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr(dir_.path("b.jpg")));
  EXPECT_THAT(uris(open(spec("a.*"))), ElementsAre("a.jpg"));
}

TEST_F(FilesSourceTest, IgnoresPipesAndSockets) {
  dir_.file("a");
  ASSERT_EQ(::mkfifo(dir_.path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(uris(open(spec())), ElementsAre("a"));
}

TEST_F(FilesSourceTest, RefusesARootOutsideTheRootsAllowed) {
  dir_.file("in/a");
  dir_.file("out/a");
  dir_.link(dir_.path("out"), "in/link");
  SourceOptions restricted = options();
  restricted.access.roots = {{dir_.path("in")}};
  const Status status = failure(open_files({.root = dir_.path("in/link")}, std::move(restricted)));
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(dir_.path("out")), HasSubstr("access.roots")));
}

TEST_F(FilesSourceTest, RefusesADirectoryThatLeadsOutsideTheRootsAllowed) {
  dir_.file("in/a");
  dir_.file("out/a");
  dir_.link(dir_.path("out"), "in/link");
  SourceOptions restricted = options();
  restricted.access.roots = {{dir_.path("in")}};
  EXPECT_EQ(failure(open_files({.root = dir_.path("in")}, std::move(restricted))).code(),
            Code::kPermissionDenied);
}

TEST_F(FilesSourceTest, ReadsNoFileThatLeadsOutsideTheRootsAllowed) {
  dir_.file("in/a");
  dir_.file("in2/ok", "fine");
  dir_.file("out/secret");
  dir_.link(dir_.path("out/secret"), "in/b");
  dir_.link(dir_.path("in2/ok"), "in/c");
  SourceOptions restricted = options();
  restricted.access.roots = {{dir_.path("in")}, {dir_.path("in2")}};
  const auto source = open_files({.root = dir_.path("in")}, std::move(restricted));
  ASSERT_THAT(uris(source), ElementsAre("a", "b", "c"));
  FetchedItem buffer;
  EXPECT_TRUE(fetch_and_wait(**source, 0, buffer).ok());
  const Status status = fetch_and_wait(**source, 1, buffer);
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr(dir_.path("in/b")));
  ASSERT_TRUE(fetch_and_wait(**source, 2, buffer).ok());
  EXPECT_EQ(text_of(buffer), "fine");
}

TEST_F(FilesSourceTest, LeavesOutTheDaemonsOwnDirectories) {
  dir_.file("data/a");
  dir_.file("state/db", "secret");
  dir_.link("../state", "data/way");
  SourceOptions with_state = options();
  with_state.access.own_directories = {dir_.path("state")};
  EXPECT_THAT(uris(open_files(spec(), std::move(with_state))), ElementsAre("data/a"));
  EXPECT_THAT(warnings_, UnorderedElementsAre(HasSubstr(dir_.path("state")),
                                              HasSubstr(dir_.path("data/way"))));
  SourceOptions in_state = options();
  in_state.access.own_directories = {dir_.path("state")};
  EXPECT_EQ(failure(open_files({.root = dir_.path("state")}, std::move(in_state))).code(),
            Code::kPermissionDenied);
}

TEST_F(FilesSourceTest, IsListedOnlyForWhoMayListAllOfIt) {
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  dir_.file("d/a");
  dir_.file("e/b");
  ASSERT_EQ(::chmod(dir_.path("e").c_str(), 0711), 0);
  SourceOptions of_stranger = options();
  of_stranger.reader = kStranger;
  const Status status = failure(open_files(spec(), std::move(of_stranger)));
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("may not read " + dir_.path("e")));
  SourceOptions of_part = options();
  of_part.reader = kStranger;
  EXPECT_THAT(uris(open_files(spec("d/*"), std::move(of_part))), ElementsAre("d/a"));
}

TEST_F(FilesSourceTest, AKeptListingIsGivenOnlyToWhoMayListIt) {
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  TempDir state;
  KeptDatasets kept(state.path());
  dir_.file("d/a");
  dir_.age();
  SourceOptions first = options();
  first.kept = &kept;
  ASSERT_TRUE(open_files(spec(), std::move(first)));
  ASSERT_EQ(::chmod(dir_.path("d").c_str(), 0700), 0);
  SourceOptions second = options();
  second.kept = &kept;
  second.reader = kStranger;
  EXPECT_THAT(failure(open_files(spec(), std::move(second))).message(), HasSubstr("may not"));
}

TEST_F(FilesSourceTest, IsReadByAnotherWithThatOnesRights) {
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  dir_.file("d/a", "all");
  dir_.file("d/b", "mine");
  ASSERT_EQ(::chmod(dir_.path("d/b").c_str(), 0600), 0);
  const auto source = open(spec());
  ASSERT_TRUE(source);
  const auto of_stranger = (*source)->read_by(kStranger);
  ASSERT_TRUE(of_stranger) << of_stranger.error().message();
  EXPECT_EQ((*of_stranger)->listing_digest(), (*source)->listing_digest());
  FetchedItem buffer;
  ASSERT_TRUE(fetch_and_wait(**of_stranger, 0, buffer).ok());
  EXPECT_EQ(text_of(buffer), "all");
  const Status status = fetch_and_wait(**of_stranger, 1, buffer);
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("may not read " + dir_.path("d/b")));
  EXPECT_TRUE(fetch_and_wait(**source, 1, buffer).ok());

  ASSERT_EQ(::chmod(dir_.path("d").c_str(), 0700), 0);
  EXPECT_THAT((*source)->read_by(kStranger).error().message(), HasSubstr("may not"));
  EXPECT_EQ(fetch_and_wait(**of_stranger, 0, buffer).code(), Code::kPermissionDenied);
}

TEST_F(FilesSourceTest, ReadsNoSymlinkThatTookAFilesPlace) {
  TempDir elsewhere;
  elsewhere.file("secret");
  dir_.file("d/a");
  FilesSpec plain = spec();
  plain.follow_symlinks = false;
  const auto source = open(plain);
  ASSERT_TRUE(source);
  dir_.remove("d");
  dir_.link(elsewhere.path(), "d");
  elsewhere.file("a");
  FetchedItem buffer;
  EXPECT_EQ(fetch_and_wait(**source, 0, buffer).code(), Code::kPermissionDenied);
}

TEST_F(FilesSourceTest, RefusesWhatIsNoFileAnyMore) {
  dir_.file("a");
  dir_.file("b");
  const auto source = open(spec());
  ASSERT_TRUE(source);
  dir_.remove("a");
  dir_.directory("a");
  dir_.remove("b");
  ASSERT_EQ(::mkfifo(dir_.path("b").c_str(), 0600), 0);
  FetchedItem buffer;
  EXPECT_EQ(fetch_and_wait(**source, 0, buffer).code(), Code::kDataLoss);
  EXPECT_EQ(fetch_and_wait(**source, 1, buffer).code(), Code::kDataLoss);
}

TEST_F(FilesSourceTest, TakesASocketInAFilesPlaceForBadData) {
  dir_.file("a");
  const auto source = open(spec());
  ASSERT_TRUE(source);
  dir_.remove("a");
  ASSERT_EQ(::mknod(dir_.path("a").c_str(), S_IFSOCK | 0600, 0), 0);
  FetchedItem buffer;
  EXPECT_EQ(fetch_and_wait(**source, 0, buffer).code(), Code::kDataLoss);
}

TEST_F(FilesSourceTest, NamesASymlinkToItselfInAFilesPlace) {
  dir_.file("a");
  const auto source = open(spec());
  ASSERT_TRUE(source);
  dir_.remove("a");
  dir_.link("a", "a");
  FetchedItem buffer;
  const Status status = fetch_and_wait(**source, 0, buffer);
  EXPECT_THAT(status.message(), HasSubstr("is a symlink that leads back to itself"));
}

TEST_F(FilesSourceTest, RefusesFilesOverTheLimit) {
  dir_.file("a", "12345");
  dir_.file("b", "1234");
  SourceOptions small = options();
  small.max_file_bytes = 4;
  const auto source = open_files(spec(), std::move(small));
  ASSERT_TRUE(source);
  FetchedItem buffer;
  const Status status = fetch_and_wait(**source, 0, buffer);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(dir_.path("a")), HasSubstr("5 bytes")));
  EXPECT_EQ(buffer.bytes.capacity(), 0u);
  EXPECT_TRUE(fetch_and_wait(**source, 1, buffer).ok());
}

TEST_F(FilesSourceTest, TakesClassesFromAListInItsOrder) {
  dir_.file("cat/1");
  dir_.file("dog/1");
  const auto source = open(labelled({.kind = ClassesSpec::Kind::kList, .names = {"dog", "cat"}}));
  ASSERT_TRUE(source);
  EXPECT_THAT((*source)->classes(), ElementsAre("dog", "cat"));
  EXPECT_EQ(std::get<std::int64_t>((*source)->value(0, 0)), 1);
  EXPECT_EQ(std::get<std::int64_t>((*source)->value(1, 0)), 0);
}

TEST_F(FilesSourceTest, TakesClassesFromAFile) {
  TempDir other;
  other.file("names", "dog\r\n\ncat\n");
  dir_.file("cat/1");
  const ClassesSpec file{.kind = ClassesSpec::Kind::kFile, .path = other.path("names")};
  const auto source = open(labelled(file));
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_THAT((*source)->classes(), ElementsAre("dog", "cat"));
  // Shown to all who ask for the daemon's status, also those who may not read the file.
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("1 of 2 classes"),
                                           HasSubstr("such as name 1 of " + file.path))));

  SourceOptions restricted = options();
  restricted.access.roots = {{dir_.path()}};
  EXPECT_EQ(failure(open_files(labelled(file), std::move(restricted))).code(),
            Code::kPermissionDenied);
}

TEST_F(FilesSourceTest, AsksForTheMemoryOfAFileOfClassesBeforeItTakesThat) {
  TempDir other;
  std::string names = "cat\n";
  for (int i = 0; i < 1000; ++i) names += "c" + std::to_string(i) + "\n";
  other.file("names", names);
  dir_.file("cat/1");
  SourceOptions small = options();
  small.memory = std::make_shared<ListingMemory>(50'000, TrustedUsers());
  small.reader.uid = 100'002;
  for (const TempDir* const read : {&dir_, &other})
    ASSERT_EQ(::chmod(read->path().c_str(), 0755), 0);
  const ClassesSpec file{.kind = ClassesSpec::Kind::kFile, .path = other.path("names")};
  const Status refused = failure(open_files(labelled(file), std::move(small)));
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("/names: its items would take 0.1 MiB of memory"));
}

TEST_F(FilesSourceTest, TakesClassesFromAnotherPipeline) {
  dir_.file("cat/1");
  const ClassesSpec from{.kind = ClassesSpec::Kind::kPipeline, .pipeline = "train"};
  SourceOptions given = options();
  given.classes = {"ant", "cat"};
  const auto source = open_files(labelled(from), std::move(given));
  ASSERT_TRUE(source);
  EXPECT_EQ(std::get<std::int64_t>((*source)->value(0, 0)), 1);
  EXPECT_THAT(failure(open(labelled(from))).message(), HasSubstr("'train' names no class"));
}

TEST_F(FilesSourceTest, NamesAFileOutsideAnyClass) {
  dir_.file("cat/1");
  dir_.file("stray");
  EXPECT_THAT(failure(open(labelled())).message(), HasSubstr("'stray' has no class"));
  dir_.remove("stray");
  dir_.file("dog/1");
  EXPECT_THAT(
      failure(open(labelled({.kind = ClassesSpec::Kind::kList, .names = {"cat"}}))).message(),
      AllOf(HasSubstr("'dog/1' has no class"), HasSubstr("'dog' is none of the 1 classes")));
}

TEST_F(FilesSourceTest, RefusesClassesThatAreNone) {
  dir_.file("cat/1");
  TempDir other;
  other.file("empty", "\n\n");
  using Kind = ClassesSpec::Kind;
  EXPECT_THAT(failure(open(labelled({.kind = Kind::kList, .names = {"cat", "cat"}}))).message(),
              HasSubstr("twice"));
  EXPECT_THAT(failure(open(labelled({.kind = Kind::kList}))).message(),
              HasSubstr("names no class"));
  EXPECT_THAT(failure(open(labelled({.kind = Kind::kList, .names = {"a/b"}}))).message(),
              HasSubstr("no name of a directory"));
  EXPECT_THAT(failure(open(labelled({.kind = Kind::kFile, .path = other.path("empty")}))).message(),
              HasSubstr("names no class"));
  EXPECT_EQ(failure(open(labelled({.kind = Kind::kFile, .path = other.path("none")}))).code(),
            Code::kNotFound);
  EXPECT_EQ(failure(open(labelled({.kind = Kind::kFile, .path = other.path()}))).code(),
            Code::kInvalidArgument);
}

TEST_F(FilesSourceTest, WarnsOfClassesWithoutItems) {
  dir_.file("cat/1");
  dir_.directory("dog");
  const auto source = open(labelled());
  ASSERT_TRUE(source);
  EXPECT_THAT((*source)->classes(), ElementsAre("cat", "dog"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("'dog'")));
}

// Runs `body` as a user that owns nothing, in a process of its own.
int as_nobody(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 &&
        (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0)) {
      ::_exit(2);
    }
    ::_exit(body() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(FilesSourceAccess, SaysWhichDirectoryIsClosedToWhomAndHowToOpenIt) {
  TempDir dir;
  dir.file("data/train/a.jpg");
  ::chmod(dir.path().c_str(), 0755);
  ::chmod(dir.path("data").c_str(), 0750);
  ::chmod(dir.path("data/train").c_str(), ::geteuid() == 0 ? 0750 : 0);
  if (::geteuid() != 0) ::chmod(dir.path("data").c_str(), 0);
  EXPECT_EQ(as_nobody([&dir] {
              IoPool io({.threads = 1});
              const auto source = open_files({.root = dir.path("data/train")}, SourceOptions(io));
              if (source) return false;
              const Status& status = source.error();
              const std::string uid = std::to_string(::geteuid());
              const bool good =
                  status.code() == Code::kPermissionDenied &&
                  status.message().find(dir.path("data") + " is d") != std::string::npos &&
                  status.message().find("uid " + uid) != std::string::npos &&
                  status.message().find("setfacl -m u:" + uid + ":rx " + dir.path("data")) !=
                      std::string::npos;
              if (!good) std::fprintf(stderr, "%s\n", status.message().c_str());
              return good;
            }),
            0);
  ::chmod(dir.path("data").c_str(), 0755);
}

TEST(FilesSourceAccess, NamesADirectoryBelowThatIsClosed) {
  TempDir dir;
  dir.file("a/1.jpg");
  dir.file("b/1.jpg");
  ::chmod(dir.path().c_str(), 0755);
  ::chmod(dir.path("a").c_str(), 0755);
  ::chmod(dir.path("b").c_str(), ::geteuid() == 0 ? 0700 : 0);
  EXPECT_EQ(as_nobody([&dir] {
              IoPool io({.threads = 1});
              const auto source = open_files({.root = dir.path()}, SourceOptions(io));
              return !source && source.error().code() == Code::kPermissionDenied &&
                     source.error().message().find("cannot list " + dir.path("b")) == 0;
            }),
            0);
  ::chmod(dir.path("b").c_str(), 0755);
}

TEST(FilesSourceAccess, NamesAFileThatIsClosedWhenItIsFetched) {
  TempDir dir;
  dir.file("1.jpg");
  ::chmod(dir.path().c_str(), 0755);
  ::chmod(dir.path("1.jpg").c_str(), ::geteuid() == 0 ? 0600 : 0);
  EXPECT_EQ(as_nobody([&dir] {
              IoPool io({.threads = 1});
              const auto source = open_files({.root = dir.path()}, SourceOptions(io));
              FetchedItem buffer;
              if (!source) return false;
              const Status status = fetch_and_wait(**source, 0, buffer);
              return status.code() == Code::kPermissionDenied &&
                     status.message().find("chmod o+r " + dir.path("1.jpg")) != std::string::npos;
            }),
            0);
}

}  // namespace
}  // namespace spdld::source
