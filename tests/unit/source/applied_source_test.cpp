// SPDX-License-Identifier: Apache-2.0
// A source that is opened again as it was applied, whatever has become of its files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "source/files_source.h"
#include "source/kept/kept_datasets.h"
#include "tests/unit/source/item/fake_sink.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Credentials kOutsider{.uid = 123456, .gid = 123456};

class AppliedSourceTest : public ::testing::Test {
 protected:
  AppliedSourceTest() {
    dir_.file("data/a/1", "one");
    dir_.file("data/b/2", "two");
  }
  Result<std::unique_ptr<Source>> open(const std::string& dataset,
                                       const Credentials& reader = Access::trusted()) {
    SourceOptions options(io_);
    options.access = rules_;
    options.reader = reader;
    options.kept = &kept_;
    options.dataset = dataset;
    options.warnings = &warnings_;
    return open_files({.root = dir_.path("data"), .label = FilesSpec::Label::kParentDir},
                      std::move(options));
  }
  std::unique_ptr<Source> apply() {
    auto source = open("");
    EXPECT_TRUE(source) << source.error().message();
    return std::move(source).value();
  }
  static std::vector<std::string> uris(const Source& source) {
    std::vector<std::string> uris;
    for (std::uint64_t i = 0; i < source.size(); ++i) uris.push_back(source.uri(i));
    return uris;
  }
  static std::string read(Source& source, std::uint64_t item) {
    FetchedItem bytes;
    const Status status = fetch_and_wait(source, item, bytes);
    return status.ok() ? text_of(bytes) : std::string(code_name(status.code()));
  }

  void expect_to_open_before_its_root_is_there() {
    const std::string applied = apply()->dataset();
    std::filesystem::rename(dir_.path("data"), dir_.path("aside"));
    const auto again = open(applied);
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_EQ(read(**again, 1), code_name(Code::kNotFound));
    std::filesystem::rename(dir_.path("aside"), dir_.path("data"));
    EXPECT_EQ(read(**again, 1), "two");
  }

  TempDir dir_;
  AccessRules rules_;
  std::vector<std::string> warnings_;
  IoPool io_{{.threads = 2}};
  KeptDatasets kept_{dir_.path("listings")};
};

TEST_F(AppliedSourceTest, HasTheFilesAndClassesOfThen) {
  const std::string applied = apply()->dataset();
  dir_.file("data/a/0");
  dir_.directory("data/aa");
  dir_.remove("data/b");
  const auto again = open(applied);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ((*again)->dataset(), applied);
  EXPECT_THAT(uris(**again), ElementsAre("a/1", "b/2"));
  EXPECT_THAT((*again)->classes(), ElementsAre("a", "b"));
  EXPECT_EQ(std::get<std::int64_t>((*again)->value(1, 0)), 1);
  EXPECT_EQ(read(**again, 0), "one");
  EXPECT_EQ(read(**again, 1), code_name(Code::kNotFound));
  EXPECT_TRUE((*again)->has_changed());
  const auto now = apply();
  EXPECT_NE(now->dataset(), applied);
  EXPECT_FALSE(now->has_changed());
}

TEST_F(AppliedSourceTest, ReadsFilesThatComeBackWithTheirRoot) {
  const auto source = apply();
  std::filesystem::rename(dir_.path("data"), dir_.path("aside"));
  std::filesystem::copy(dir_.path("aside"), dir_.path("copy"),
                        std::filesystem::copy_options::recursive);
  dir_.remove("aside");
  EXPECT_EQ(read(*source, 0), code_name(Code::kNotFound));
  std::filesystem::rename(dir_.path("copy"), dir_.path("data"));
  EXPECT_EQ(read(*source, 0), "one");
}

TEST_F(AppliedSourceTest, ReadsFromAnotherRootInItsPlaceOnceItLooks) {
  const auto source = apply();
  std::filesystem::rename(dir_.path("data"), dir_.path("aside"));
  dir_.file("data/a/1", "another");
  EXPECT_EQ(read(*source, 0), "one") << "what is open is read on";
  source->look_again();
  EXPECT_EQ(read(*source, 0), "another");
  EXPECT_EQ(read(*source, 1), code_name(Code::kNotFound));
  EXPECT_TRUE(source->has_changed());
}

TEST_F(AppliedSourceTest, OpensBeforeItsRootIsThere) { expect_to_open_before_its_root_is_there(); }

TEST_F(AppliedSourceTest, OpensBeforeTheDirectoryOfAccessRootsIsThere) {
  rules_.roots = {{dir_.path("data")}};
  expect_to_open_before_its_root_is_there();
}

TEST_F(AppliedSourceTest, FollowsALinkOfAccessRootsThatLeadsElsewhereByNow) {
  std::filesystem::rename(dir_.path("data"), dir_.path("first"));
  dir_.link("first", "data");
  rules_.roots = {{dir_.path("data")}};
  const auto source = apply();
  EXPECT_EQ(read(*source, 1), "two");
  dir_.file("second/b/2", "another");
  dir_.remove("data");
  dir_.link("second", "data");
  source->look_again();
  EXPECT_EQ(read(*source, 1), "another");
}

TEST_F(AppliedSourceTest, RefusesWhenItsListingIsLostAndTheFilesAreOthers) {
  const std::string applied = apply()->dataset();
  dir_.remove("listings");
  dir_.file("data/a/0");
  const auto again = open(applied);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kDataLoss);
  EXPECT_THAT(again.error().message(),
              AllOf(HasSubstr(dir_.path("listings")), HasSubstr("apply the pipeline again")));
}

TEST_F(AppliedSourceTest, RefusesWhenItsListingIsLostAndAClassHasCome) {
  const std::string applied = apply()->dataset();
  dir_.remove("listings");
  dir_.directory("data/aa");
  EXPECT_FALSE(open(applied));
}

TEST_F(AppliedSourceTest, GoesOnWhenItsListingIsLostAndTheFilesAreTheSame) {
  const std::string applied = apply()->dataset();
  dir_.remove("listings");
  ASSERT_TRUE(open(applied));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("has the same files")));
  warnings_.clear();
  ASSERT_TRUE(open(applied));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(AppliedSourceTest, IsOpenedAgainOnlyForWhoMayListIt) {
  std::filesystem::permissions(dir_.path(), std::filesystem::perms(0755));
  const std::string applied = apply()->dataset();
  ASSERT_TRUE(open(applied, kOutsider));
  std::filesystem::permissions(dir_.path("data/b"), std::filesystem::perms(0711));
  const auto refused = open(applied, kOutsider);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.error().message(), HasSubstr("may not read " + dir_.path("data/b")));
}

TEST_F(AppliedSourceTest, IsOpenedAgainThoughADirectoryOfItIsGoneOrAFileNow) {
  std::filesystem::permissions(dir_.path(), std::filesystem::perms(0755));
  const std::string applied = apply()->dataset();
  dir_.remove("data/a");
  dir_.remove("data/b");
  dir_.file("data/b");
  const auto again = open(applied, kOutsider);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(read(**again, 0), code_name(Code::kNotFound));
  EXPECT_EQ(read(**again, 1), code_name(Code::kNotFound));
}

TEST_F(AppliedSourceTest, ReadsARootThatTookAnothersPlaceWithItsReadersRights) {
  std::filesystem::permissions(dir_.path(), std::filesystem::perms(0755));
  const std::string applied = apply()->dataset();
  const auto source = open(applied, kOutsider);
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_EQ(read(**source, 0), "one");
  std::filesystem::rename(dir_.path("data"), dir_.path("before"));
  dir_.remove("before/a/1");
  dir_.file("data/a/1", "secret");
  std::filesystem::permissions(dir_.path("data"), std::filesystem::perms(0700));
  FetchedItem bytes;
  const Status status = fetch_and_wait(**source, 0, bytes);
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("may not read " + dir_.path("data")));
  EXPECT_EQ((*source)->read_by(kOutsider).error().code(), Code::kPermissionDenied);
  std::filesystem::permissions(dir_.path("data"), std::filesystem::perms(0755));
  (*source)->look_again();
  EXPECT_EQ(read(**source, 0), "secret");
}

}  // namespace
}  // namespace spdld::source
