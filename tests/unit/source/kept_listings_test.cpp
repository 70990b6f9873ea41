// SPDX-License-Identifier: Apache-2.0
#include "source/kept_listings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using std::chrono::hours;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class KeptListingsTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const Listing> listing(const std::vector<std::string>& uris) {
    ListingBuilder builder;
    for (const std::string& uri : uris) builder.add(uri);
    return std::make_shared<const Listing>(std::move(builder).finish());
  }
  DatasetPtr add(const std::vector<std::string>& uris, std::vector<std::string> classes = {},
                 const std::string& key = "key") {
    const auto listed = listing(uris);
    EXPECT_TRUE(kept_.keep(key, listed).ok());
    Status saved;
    const bool labelled = !classes.empty();
    DatasetPtr dataset = kept_.add(key, listed, std::move(classes), labelled, saved);
    EXPECT_TRUE(saved.ok()) << saved.message();
    return dataset;
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.insert(entry.path().filename().string());
    return names;
  }
  void age() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      std::filesystem::last_write_time(entry.path(),
                                       std::filesystem::file_time_type::clock::now() - hours(2));
  }

  TempDir dir_;
  const std::string path_ = dir_.path("listings");
  KeptListings kept_{path_};
};

TEST_F(KeptListingsTest, OpensWhatWasKeptWhenAnotherStarts) {
  const std::string id = add({"a/1", "b/2"}, {"b", "a", "empty"})->id;
  KeptListings later(path_);
  const auto opened = later.open(id);
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ((*opened)->id, id);
  EXPECT_EQ((*opened)->listing->uri(1), "b/2");
  EXPECT_THAT((*opened)->classes, ElementsAre("b", "a", "empty"));
}

TEST_F(KeptListingsTest, SharesInMemoryWhatIsTheSame) {
  const DatasetPtr one = add({"a/1"}, {"a"});
  EXPECT_EQ(*kept_.open(one->id), one);
  const DatasetPtr other = add({"a/1"}, {"z", "a"});
  KeptListings later(path_);
  const auto first = later.open(one->id);
  const auto second = later.open(other->id);
  ASSERT_TRUE(first && second);
  EXPECT_EQ((*first)->listing, (*second)->listing);
}

TEST_F(KeptListingsTest, ClassesInAnotherOrderAreOtherData) {
  const DatasetPtr one = add({"a/1"}, {"a", "b"});
  const DatasetPtr other = add({"a/1"}, {"b", "a"});
  EXPECT_FALSE(KeptListings::same_data(one->id, other->id));
  EXPECT_TRUE(KeptListings::same_data(one->id, add({"a/1"}, {"a", "b"}, "another key")->id));
  EXPECT_FALSE(KeptListings::same_data(one->id, add({"a/1"})->id));
}

TEST_F(KeptListingsTest, GivesTheListingThatWasKeptLastForAKey) {
  add({"a/1"});
  age();
  add({"a/1", "a/2"});
  add({"a/3"}, {}, "another key");
  const auto latest = KeptListings(path_).latest("key");
  ASSERT_TRUE(latest) << latest.error().message();
  EXPECT_EQ((*latest)->size(), 2u);
  EXPECT_EQ(kept_.latest("a third key").error().code(), Code::kNotFound);
}

TEST_F(KeptListingsTest, NamesTheFileThatIsGoneOrDamaged) {
  const std::string id = add({"a/1"}, {"a"})->id;
  const std::string listing = path_ + "/" + id.substr(0, 49) + ".idx";
  const std::string classes = path_ + "/" + id.substr(50) + ".classes";
  ASSERT_TRUE(std::filesystem::exists(listing) && std::filesystem::exists(classes));
  for (const std::string& file : {listing, classes}) {
    const std::string kept = file + ".kept";
    std::filesystem::rename(file, kept);
    Status status = KeptListings(path_).open(id).error();
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr(file));
    std::ofstream(file) << "nonsense";
    status = KeptListings(path_).open(id).error();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(file));
    std::filesystem::rename(kept, file);
  }
  EXPECT_TRUE(KeptListings(path_).open(id));
}

TEST_F(KeptListingsTest, SaysWhyATableCannotBeLookedFor) {
  const std::string id = add({"a/1"})->id;
  const std::string table = path_ + "/" + id + ".cols";
  std::filesystem::create_symlink(table, table);  // leads in a circle
  const auto opened = KeptListings(path_).open(id);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().code(), Code::kNotFound);
  EXPECT_THAT(opened.error().message(), HasSubstr(table));
}

TEST_F(KeptListingsTest, RefusesAnotherListingUnderItsName) {
  const std::string one = add({"a/1"})->id;
  const std::string other = add({"a/2"})->id;
  std::filesystem::copy_file(path_ + "/" + other + ".idx", path_ + "/" + one + ".idx",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(KeptListings(path_).open(one).error().code(), Code::kDataLoss);
}

TEST_F(KeptListingsTest, RefusesWhatIsNoId) {
  const std::string id = add({"a/1"}, {"a"})->id;
  for (const std::string& none : {std::string(), std::string("../../etc/passwd"), id + "0",
                                  id.substr(1), std::string(49, '/'), "Z" + id.substr(1)}) {
    EXPECT_EQ(kept_.open(none).error().code(), Code::kDataLoss) << none;
  }
}

TEST_F(KeptListingsTest, RemovesWhatNothingRefersToOnceItIsOld) {
  const std::string unused = add({"a/1"}, {"a"})->id;
  const std::string used = add({"a/2"}, {"b"})->id;
  const DatasetPtr open = add({"a/3"}, {"c"});
  ASSERT_TRUE(kept_.collect({used}, hours(1)).ok());
  EXPECT_EQ(files().size(), 6u) << "what was written just now is yet to be referred to";
  age();
  ASSERT_TRUE(kept_.collect({used, "", "no id"}, hours(1)).ok());
  EXPECT_EQ(files().size(), 4u);
  EXPECT_FALSE(kept_.open(unused));
  EXPECT_TRUE(KeptListings(path_).open(used));
  EXPECT_TRUE(KeptListings(path_).open(open->id));
}

TEST_F(KeptListingsTest, WhatIsTakenUpAgainIsNoLongerOld) {
  const std::string id = add({"a/1"}, {"a"})->id;
  age();
  ASSERT_TRUE(kept_.latest("key"));
  add({"a/1"}, {"a"});
  ASSERT_TRUE(kept_.collect({}, hours(1)).ok());
  EXPECT_TRUE(KeptListings(path_).open(id));
}

TEST_F(KeptListingsTest, CollectsNothingWhereNothingWasKept) {
  EXPECT_TRUE(KeptListings(dir_.path("none")).collect({}, hours(0)).ok());
}

}  // namespace
}  // namespace spdld::source
