// SPDX-License-Identifier: Apache-2.0
#include "source/listing/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "source/files_source.h"
#include "source/kept/kept_datasets.h"
#include "source/listing/listing_file.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Listing listing_of(const std::vector<std::string>& uris) {
  ListingBuilder builder;
  for (const std::string& uri : uris) builder.add(uri);
  return std::move(builder).finish();
}

std::vector<std::string> many_uris() {
  std::vector<std::string> uris;
  for (int i = 0; i < 1000; ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "n%05d/n%05d_%d.JPEG", i / 100, i / 100, 1000 + i);
    uris.emplace_back(name);
  }
  uris.push_back("z" + std::string(4000, 'y'));
  uris.push_back("z" + std::string(4000, 'y') + "z");
  return uris;
}

TEST(Listing, GivesBackWhatItWasBuiltOf) {
  const auto uris = many_uris();
  const Listing listing = listing_of(uris);
  ASSERT_EQ(listing.size(), uris.size());
  for (std::uint64_t i = 0; i < uris.size(); ++i) EXPECT_EQ(listing.uri(i), uris[i]);
}

TEST(Listing, TakesFewBytesAnItem) {
  std::vector<std::string> uris;
  for (int i = 0; i < 100000; ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "n%08d/n%08d_%05d.JPEG", i / 1300, i / 1300, i % 1300);
    uris.emplace_back(name);
  }
  EXPECT_LT(listing_of(uris).memory_bytes() / uris.size(), 16u);
}

TEST(Listing, KnowsTheTopLevelDirectoryOfEachItem) {
  const Listing listing = listing_of({"A", "a/1", "a/2/3", "b", "c/1"});
  std::vector<std::pair<std::uint64_t, std::string>> runs;
  for (const auto& run : listing.runs()) runs.emplace_back(run.first, run.directory);
  using Runs = std::vector<std::pair<std::uint64_t, std::string>>;
  EXPECT_EQ(runs, (Runs{{0, ""}, {1, "a"}, {3, ""}, {4, "c"}}));
}

// Saved in users' cursors: never change it.
TEST(Listing, HasThePinnedDigest) {
  EXPECT_EQ(listing_of({"a/1.jpg", "a/2.jpg", "b/1.jpg"}).digest(),
            "84816bea9bae0fb60fd411c4bdb8ff7e");
}

TEST(Listing, TellsNamesThatRunTogetherApart) {
  EXPECT_NE(listing_of({"ab", "c"}).digest(), listing_of({"a", "bc"}).digest());
  EXPECT_NE(listing_of({"a"}).digest(), listing_of({"a", "b"}).digest());
}

TEST(ListingDeathTest, RefusesUrisOutOfOrderOrOutOfRange) {
  EXPECT_DEATH(listing_of({"b", "a"}), "uri > last_");
  EXPECT_DEATH(listing_of({"a", "a"}), "uri > last_");
  EXPECT_DEATH((void)listing_of({"a"}).uri(1), "item < size_");
}

class ListingFileTest : public ::testing::Test {
 protected:
  Listing sample() const {
    Listing listing = listing_of(many_uris());
    listing.top_directories = {"n00000", "n00001"};
    listing.stamps = {{"", 1, 2, 5}, {"n00000", 3, -4, 6}};
    listing.listed_at_ns = 77;
    listing.remote = true;
    return listing;
  }
  std::string bytes() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& bytes) const {
    std::filesystem::remove(path_);
    std::ofstream(path_, std::ios::binary) << bytes;
  }

  TempDir dir_;
  std::string path_ = dir_.path("index/x.idx");
};

TEST_F(ListingFileTest, GivesBackWhatWasSaved) {
  const Listing saved = sample();
  ASSERT_TRUE(ListingFile::save(saved, "key", path_).ok());
  const auto loaded = ListingFile::load("key", path_);
  ASSERT_TRUE(loaded) << loaded.error().message();
  ASSERT_EQ(loaded->size(), saved.size());
  for (std::uint64_t i = 0; i < saved.size(); ++i) EXPECT_EQ(loaded->uri(i), saved.uri(i));
  EXPECT_EQ(loaded->digest(), saved.digest());
  EXPECT_EQ(loaded->top_directories, saved.top_directories);
  EXPECT_EQ(loaded->stamps, saved.stamps);
  EXPECT_EQ(loaded->listed_at_ns, 77);
  EXPECT_TRUE(loaded->remote);
  EXPECT_EQ(loaded->runs().size(), saved.runs().size());
}

TEST_F(ListingFileTest, TellsThatThereIsNone) {
  EXPECT_EQ(ListingFile::load("key", path_).error().code(), Code::kNotFound);
}

TEST_F(ListingFileTest, RefusesTheIndexOfSomethingElse) {
  ASSERT_TRUE(ListingFile::save(sample(), "key", path_).ok());
  const auto loaded = ListingFile::load("another key", path_);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code(), Code::kDataLoss);
}

TEST_F(ListingFileTest, RefusesEveryTruncation) {
  ASSERT_TRUE(ListingFile::save(listing_of({"a/1", "a/2"}), "key", path_).ok());
  const std::string whole = bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    ASSERT_FALSE(ListingFile::load("key", path_)) << size;
  }
  write(whole + "x");
  EXPECT_FALSE(ListingFile::load("key", path_));
  write(whole);
  EXPECT_TRUE(ListingFile::load("key", path_));
}

TEST_F(ListingFileTest, RefusesEveryDamagedByte) {
  ASSERT_TRUE(ListingFile::save(listing_of({"a/1", "a/2"}), "key", path_).ok());
  const std::string whole = bytes();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x41);
    write(damaged);
    ASSERT_FALSE(ListingFile::load("key", path_)) << i;
  }
}

TEST_F(ListingFileTest, ReplacesAnOlderOneAndLeavesNothingElse) {
  ASSERT_TRUE(ListingFile::save(listing_of({"a"}), "key", path_).ok());
  ASSERT_TRUE(ListingFile::save(listing_of({"a", "b"}), "key", path_).ok());
  EXPECT_EQ(ListingFile::load("key", path_)->size(), 2u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path("index")), {}), 1);
}

TEST_F(ListingFileTest, LeavesTheOlderOneWhenTheDiskIsFull) {
  ASSERT_TRUE(ListingFile::save(listing_of({"a"}), "key", path_).ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 100;
  ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = ListingFile::save(sample(), "key", path_);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_DFL);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(path_));
  EXPECT_EQ(ListingFile::load("key", path_)->size(), 1u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path("index")), {}), 1);
}

// Whether the directories are read again shows by a listing that is stopped before it has begun:
// one that was kept needs no reading.
class ListingReuseTest : public ::testing::Test {
 protected:
  ListingReuseTest() {
    data_.file("a/1");
    data_.file("b/2");
    data_.age();
  }
  Result<std::unique_ptr<Source>> try_open(const std::string& pattern, std::stop_token stop) {
    SourceOptions options(io_);
    options.kept = &kept_;
    options.warnings = &warnings_;
    options.stop = std::move(stop);
    return open_files({.root = data_.path(), .pattern = pattern}, std::move(options));
  }
  std::vector<std::string> open(const std::string& pattern = "**/*") {
    const auto source = try_open(pattern, {});
    EXPECT_TRUE(source) << source.error().message();
    std::vector<std::string> uris;
    for (std::uint64_t i = 0; source && i < (*source)->size(); ++i) {
      uris.push_back((*source)->uri(i));
    }
    return uris;
  }
  bool reads_again(const std::string& pattern = "**/*") {
    std::stop_source stop;
    stop.request_stop();
    const auto source = try_open(pattern, stop.get_token());
    if (source) return false;
    EXPECT_EQ(source.error().code(), Code::kCancelled) << source.error().message();
    return true;
  }

  TempDir data_;
  TempDir state_;
  KeptDatasets kept_{state_.path("listings")};
  std::vector<std::string> warnings_;
  IoPool io_{{.threads = 1}};
};

TEST_F(ListingReuseTest, ReadsNoDirectoryAgainThatDidNotChange) {
  EXPECT_TRUE(reads_again());
  EXPECT_THAT(open(), ElementsAre("a/1", "b/2"));
  EXPECT_FALSE(reads_again());
  EXPECT_THAT(open(), ElementsAre("a/1", "b/2"));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(ListingReuseTest, ReadsADirectoryAgainWhoseTimeWasPutBack) {
  open();
  data_.file("a/3");
  data_.age();
  EXPECT_THAT(open(), ElementsAre("a/1", "a/3", "b/2"));
}

TEST_F(ListingReuseTest, ReadsAllAgainWhenADirectoryChanged) {
  open();
  data_.file("b/3");
  EXPECT_THAT(open(), ElementsAre("a/1", "b/2", "b/3"));
  data_.remove("a/1");
  EXPECT_THAT(open(), ElementsAre("b/2", "b/3"));
  data_.remove("a");
  EXPECT_THAT(open(), ElementsAre("b/2", "b/3"));
}

TEST_F(ListingReuseTest, NoticesADirectoryPutInAnothersPlace) {
  open();
  std::filesystem::rename(data_.path("a"), data_.path("old"));
  data_.file("a/9");
  data_.remove("old");
  data_.age();
  EXPECT_THAT(open(), ElementsAre("a/9", "b/2"));
}

TEST_F(ListingReuseTest, TrustsNoTimeStampFromJustBeforeTheListing) {
  data_.file("b/3");  // now
  EXPECT_THAT(open(), SizeIs(3));
  // A change in the same tick of the clock leaves the stamp as it is.
  struct stat before {};
  ASSERT_EQ(::stat(data_.path("b").c_str(), &before), 0);
  data_.file("b/4");
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, data_.path("b").c_str(), times, 0), 0);
  EXPECT_THAT(open(), SizeIs(4));
}

TEST_F(ListingReuseTest, KeepsTheListingsOfDifferentPatternsApart) {
  EXPECT_THAT(open("a/*"), ElementsAre("a/1"));
  EXPECT_THAT(open("b/*"), ElementsAre("b/2"));
  EXPECT_THAT(open("a/*"), ElementsAre("a/1"));
}

TEST_F(ListingReuseTest, ListsAgainWithAWarningWhenTheKeptListingIsDamaged) {
  open();
  for (const auto& entry : std::filesystem::directory_iterator(state_.path("listings"))) {
    std::ofstream(entry.path(), std::ios::trunc) << "SPDLIDX2 nonsense that is long enough";
  }
  EXPECT_THAT(open(), ElementsAre("a/1", "b/2"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("damaged")));
  warnings_.clear();
  EXPECT_FALSE(reads_again());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(ListingReuseTest, ListsWithAWarningWhenTheListingCannotBeKept) {
  state_.file("listings", "in the way");
  EXPECT_THAT(open(), ElementsAre("a/1", "b/2"));
  ASSERT_THAT(warnings_, SizeIs(::testing::Ge(1)));
  EXPECT_THAT(warnings_.back(), HasSubstr("was not kept"));
}

}  // namespace
}  // namespace spdld::source
