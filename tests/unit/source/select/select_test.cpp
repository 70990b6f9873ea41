// SPDX-License-Identifier: Apache-2.0
#include "source/select/select.h"
#include "source/item/item_hashes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace spdld::source {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Part = SelectSpec::Split::Part;
using Rows = std::vector<std::uint64_t>;

// A column `n` with 0, 1, 2 and so on, of items that are called so.
Columns numbers(std::uint64_t rows) {
  ColumnsBuilder builder({{.name = "n", .type = ValueType::kInt64}});
  for (std::uint64_t row = 0; row < rows; ++row) builder.add(0, static_cast<std::int64_t>(row));
  return std::move(builder).finish();
}

std::string uri(std::uint64_t row) { return "n01/" + std::to_string(row) + ".jpg"; }

std::uint64_t hash_of(std::uint64_t row) { return split_hash(uri(row)); }

Result<Rows> selected(const SelectSpec& spec, std::uint64_t rows) {
  const Columns columns = numbers(rows);
  return select_rows(spec, {.rows = rows, .columns = columns, .split_hash = hash_of});
}

Rows good(const SelectSpec& spec, std::uint64_t rows) {
  const Result<Rows> result = selected(spec, rows);
  EXPECT_TRUE(result) << result.error().message();
  return result.value_or(Rows());
}

SelectSpec part(Part which, double val, double test = 0) {
  return {.split = SelectSpec::Split{.part = which, .val = val, .test = test}};
}

TEST(Select, TakesAllRowsWhereNothingIsSaid) {
  EXPECT_THAT(good({}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(good({}, 0), IsEmpty());
}

TEST(Select, ActsStepByStep) {
  EXPECT_THAT(good({.where = "n in [1, 3, 5, 7, 9]", .skip = 1, .take = 2}, 10), ElementsAre(3, 5));
  EXPECT_THAT(good({.skip = 8, .take = 5}, 10), ElementsAre(8, 9));
  SelectSpec all = part(Part::kVal, 0.5);
  const Rows val = good(all, 100);
  all.where = "n >= 50";
  all.skip = 2;
  Rows wanted;
  for (const std::uint64_t row : val) {
    if (row >= 50) wanted.push_back(row);
  }
  wanted.erase(wanted.begin(), wanted.begin() + 2);
  EXPECT_EQ(good(all, 100), wanted);
}

TEST(Select, TakesSourcesWithoutColumns) {
  const Columns none;
  const Result<Rows> rows =
      select_rows({.skip = 1}, {.rows = 3, .columns = none, .split_hash = hash_of});
  ASSERT_TRUE(rows);
  EXPECT_THAT(*rows, ElementsAre(1, 2));
}

TEST(Select, ComparesClassesByName) {
  const Columns columns = numbers(3);
  const Result<Rows> rows = select_rows(
      {.where = "n != 'b'"},
      {.rows = 3, .columns = columns, .split_hash = hash_of, .classes = {{"n"}, {"a", "b", "c"}}});
  ASSERT_TRUE(rows);
  EXPECT_THAT(*rows, ElementsAre(0, 2));
}

TEST(Split, HasPartsThatAreDisjointAndTogetherAll) {
  constexpr std::uint64_t kRows = 20000;
  std::multiset<std::uint64_t> all;
  std::vector<double> shares;
  for (const Part each : {Part::kTrain, Part::kVal, Part::kTest}) {
    const Rows rows = good(part(each, 0.1, 0.2), kRows);
    EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
    all.insert(rows.begin(), rows.end());
    shares.push_back(static_cast<double>(rows.size()) / kRows);
  }
  EXPECT_EQ(all.size(), kRows);
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), kRows);
  EXPECT_NEAR(shares[0], 0.7, 0.02);
  EXPECT_NEAR(shares[1], 0.1, 0.02);
  EXPECT_NEAR(shares[2], 0.2, 0.02);
}

TEST(Split, KeepsItemsInTheirPartsWhateverElseIsThere) {
  const Rows few = good(part(Part::kVal, 0.1), 1000);
  const Rows many = good(part(Part::kVal, 0.1), 2000);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin()));
  // And those of val when it grows.
  const Rows larger = good(part(Part::kVal, 0.2), 1000);
  EXPECT_TRUE(std::includes(larger.begin(), larger.end(), few.begin(), few.end()));
}

TEST(Split, PutsItemsOfOneUriIntoOnePart) {
  const Columns columns = numbers(1000);
  const Result<Rows> rows =
      select_rows(part(Part::kVal, 0.5),
                  {.rows = 1000, .columns = columns, .split_hash = [](std::uint64_t row) {
                     return hash_of(row / 2);
                   }});
  ASSERT_TRUE(rows);
  for (std::size_t i = 0; i + 1 < rows->size(); i += 2) EXPECT_EQ((*rows)[i] + 1, (*rows)[i + 1]);
}

TEST(Split, GivesAllOrNothingAtItsEnds) {
  EXPECT_EQ(good(part(Part::kVal, 1), 1000).size(), 1000U);
  EXPECT_EQ(good(part(Part::kTrain, 0), 1000).size(), 1000U);
  EXPECT_EQ(good(part(Part::kTest, 0.5, 0.5), 1000).size() +
                good(part(Part::kVal, 0.5, 0.5), 1000).size(),
            1000U);
  EXPECT_FALSE(selected(part(Part::kTrain, 1), 1000));
}

// Users' items move from one part to another if it changes: never change it.
TEST(Split, HasThePinnedShares) {
  EXPECT_EQ(split_share(split_hash("")) * 0x1p53, 777569621263118);
  EXPECT_EQ(split_share(split_hash("n01/1.jpg")) * 0x1p53, 579588139311310);
  EXPECT_EQ(split_share(split_hash("images/train/a.jpg")) * 0x1p53, 2896162591494027);
}

TEST(SelectErrors, SayWhichStepLeftHowMany) {
  EXPECT_EQ(selected({.where = "n > 7", .skip = 3}, 10).error().message(),
            "select leaves none of 10 items: where leaves 2, skip 3 leaves 0");
  EXPECT_EQ(selected({.where = "n > 70", .take = 3}, 10).error().message(),
            "select leaves none of 10 items: where leaves 0, take 3 leaves 0");
  EXPECT_EQ(selected(part(Part::kVal, 0), 10).error().message(),
            "select leaves none of 10 items: split (part val) leaves 0");
  EXPECT_EQ(selected({.take = 0}, 10).error().message(),
            "select leaves none of 10 items: take 0 leaves 0");
  EXPECT_EQ(selected({.skip = ~std::uint64_t{0}}, 10).error().code(), Code::kInvalidArgument);
}

TEST(SelectErrors, PassOnWhatIsWrongWithTheCondition) {
  EXPECT_EQ(selected({.where = "m > 7"}, 10).error().message(),
            "where: column 1 of 'm > 7': there is no column 'm'; there are: 'n'");
}

TEST(SelectErrors, RefuseSharesThatCannotBe) {
  for (const auto& [val, test] : {std::pair{-0.1, 0.2}, std::pair{0.6, 0.6}, std::pair{2.0, 0.0},
                                  std::pair{std::nan(""), 0.0}}) {
    const Result<Rows> rows = selected(part(Part::kVal, val, test), 10);
    ASSERT_FALSE(rows) << val << " " << test;
    EXPECT_THAT(rows.error().message(), HasSubstr("together at most 1"));
  }
}

}  // namespace
}  // namespace spdld::source
