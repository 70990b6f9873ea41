// SPDX-License-Identifier: Apache-2.0
#include "source/file_roots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "source/item/item_hashes.h"
#include "source/kept/kept_datasets.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FileRootsTest : public ::testing::Test {
 protected:
  FileRootsTest() {
    dir_.file("f/1.jpg");
    dir_.file("f/a/2.jpg");
    dir_.file("g/3.jpg");
  }
  FilesSpec spec(const std::vector<std::string>& roots) const {
    FilesSpec spec{.root = dir_.path(roots.front())};
    for (std::size_t i = 1; i < roots.size(); ++i) spec.more_roots.push_back(dir_.path(roots[i]));
    return spec;
  }
  Result<std::unique_ptr<Source>> open(const FilesSpec& spec, const std::string& dataset = "") {
    SourceOptions options(io_);
    options.kept = &kept_;
    options.dataset = dataset;
    return open_file_roots(spec, std::move(options));
  }
  std::uint64_t size_of(const FilesSpec& spec) {
    const auto source = open(spec);
    EXPECT_TRUE(source) << source.error().message();
    return source ? (*source)->size() : 0;
  }
  std::string refusal(const FilesSpec& spec) {
    const auto source = open(spec);
    EXPECT_FALSE(source);
    return source ? "" : source.error().message();
  }

  TempDir dir_;
  IoPool io_{{.threads = 2}};
  KeptDatasets kept_{dir_.path("kept")};
};

TEST_F(FileRootsTest, RefuseMoreItemsThanADatasetMayHave) {
  SourceOptions options(io_);
  options.max_items = 2;
  const auto source = open_file_roots(spec({"f", "g"}), std::move(options));
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code(), Code::kResourceExhausted);
  EXPECT_EQ(source.error().message(),
            "source.files.root: its roots hold more than the 2 items that a dataset may have; "
            "narrow the pattern, or name fewer roots");
}

TEST_F(FileRootsTest, RefuseARootWithinAnother) {
  const std::string told = "source.files.root: " + dir_.path("f/a") + " lies in " + dir_.path("f") +
                           ", whose items have its files already; name one of them, or add "
                           "'exclude: \"a/**\"'";
  EXPECT_EQ(refusal(spec({"f", "f/a"})), told);
  EXPECT_EQ(refusal(spec({"g", "f/a", "f"})), told);
}

TEST_F(FileRootsTest, RefuseTwoNamesOfOneDirectory) {
  dir_.link(dir_.path("f"), "link");
  dir_.link(dir_.path("f"), "other");
  EXPECT_EQ(refusal(spec({"link", "other"})), "source.files.root: " + dir_.path("link") + " and " +
                                                  dir_.path("other") + " are one directory, " +
                                                  dir_.path("f") + "; name one of them");
  dir_.link(dir_.path("f/a"), "below");
  EXPECT_THAT(refusal(spec({"f", "below"})), HasSubstr("lies in"));
}

TEST_F(FileRootsTest, TakeARootWithinAnotherThatLeavesItOut) {
  FilesSpec without = spec({"f", "f/a"});
  without.exclude = {"a/**"};
  EXPECT_EQ(size_of(without), 2u);
  FilesSpec flat = spec({"f", "f/a"});
  flat.pattern = "*.jpg";
  EXPECT_EQ(size_of(flat), 2u);
}

TEST_F(FileRootsTest, TakeDirectoriesWhoseNamesBeginAlike) {
  dir_.file("f2/4.jpg");
  EXPECT_EQ(size_of(spec({"f", "f2"})), 3u);
}

TEST_F(FileRootsTest, OpenAgainWhatWasAppliedWhereverItsRootsLeadByThen) {
  dir_.link(dir_.path("g"), "link");
  const auto applied = open(spec({"f", "link"}));
  ASSERT_TRUE(applied) << applied.error().message();
  dir_.remove("link");
  dir_.link(dir_.path("f"), "link");
  const auto again = open(spec({"f", "link"}), (*applied)->dataset());
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ((*again)->size(), 3u);
}

TEST_F(FileRootsTest, ListAgainWhatOneOfThemHasLost) {
  FilesSpec labelled = spec({"f", "g"});
  labelled.pattern = "*/*.jpg";
  labelled.label = FilesSpec::Label::kParentDir;
  dir_.file("g/b/3.jpg");
  std::string dataset;
  {
    const auto applied = open(labelled);
    ASSERT_TRUE(applied) << applied.error().message();
    ASSERT_THAT((*applied)->classes(), ElementsAre("a", "b"));
    dataset = (*applied)->dataset();
  }
  for (const auto& file : std::filesystem::directory_iterator(dir_.path("kept"))) {
    if (file.path().extension() == ".idx") std::filesystem::resize_file(file, 40);
  }
  const auto again = open(labelled, dataset);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_THAT((*again)->classes(), ElementsAre("a", "b"));
  EXPECT_EQ((*again)->dataset(), dataset);
}

TEST_F(FileRootsTest, TellTheirItemsApartInMessages) {
  dir_.file("f/a/b/3.jpg");
  const auto near = open(spec({"g", "f/a/b"}));
  ASSERT_TRUE(near) << near.error().message();
  EXPECT_EQ((*near)->uri(0), "g/3.jpg");
  EXPECT_EQ((*near)->uri(1), "f/a/b/3.jpg");
  EXPECT_EQ((*near)->read_uri(0), "g/3.jpg");
  // What items are split by does not depend on where the roots lie.
  EXPECT_EQ((*near)->split_hash(0), split_hash("3.jpg"));
  const auto read = (*near)->read_by(Access::trusted());
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ((*read)->uri(1), "f/a/b/3.jpg");
}

TEST_F(FileRootsTest, TellRootsApartThatShareTheBeginningOfAName) {
  dir_.file("f2/4.jpg");
  const auto source = open(spec({"f2", "f"}));
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_EQ((*source)->uri(0), "f2/4.jpg");
  EXPECT_EQ((*source)->uri(1), "f/1.jpg");
}

TEST_F(FileRootsTest, NameItemsByWholePathsWhereRootsShareNoDirectory) {
  // One link of /proc leads to the data by a path without anything in common.
  const std::string other = "/proc/self/root" + dir_.path("g");
  FilesSpec far = spec({"f"});
  far.more_roots = {other};
  const auto source = open(far);
  ASSERT_TRUE(source) << source.error().message();
  EXPECT_EQ((*source)->uri(0), dir_.path("f") + "/1.jpg");
  EXPECT_EQ((*source)->uri(2), other + "/3.jpg");
}

TEST_F(FileRootsTest, NameARootThatIsNotThere) {
  EXPECT_THAT(refusal(spec({"f", "none"})),
              HasSubstr("there is no directory " + dir_.path("none")));
}

}  // namespace
}  // namespace spdld::source
