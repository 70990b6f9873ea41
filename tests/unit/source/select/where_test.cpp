// SPDX-License-Identifier: Apache-2.0
#include "source/select/where.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "source/bytes/shown_columns.h"
#include "tests/unit/source/repeated.h"

namespace spdld::source {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Four rows with a column of each type.
Columns columns() {
  ColumnsBuilder builder({{.name = "width", .type = ValueType::kInt64},
                          {.name = "score", .type = ValueType::kFloat64},
                          {.name = "good", .type = ValueType::kBool},
                          {.name = "split", .type = ValueType::kText},
                          {.name = "ids", .type = ValueType::kInt64List},
                          {.name = "areas", .type = ValueType::kFloat64List},
                          {.name = "label", .type = ValueType::kInt64},
                          {.name = "labels", .type = ValueType::kInt64List}});
  const std::int64_t widths[] = {10, 20, 30, (std::int64_t{1} << 53) + 1};
  const double scores[] = {0.5, 20, std::nan(""), 0x1p53};
  const char* splits[] = {"train", "val", "te'st", "\xC3\xA9"};
  for (std::int64_t row = 0; row < 4; ++row) {
    const std::vector<std::int64_t> ids(static_cast<std::size_t>(row), row);
    const std::vector<double> areas = {0.5 * static_cast<double>(row)};
    builder.add(0, widths[row]);
    builder.add(1, scores[row]);
    builder.add(2, row % 2 == 0);
    builder.add(3, std::string_view(splits[row]));
    builder.add(4, std::span<const std::int64_t>(ids));
    builder.add(5, std::span<const double>(areas));
    builder.add(6, row % 2);
    builder.add(7, std::span<const std::int64_t>(ids));
  }
  return std::move(builder).finish();
}

const ClassNames kLabel = {.columns = {"label"}, .names = {"cat", "dog", "eel"}};
const ClassNames kLabels = {.columns = {"labels"}, .names = {"cat", "dog", "eel", "fox"}};

// The rows that a condition holds in.
std::vector<int> rows(const std::string& text, const ClassNames& classes = {}) {
  const Columns all = columns();
  const Result<Where> where = Where::compile(text, all, classes);
  EXPECT_TRUE(where) << text << ": " << where.error().message();
  std::vector<int> held;
  for (int row = 0; where && row < 4; ++row) {
    if (where->matches(all, static_cast<std::uint64_t>(row))) held.push_back(row);
  }
  return held;
}

std::string where_error(const std::string& text, const ClassNames& classes = {}) {
  const Result<Where> where = Where::compile(text, columns(), classes);
  if (!where) return where.error().message();
  ADD_FAILURE() << "no error for: " << text.substr(0, 200);
  return "";
}

TEST(Where, ComparesNumbers) {
  EXPECT_THAT(rows("width == 20"), ElementsAre(1));
  EXPECT_THAT(rows("width != 20"), ElementsAre(0, 2, 3));
  EXPECT_THAT(rows("width < 20"), ElementsAre(0));
  EXPECT_THAT(rows("width<=20.0"), ElementsAre(0, 1));
  EXPECT_THAT(rows("20 < width"), ElementsAre(2, 3));
  EXPECT_THAT(rows("width >= +2e1"), ElementsAre(1, 2, 3));
  EXPECT_THAT(rows("score > .25"), ElementsAre(0, 1, 3));
  EXPECT_THAT(rows("width > - 1 and score < -0.5"), IsEmpty());
  EXPECT_THAT(rows("width == score"), ElementsAre(1));
}

TEST(Where, ComparesIntegersWithNumbersWithoutRounding) {
  // 2^53 + 1 is no double; rounded, both would be equal.
  EXPECT_THAT(rows("width == 9007199254740992.0"), IsEmpty());
  EXPECT_THAT(rows("width > 9007199254740992.0"), ElementsAre(3));
  EXPECT_THAT(rows("width > score"), ElementsAre(0, 3));
  EXPECT_THAT(rows("width < 1e300 and width > -1e300 and width < 9223372036854775808.0"),
              ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(rows("width == 10.5 or 9.5 < width < 10.5"), ElementsAre(0));
}

TEST(Where, FindsThatNanEqualsNothing) {
  EXPECT_THAT(rows("score == score"), ElementsAre(0, 1, 3));
  EXPECT_THAT(rows("score != score"), ElementsAre(2));
  EXPECT_THAT(rows("not score < 1e99"), ElementsAre(2));
  EXPECT_THAT(rows("score in [0.5, 20]"), ElementsAre(0, 1));
}

TEST(Where, ComparesTextsByTheirBytes) {
  EXPECT_THAT(rows("split == 'train'"), ElementsAre(0));
  EXPECT_THAT(rows("split == \"te'st\""), ElementsAre(2));
  EXPECT_THAT(rows("split == 'te\\'st'"), ElementsAre(2));
  EXPECT_THAT(rows("split > 'val'"), ElementsAre(3));
  EXPECT_THAT(rows("split == '\xC3\xA9'"), ElementsAre(3));
  EXPECT_THAT(rows("split == ''"), IsEmpty());
  EXPECT_THAT(rows("split in ['val', 'train',]"), ElementsAre(0, 1));
  EXPECT_THAT(rows("split not in ['val', 'train']"), ElementsAre(2, 3));
  EXPECT_THAT(rows("'a' < split <= 'train'"), ElementsAre(0, 2));
}

TEST(Where, TakesBoolsAsConditions) {
  EXPECT_THAT(rows("good"), ElementsAre(0, 2));
  EXPECT_THAT(rows("not good"), ElementsAre(1, 3));
  EXPECT_THAT(rows("good == false"), ElementsAre(1, 3));
  EXPECT_THAT(rows("good == (width > 20)"), ElementsAre(1, 2));
  EXPECT_THAT(rows("true"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(rows("False or good in [True]"), ElementsAre(0, 2));
}

TEST(Where, BindsAsPythonDoes) {
  EXPECT_THAT(rows("width == 10 or width == 20 and good"), ElementsAre(0));
  EXPECT_THAT(rows("(width == 10 or width == 20) and good"), ElementsAre(0));
  EXPECT_THAT(rows("good or width == 20 and not good"), ElementsAre(0, 1, 2));
  EXPECT_THAT(rows("not width == 10 and good"), ElementsAre(2));
  EXPECT_THAT(rows("not (width == 10 and good)"), ElementsAre(1, 2, 3));
  EXPECT_THAT(rows("not not good"), ElementsAre(0, 2));
  EXPECT_THAT(rows("10 < width <= 30 != 31"), ElementsAre(1, 2));
  EXPECT_THAT(rows("not width in [10, 20]"), ElementsAre(2, 3));
  EXPECT_THAT(rows("width\n  >=\t20\nand(good)"), ElementsAre(2));
}

TEST(Where, FindsElementsOfLists) {
  EXPECT_THAT(rows("width in [30, 10, 20.5]"), ElementsAre(0, 2));
  EXPECT_THAT(rows("width in []"), IsEmpty());
  EXPECT_THAT(rows("2 in ids"), ElementsAre(2));
  EXPECT_THAT(rows("2.0 not in ids"), ElementsAre(0, 1, 3));
  EXPECT_THAT(rows("label in ids"), ElementsAre(1));
  EXPECT_THAT(rows("1 in areas"), ElementsAre(2));
}

TEST(Where, LooksUpNamesOfClasses) {
  EXPECT_THAT(rows("label == 'dog'", kLabel), ElementsAre(1, 3));
  EXPECT_THAT(rows("'dog' != label", kLabel), ElementsAre(0, 2));
  EXPECT_THAT(rows("label in ['cat', 'eel']", kLabel), ElementsAre(0, 2));
  EXPECT_THAT(rows("label == 1", kLabel), ElementsAre(1, 3));
  EXPECT_THAT(rows("'fox' in labels", kLabels), ElementsAre(3));
  EXPECT_THAT(rows("'fox' not in labels", kLabels), ElementsAre(0, 1, 2));
}

struct WrongCondition {
  std::string text;
  int column = 0;
  std::string message;
};

std::ostream& operator<<(std::ostream& out, const WrongCondition& wrong) {
  return out << wrong.text;
}

// A condition as messages repeat it.
std::string shown(const std::string& text) {
  const std::string quoted = shown_text(text);
  return quoted.substr(1, quoted.size() - 2);
}

class WhereErrors : public ::testing::TestWithParam<WrongCondition> {};

TEST_P(WhereErrors, SayWhatIsWrongWhere) {
  const auto& [text, column, message] = GetParam();
  const std::string place = "where: column " + std::to_string(column);
  EXPECT_EQ(where_error(text),
            place + (text.empty() ? "" : " of '" + shown(text) + "'") + ": " + message);
}

INSTANTIATE_TEST_SUITE_P(
    Conditions, WhereErrors,
    ::testing::Values(
        WrongCondition{"", 1, "a column, a number or a text is missing here"},
        WrongCondition{"widht > 3", 1, "there is no column 'widht'; did you mean 'width'?"},
        WrongCondition{"zzzzzzzz > 3", 1,
                       "there is no column 'zzzzzzzz'; there are: 'width', 'score', 'good', "
                       "'split', 'ids', 'areas', 'label', 'labels'"},
        WrongCondition{"width > 'x'", 9,
                       "'width' is int64 and ''x'' is text; they cannot be compared"},
        WrongCondition{"split == 3", 10,
                       "'split' is text and '3' is int64; they cannot be compared"},
        WrongCondition{"good < true", 8, "true and false are compared by == and != alone"},
        WrongCondition{"good == 1", 9, "'good' is bool and '1' is int64; they cannot be compared"},
        WrongCondition{"width", 1, "'width' is int64, and no condition; compare it with something"},
        WrongCondition{"good and split", 10,
                       "'split' is text, and no condition; compare it with something"},
        WrongCondition{"not (width)", 5,
                       "'(width)' is int64, and no condition; compare it with something"},
        WrongCondition{"ids == 3", 1,
                       "'ids' is list of int64, which is not compared; write: NUMBER in ids"},
        WrongCondition{"ids in [1]", 1, "'ids' is list of int64, and no element of a list"},
        WrongCondition{"'a' in ids", 1,
                       "''a'' is text and 'ids' is list of int64; a list of numbers holds no such "
                       "thing"},
        WrongCondition{"3 in width", 6, "'width' is int64, and no list, such as [1, 2]"},
        WrongCondition{"width in 3", 10, "'3' is int64, and no list, such as [1, 2]"},
        WrongCondition{"width in ['x']", 11,
                       "'width' is int64 and ''x'' is text; they cannot be compared"},
        WrongCondition{"width in [score]", 11, "a list has numbers and texts, and no columns"},
        WrongCondition{"width in [1 2]", 13, "a comma or ] is missing in the list"},
        WrongCondition{"width in [1", 12, "a comma or ] is missing in the list"},
        WrongCondition{"width not 3", 11, "'in' is missing behind 'not'"},
        WrongCondition{"width == [1]", 10, "a list stands behind 'in' alone"},
        WrongCondition{"width = 3", 7, "write == to compare"},
        WrongCondition{"width => 256", 7, "write >= in place of =>"},
        WrongCondition{"width =< 256", 7, "write <= in place of =<"},
        WrongCondition{"width <> 256", 7, "write != in place of <>"},
        WrongCondition{"width > 3 AND good", 11, "write and in small letters"},
        WrongCondition{"NOT good", 1, "write not in small letters"},
        WrongCondition{"width Not In [3]", 7, "write not in small letters"},
        WrongCondition{"good && good", 6, "write and, or, not"},
        WrongCondition{"!good", 1, "write and, or, not"},
        WrongCondition{"width / 2 > 3", 7, "there is no arithmetic in conditions"},
        WrongCondition{"width - 2 > 3", 7,
                       "'-' is not expected here; conditions are joined by and, or"},
        WrongCondition{"-width > 3", 1, "only numbers have a sign"},
        WrongCondition{"len(split) > 3", 1, "there are no functions in conditions"},
        WrongCondition{"width(3)", 1, "there are no functions in conditions"},
        WrongCondition{"width > 3 score < 1", 11,
                       "'score' is not expected here; conditions are joined by and, or"},
        WrongCondition{"width > 3)", 10,
                       "')' is not expected here; conditions are joined by and, or"},
        WrongCondition{"(width > 3", 1, "the parenthesis that opens here does not close"},
        WrongCondition{"width > ", 9, "a column, a number or a text is missing here"},
        WrongCondition{"width > and", 9, "a column, a number or a text is missing before 'and'"},
        WrongCondition{"width > 3x", 9, "'3x' is no number"},
        WrongCondition{"width > 1.2.3", 9, "'1.2.3' is no number"},
        WrongCondition{"width > 1e999", 9, "'1e999' is no number"},
        WrongCondition{"width > 9223372036854775808", 9, "this integer is beyond int64"},
        WrongCondition{"split == 'x", 10, "the quote that opens here does not close"},
        WrongCondition{"split == '\\n'", 11, "a \\ stands before a quote or another \\"},
        WrongCondition{"split == '\\", 11, "a \\ stands before a quote or another \\"},
        WrongCondition{"split == '\xC3\xA9\xC3\xA9' and x", 19,
                       "there is no column 'x'; there are: "
                       "'width', 'score', 'good', 'split', 'ids', 'areas', 'label', 'labels'"},
        WrongCondition{"width > 3 \xC3\xA9", 11, "'\xC3\xA9' has no meaning here"},
        WrongCondition{"width > 3 \xE4", 11, "the condition is no text in UTF-8"},
        WrongCondition{"label == 'cat'", 10,
                       "'label' is int64 and ''cat'' is text; they cannot be compared"}));

TEST(WhereErrorsOfClasses, NameTheNearestClass) {
  EXPECT_EQ(
      where_error("label == 'dgo'", kLabel),
      "where: column 10 of 'label == 'dgo'': 'dgo' is none of the 3 classes; did you mean 'dog'?");
  EXPECT_EQ(
      where_error("label in ['cat', 'unicorn']", kLabel),
      "where: column 18 of 'label in ['cat', 'unicorn']': 'unicorn' is none of the 3 classes");
  EXPECT_EQ(where_error("label < 'dog'", kLabel),
            "where: column 9 of 'label < 'dog'': names of classes are compared by == and != alone");
  EXPECT_EQ(where_error("'cow' in labels", kLabels),
            "where: column 1 of ''cow' in labels': 'cow' is none of the 4 classes");
}

TEST(WhereErrorsOfParts, SayThatTheyAreReadTooLate) {
  const Columns all = columns();
  const auto told = [&all](const UnknownNames& unknown) {
    const Result<Where> where = Where::compile("caption == 'x'", all, {}, unknown);
    return where ? "" : where.error().message();
  };
  const std::string place = "where: column 1 of 'caption == 'x'': ";
  EXPECT_EQ(told({.parts = {"image", "caption"}, .way_out = "take it elsewhere"}),
            place +
                "'caption' is read with each item, which is too late for a condition; take it "
                "elsewhere");
  EXPECT_EQ(told({.parts = {"caption"}}),
            place + "'caption' is read with each item, which is too late for a condition");
  EXPECT_THAT(told({.parts = {"captions"}}), HasSubstr("there is no column 'caption'"));
}

TEST(Where, TakesColumnsThatAreCalledAsItsWordsInCapitals) {
  ColumnsBuilder builder({{.name = "IN", .type = ValueType::kInt64}});
  builder.add(0, std::int64_t{3});
  const Columns all = std::move(builder).finish();
  const Result<Where> where = Where::compile("IN in [3]", all);
  ASSERT_TRUE(where) << where.error().message();
  EXPECT_TRUE(where->matches(all, 0));
}

TEST(WhereErrors, BoundNestingAndLength) {
  EXPECT_THAT(rows(repeated("(", 64) + "good" + repeated(")", 64)), ElementsAre(0, 2));
  EXPECT_THAT(rows(repeated("not ", 64) + "good"), ElementsAre(0, 2));
  EXPECT_EQ(where_error(repeated("(", 65) + "good" + repeated(")", 65)),
            "where: column 65: nested deeper than 64");
  EXPECT_THAT(where_error(repeated("not (", 10000)), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(where_error(repeated("width in [", 5000)), HasSubstr("a list has numbers and texts"));
  EXPECT_THAT(rows("good" + repeated(" and good", 5000)), ElementsAre(0, 2));
  EXPECT_THAT(rows("width < 0" + repeated(" or width < 0", 4000)), IsEmpty());
  EXPECT_EQ(where_error(std::string(70000, ' ') + "good"),
            "where: column 1: the condition has more than 65536 bytes");
}

}  // namespace
}  // namespace spdld::source
