// SPDX-License-Identifier: Apache-2.0
#include "source/kept/kept_datasets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <memory_resource>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "source/kept/dataset_id.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using std::chrono::hours;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class KeptDatasetsTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const Listing> listing(const std::vector<std::string>& uris) {
    ListingBuilder builder;
    for (const std::string& uri : uris) builder.add(uri);
    return std::make_shared<const Listing>(std::move(builder).finish());
  }
  FilesDatasetPtr add(const std::vector<std::string>& uris, std::vector<std::string> classes = {},
                      const std::string& key = "key") {
    const auto listed = listing(uris);
    EXPECT_TRUE(kept_.listings().keep(key, listed).ok());
    Status saved;
    const bool labelled = !classes.empty();
    FilesDatasetPtr dataset =
        kept_.listings().add(key, listed, std::move(classes), labelled, share(), saved);
    EXPECT_TRUE(saved.ok()) << saved.message();
    return dataset;
  }
  ListingMemory::SharePtr share() const { return memory_->share(kUser); }
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

  static constexpr uid_t kUser = 100002;

  TempDir dir_;
  const std::string path_ = dir_.path("listings");
  const std::shared_ptr<ListingMemory> memory_ =
      std::make_shared<ListingMemory>(std::uint64_t{1} << 20, TrustedUsers());
  KeptDatasets kept_{path_};
};

TEST_F(KeptDatasetsTest, OpensWhatWasKeptWhenAnotherStarts) {
  const std::string id = add({"a/1", "b/2"}, {"b", "a", "empty"})->id;
  KeptDatasets later(path_);
  const auto opened = later.listings().open(id, *memory_, kUser);
  ASSERT_TRUE(opened) << opened.error().message();
  EXPECT_EQ((*opened)->id, id);
  EXPECT_EQ((*opened)->listing->uri(1), "b/2");
  EXPECT_THAT((*opened)->classes, ElementsAre("b", "a", "empty"));
}

TEST_F(KeptDatasetsTest, SharesInMemoryWhatIsTheSame) {
  const FilesDatasetPtr one = add({"a/1"}, {"a"});
  EXPECT_EQ(*kept_.listings().open(one->id, *memory_, kUser), one);
  const FilesDatasetPtr other = add({"a/1"}, {"z", "a"});
  KeptDatasets later(path_);
  const auto first = later.listings().open(one->id, *memory_, kUser);
  const auto second = later.listings().open(other->id, *memory_, kUser);
  ASSERT_TRUE(first && second);
  EXPECT_EQ((*first)->listing, (*second)->listing);
}

TEST_F(KeptDatasetsTest, CountsWhatItOpensOnceAndForAsLongAsItIsOpen) {
  std::vector<std::string> uris;
  for (int i = 1000; i < 3000; ++i) uris.push_back("a/" + std::to_string(i));
  const std::string id = add(uris, {"a"})->id;
  KeptDatasets later(path_);
  EXPECT_TRUE(memory_->used().empty());
  {
    const auto first = later.listings().open(id, *memory_, kUser);
    const std::uint64_t used = memory_->used()[kUser];
    EXPECT_GE(used, (*first)->listing->memory_bytes());
    const auto second = later.listings().open(id, *memory_, kUser + 1);
    EXPECT_EQ(memory_->used(), (std::map<uid_t, std::uint64_t>{{kUser, used}}));
  }
  EXPECT_TRUE(memory_->used().empty());
  const auto no_room = std::make_shared<ListingMemory>(1000, TrustedUsers());
  const auto refused = later.listings().open(id, *no_room, kUser);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("limits.listing_memory allows 0.0 MiB"));
  EXPECT_TRUE(no_room->used().empty());
}

TEST_F(KeptDatasetsTest, ClassesInAnotherOrderAreOtherData) {
  const FilesDatasetPtr one = add({"a/1"}, {"a", "b"});
  const FilesDatasetPtr other = add({"a/1"}, {"b", "a"});
  EXPECT_FALSE(is_same_data(one->id, other->id));
  EXPECT_TRUE(is_same_data(one->id, add({"a/1"}, {"a", "b"}, "another key")->id));
  EXPECT_FALSE(is_same_data(one->id, add({"a/1"})->id));
}

TEST_F(KeptDatasetsTest, GivesTheListingThatWasKeptLastForAKey) {
  add({"a/1"});
  age();
  add({"a/1", "a/2"});
  add({"a/3"}, {}, "another key");
  const auto latest = KeptDatasets(path_).listings().latest("key", share());
  ASSERT_TRUE(latest) << latest.error().message();
  EXPECT_EQ((*latest)->size(), 2u);
  EXPECT_EQ(kept_.listings().latest("a third key", share()).error().code(), Code::kNotFound);
}

TEST_F(KeptDatasetsTest, NamesTheFileThatIsGoneOrDamaged) {
  const std::string id = add({"a/1"}, {"a"})->id;
  const std::string listing = path_ + "/" + id.substr(0, 49) + ".idx";
  const std::string classes = path_ + "/" + id.substr(50) + ".classes";
  ASSERT_TRUE(std::filesystem::exists(listing) && std::filesystem::exists(classes));
  for (const std::string& file : {listing, classes}) {
    const std::string kept = file + ".kept";
    std::filesystem::rename(file, kept);
    Status status = KeptDatasets(path_).listings().open(id, *memory_, kUser).error();
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr(file));
    std::ofstream(file) << "nonsense";
    status = KeptDatasets(path_).listings().open(id, *memory_, kUser).error();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr(file));
    std::filesystem::rename(kept, file);
  }
  EXPECT_TRUE(KeptDatasets(path_).listings().open(id, *memory_, kUser));
}

TEST_F(KeptDatasetsTest, SaysWhyATableCannotBeLookedFor) {
  const std::string id = add({"a/1"})->id;
  const std::string table = path_ + "/" + id + ".cols";
  EXPECT_EQ(kept_.tables().open(id, share()).error().code(), Code::kNotFound);
  std::filesystem::create_symlink(table, table);  // leads in a circle
  const auto opened = kept_.tables().open(id, share());
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().code(), Code::kNotFound);
  EXPECT_THAT(opened.error().message(), HasSubstr(table));
}

TEST_F(KeptDatasetsTest, RefusesAnotherListingUnderItsName) {
  const std::string one = add({"a/1"})->id;
  const std::string other = add({"a/2"})->id;
  std::filesystem::copy_file(path_ + "/" + other + ".idx", path_ + "/" + one + ".idx",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(KeptDatasets(path_).listings().open(one, *memory_, kUser).error().code(),
            Code::kDataLoss);
}

TEST_F(KeptDatasetsTest, RefusesWhatIsNoId) {
  const std::string id = add({"a/1"}, {"a"})->id;
  for (const std::string& none : {std::string(), std::string("../../etc/passwd"), id + "0",
                                  id.substr(1), std::string(49, '/'), "Z" + id.substr(1)}) {
    EXPECT_EQ(kept_.listings().open(none, *memory_, kUser).error().code(), Code::kDataLoss) << none;
  }
}

TEST_F(KeptDatasetsTest, RemovesWhatNothingRefersToOnceItIsOld) {
  const std::string unused = add({"a/1"}, {"a"})->id;
  const std::string used = add({"a/2"}, {"b"})->id;
  const FilesDatasetPtr open = add({"a/3"}, {"c"});
  ASSERT_TRUE(kept_.collect({used}, hours(1)).ok());
  EXPECT_EQ(files().size(), 6u) << "what was written just now is yet to be referred to";
  age();
  ASSERT_TRUE(kept_.collect({used, "", "no id"}, hours(1)).ok());
  EXPECT_EQ(files().size(), 4u);
  EXPECT_FALSE(kept_.listings().open(unused, *memory_, kUser));
  EXPECT_TRUE(KeptDatasets(path_).listings().open(used, *memory_, kUser));
  EXPECT_TRUE(KeptDatasets(path_).listings().open(open->id, *memory_, kUser));
}

TEST_F(KeptDatasetsTest, WhatIsTakenUpAgainIsNoLongerOld) {
  const std::string id = add({"a/1"}, {"a"})->id;
  age();
  ASSERT_TRUE(kept_.listings().latest("key", share()));
  add({"a/1"}, {"a"});
  ASSERT_TRUE(kept_.collect({}, hours(1)).ok());
  EXPECT_TRUE(KeptDatasets(path_).listings().open(id, *memory_, kUser));
}

TEST_F(KeptDatasetsTest, RemovesUnusedIndexesAndPartsOfThem) {
  const auto file = [this](const std::string& name) { dir_.file("listings/" + name, "x"); };
  for (const char* name : {"tar/used.tarindex", "tar/clips.tarindex", "tar/unused.tarindex",
                           "tar/used.part", "media/clips.mediaindex", "media/unused.mediaindex"})
    file(name);
  const std::set<std::string> used = {"tar-used", "tar-clips+media-clips"};
  const auto left = [this](const std::string& below) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_ + "/" + below))
      names.insert(entry.path().filename().string());
    return names;
  };
  ASSERT_TRUE(kept_.collect(used, hours(1)).ok());
  EXPECT_EQ(left("tar").size() + left("media").size(), 6u);
  ASSERT_TRUE(kept_.collect(used, hours(0)).ok());
  EXPECT_THAT(left("tar"), ElementsAre("clips.tarindex", "used.tarindex"));
  EXPECT_THAT(left("media"), ElementsAre("clips.mediaindex"));
}

TEST_F(KeptDatasetsTest, KeepsTheDatasetsThatAnIdNamesTogether) {
  const std::string one = add({"a/1"}, {"a"})->id;
  const std::string other = add({"a/2"}, {"a"})->id;
  const std::string both = join_datasets({one, other});
  EXPECT_THAT(split_dataset(both), ElementsAre(one, other));
  age();
  ASSERT_TRUE(kept_.collect({both}, hours(1)).ok());
  EXPECT_EQ(files().size(), 3u);
}

// Counts the allocations that are not freed. A weak pointer holds one of allocate_shared().
class CountedMemory final : public std::pmr::memory_resource {
 public:
  int held = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    ++held;
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    --held;
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

TEST_F(KeptDatasetsTest, ForgetsAListingThatNoSourceHasOpen) {
  CountedMemory memory;
  std::shared_ptr<const Listing> listed = std::allocate_shared<Listing>(
      std::pmr::polymorphic_allocator<Listing>(&memory), *listing({"a/1"}));
  ASSERT_TRUE(kept_.listings().keep("key", listed).ok());
  listed.reset();
  EXPECT_EQ(memory.held, 1);
  add({"a/2"});
  EXPECT_EQ(memory.held, 0);
}

TEST_F(KeptDatasetsTest, CollectsNothingWhereNothingWasKept) {
  EXPECT_TRUE(KeptDatasets(dir_.path("none")).collect({}, hours(0)).ok());
}

}  // namespace
}  // namespace spdld::source
