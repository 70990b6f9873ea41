// SPDX-License-Identifier: Apache-2.0
#include "source/table_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "source/joined_source.h"
#include "tests/conformance/source_suite.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using ::testing::HasSubstr;

// A table of the items and their classes beside their files.
class RowMaker {
 public:
  std::unique_ptr<Source> make(const std::map<std::string, std::string>& items) {
    dir_ = std::make_unique<TempDir>();
    std::string table = "path,class\n";
    for (const auto& [uri, bytes] : items) {
      dir_->file(uri, bytes);
      table += uri + "," + uri.substr(0, uri.find('/')) + "\n";
    }
    dir_->file("table.csv", table);
    auto source = open_table(item_file(TableSpec{.file = dir_->path("table.csv"),
                                                 .uris = {{.field = "image", .column = "path"}},
                                                 .label = TableSpec::Label{.column = "class"}}),
                             SourceOptions(io_));
    EXPECT_TRUE(source) << source.error().message();
    return std::move(source).value();
  }
  static constexpr Code kLost = Code::kDataLoss;
  static std::string name(const std::string& uri) { return uri; }
  static std::string file(const std::string& uri) { return uri; }
  void lose(const std::string& uri) { dir_->remove(uri); }

 private:
  IoPool io_{{.threads = 4}};
  std::unique_ptr<TempDir> dir_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Rows, SourceSuite, RowMaker);

class TableSourceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Source> open(const std::string& text) {
    dir_.file("table.csv", text);
    auto source =
        open_table(item_file(TableSpec{.file = dir_.path("table.csv"),
                                       .uris = {{.field = "image", .column = "path"}},
                                       .values = {{.field = "score", .column = "score"}}}),
                   SourceOptions(io_));
    EXPECT_TRUE(source) << source.error().message();
    return source ? std::move(source).value() : nullptr;
  }

  TempDir dir_;
  IoPool io_{{.threads = 2}};
};

TEST_F(TableSourceTest, KeepsRowsThatComeTwiceAndTheirOrder) {
  const auto source = open("path,score\nb,1\na,2\nb,3\n");
  ASSERT_EQ(source->size(), 3u);
  EXPECT_EQ(source->uri(0), "b");
  EXPECT_EQ(source->uri(2), "b");
  EXPECT_EQ(std::get<std::int64_t>(source->value(2, 0)), 3);
  EXPECT_EQ(source->part_key(0, 0), source->part_key(2, 0)) << "it is one file";
}

TEST_F(TableSourceTest, NoticesThatItsTableHasChanged) {
  const auto source = open("path,score\nb,1\n");
  EXPECT_FALSE(source->has_changed());
  dir_.file("table.csv", "path,score\nb,1\nc,2\n");
  EXPECT_TRUE(source->has_changed());
}

TEST_F(TableSourceTest, HasAnotherDigestOfItsValuesWhereTheseAreOthers) {
  const auto before = open("path,score\nb,1\n");
  const auto after = open("path,score\nb,2\n");
  EXPECT_EQ(before->listing_digest(), after->listing_digest());
  EXPECT_NE(before->values_digest(), after->values_digest());
}

TEST_F(TableSourceTest, RefusesMoreFilesAnItemThanAreFetchedAtOnce) {
  TableSpec spec{.file = dir_.path("table.csv")};
  std::string head = "path";
  std::string row = "a";
  for (int i = 0; i < 17; ++i) {
    const std::string name = "c" + std::to_string(i);
    spec.uris.push_back({.field = name, .column = name});
    head += "," + name;
    row += ",b";
  }
  dir_.file("table.csv", head + "\n" + row + "\n");
  const auto source = open_table(item_file(spec), SourceOptions(io_));
  ASSERT_FALSE(source);
  EXPECT_THAT(source.error().message(),
              ::testing::HasSubstr("an item has 17 files, and may have 16: name fewer"));
}

TEST_F(TableSourceTest, StandsBehindAnotherWhereTheyAreJoined) {
  std::vector<std::unique_ptr<Source>> both;
  both.push_back(open("path,score\nb,1\na,2\n"));
  both.push_back(open("path,score\nc,3\n"));
  const auto joined = join_sources(std::move(both));
  ASSERT_EQ(joined->size(), 3u);
  EXPECT_EQ(joined->uri(1), "a");
  EXPECT_EQ(joined->uri(2), "c");
  EXPECT_EQ(std::get<std::int64_t>(joined->value(2, 0)), 3);
  EXPECT_NE(joined->part_key(0, 0), joined->part_key(2, 0));
}

}  // namespace
}  // namespace spdld::source
