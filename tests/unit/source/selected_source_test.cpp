// SPDX-License-Identifier: Apache-2.0
#include "source/selected_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "op/source_spec.h"
#include "source/open_source.h"
#include "tests/support/tar_writer.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using test::TarWriter;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SelectedSourceTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Source>> open(SourceSpec spec, const std::string& where) {
    spec.select = SelectSpec{.where = where};
    return open_source(spec, SourceOptions(io_));
  }
  std::vector<std::string> uris(SourceSpec spec, const std::string& where) {
    const auto source = open(std::move(spec), where);
    EXPECT_TRUE(source) << source.error().message();
    std::vector<std::string> uris;
    for (std::uint64_t i = 0; source && i < (*source)->size(); ++i)
      uris.push_back((*source)->read_uri(i));
    return uris;
  }
  std::string refusal(SourceSpec spec, const std::string& where) {
    const auto source = open(std::move(spec), where);
    EXPECT_FALSE(source) << where;
    return source ? "" : source.error().message();
  }

  SourceSpec shards() {
    TarWriter tar;
    const char* names[] = {"dog", "cat", "dog"};
    for (int i = 0; i < 3; ++i) {
      const std::string key = std::to_string(i);
      tar.file(key + ".cls", names[i]).file(key + ".id", key).file(key + ".txt", "a " + key);
    }
    dir_.file("a.tar", tar.archive());
    WebdatasetSpec spec;
    spec.shards = {dir_.path("a.tar")};
    spec.parts = {{.field = "caption", .suffixes = {"txt"}}};
    spec.labels = {{.field = "target", .suffixes = {"cls"}},
                   {.field = "number", .suffixes = {"id"}}};
    spec.classes = ClassesSpec{.kind = ClassesSpec::Kind::kList, .names = {"dog", "cat"}};
    return {.items = spec};
  }

  TempDir dir_;
  IoPool io_{{.threads = 2}};
};

TEST_F(SelectedSourceTest, KnowsTheClassesOfShardsByAnyFieldName) {
  EXPECT_THAT(uris(shards(), "target == 'dog'"), ElementsAre("a.tar/0", "a.tar/2"));
  EXPECT_THAT(uris(shards(), "target in ['cat'] or number == 2"),
              ElementsAre("a.tar/1", "a.tar/2"));
}

TEST_F(SelectedSourceTest, KnowsNoClassesInIntegersOfShards) {
  EXPECT_THAT(refusal(shards(), "number == 'dog'"), HasSubstr("they cannot be compared"));
}

TEST_F(SelectedSourceTest, NamesAClassThatShardsDoNotHave) {
  EXPECT_THAT(refusal(shards(), "target == 'dgo'"), HasSubstr("did you mean 'dog'?"));
}

TEST_F(SelectedSourceTest, SaysThatAPartOfShardsIsReadTooLate) {
  EXPECT_THAT(refusal(shards(), "caption == 'a 1'"),
              AllOf(HasSubstr("'caption' is read with each item"),
                    HasSubstr("source.webdataset.index, such as {width: \"json#/width\"}")));
}

TEST_F(SelectedSourceTest, KnowsTheClassesOfBoxes) {
  dir_.file("coco.json", R"({
    "images": [{"id": 1, "file_name": "a.png", "width": 8, "height": 8},
               {"id": 2, "file_name": "b.png", "width": 8, "height": 8}],
    "annotations": [{"id": 1, "image_id": 2, "category_id": 9, "bbox": [1, 1, 2, 2],
                     "area": 4, "iscrowd": 0}],
    "categories": [{"id": 4, "name": "cat"}, {"id": 9, "name": "dog"}]})");
  const SourceSpec spec{.items =
                            CocoSpec{.annotations = dir_.path("coco.json"), .root = dir_.path()}};
  EXPECT_THAT(uris(spec, "'dog' in labels"), ElementsAre("b.png"));
  EXPECT_THAT(uris(spec, "'dog' not in labels"), ElementsAre("a.png"));
  // The annotations' ids are no classes.
  EXPECT_THAT(refusal(spec, "'dog' in ids"), HasSubstr("a list of numbers holds no such thing"));
}

TEST_F(SelectedSourceTest, KnowsTheClassesOfATablesLabelAlone) {
  dir_.file("table.csv", "path,kind,n\na.png,cat,0\nb.png,dog,1\n");
  const SourceSpec spec{.items = TableSpec{.file = dir_.path("table.csv"),
                                           .uris = {{.field = "image", .column = "path"}},
                                           .label = TableSpec::Label{.column = "kind"},
                                           .values = {{.field = "n", .column = "n"}}}};
  EXPECT_THAT(uris(spec, "label == 'dog' and n == 1"), ElementsAre("b.png"));
  EXPECT_THAT(refusal(spec, "n == 'dog'"), HasSubstr("they cannot be compared"));
}

TEST_F(SelectedSourceTest, KnowsTheClassesOfSeveralRoots) {
  dir_.file("x/cat/1.png", "1");
  dir_.file("y/dog/2.png", "2");
  const SourceSpec spec{.items = FilesSpec{.root = dir_.path("x"),
                                           .more_roots = {dir_.path("y")},
                                           .label = FilesSpec::Label::kParentDir}};
  EXPECT_EQ(uris(spec, "label == 'dog'").size(), 1u);
}

}  // namespace
}  // namespace spdld::source
