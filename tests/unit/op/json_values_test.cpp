// SPDX-License-Identifier: Apache-2.0
#include "op/json_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace spdld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Lists = JsonValues::Lists;

JsonValues finder(const std::vector<std::string>& pointers, Lists lists = Lists::kFlat) {
  std::vector<std::vector<std::string>> parsed;
  for (const std::string& pointer : pointers) parsed.push_back(json_pointer(pointer).value());
  return JsonValues(parsed, lists);
}

// What one pointer finds, in words.
std::string found(const std::string& pointer, const std::string& document,
                  Lists lists = Lists::kFlat) {
  JsonValues values = finder({pointer}, lists);
  const Status read = values.read(document);
  if (!read.ok()) return "error: " + read.message();
  const auto value = values.value(0);
  if (!value) return "nothing";
  std::string text = std::string(value_type_name(type_of(*value)));
  if (const auto* integer = std::get_if<std::int64_t>(&*value))
    return text + " " + std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&*value))
    return text + " " + std::to_string(*number);
  if (const auto* flag = std::get_if<bool>(&*value)) return text + (*flag ? " true" : " false");
  if (const auto* string = std::get_if<std::string_view>(&*value))
    return text + " " + std::string(*string);
  if (const auto* list = std::get_if<std::span<const std::int64_t>>(&*value)) {
    for (const std::int64_t number : *list) text += " " + std::to_string(number);
  } else {
    for (const double number : std::get<std::span<const double>>(*value))
      text += " " + std::to_string(number);
  }
  return text;
}

TEST(JsonPointer, NamesTheWay) {
  EXPECT_THAT(json_pointer("/a/b~1c/~0/0/").value(), ElementsAre("a", "b/c", "~", "0", ""));
  EXPECT_THAT(json_pointer("").value(), ElementsAre());
}

TEST(JsonPointer, IsRefusedWhenItIsNone) {
  EXPECT_THAT(json_pointer("width").error().message(),
              HasSubstr("'width' is no JSON pointer: it begins with a '/'"));
  EXPECT_THAT(json_pointer("/a~2").error().message(), HasSubstr("a '~' stands for itself as ~0"));
  EXPECT_THAT(json_pointer("/a~").error().message(), HasSubstr("~0"));
  std::string deep;
  for (int i = 0; i < 65; ++i) deep += "/a";
  EXPECT_THAT(json_pointer(deep).error().message(), HasSubstr("more than 64 levels"));
}

TEST(JsonValues, FindValuesOfEachType) {
  const std::string document = R"({"i": -7, "f": 1.5, "e": 1e2, "b": true, "t": "hé", "n": null,
    "li": [1, 2], "lf": [1, 2.5], "none": [], "o": {"x": {"y": 3}}, "l": [[4], {"z": 5}]})";
  EXPECT_EQ(found("/i", document), "int64 -7");
  EXPECT_EQ(found("/f", document), "float64 1.500000");
  EXPECT_EQ(found("/e", document), "float64 100.000000");
  EXPECT_EQ(found("/b", document), "bool true");
  EXPECT_EQ(found("/t", document), "text hé");
  EXPECT_EQ(found("/n", document), "nothing");
  EXPECT_EQ(found("/li", document), "list of int64 1 2");
  EXPECT_EQ(found("/lf", document), "list of float64 1.000000 2.500000");
  EXPECT_EQ(found("/none", document), "list of int64");
  EXPECT_EQ(found("/o/x/y", document), "int64 3");
  EXPECT_EQ(found("/li/1", document), "int64 2");
  EXPECT_EQ(found("/l/0/0", document), "int64 4");
  EXPECT_EQ(found("/l/1/z", document), "int64 5");
  EXPECT_EQ(found("/l/0", document), "list of int64 4");
}

TEST(JsonValues, FindNothingWhereThereIsNothing) {
  const std::string document = R"({"a": {"b": 1}, "l": [1], "t": "x"})";
  for (const char* pointer : {"/b", "/a/c", "/a/b/c", "/l/1", "/l/-", "/l/00", "/t/0", "/"})
    EXPECT_EQ(found(pointer, document), "nothing") << pointer;
}

TEST(JsonValues, TakeTheWholeDocument) {
  EXPECT_EQ(found("", "12"), "int64 12");
  EXPECT_EQ(found("", " [1.5] "), "list of float64 1.500000");
  EXPECT_EQ(found("", "null"), "nothing");
}

TEST(JsonValues, TakeTheLastOfNamesThatComeTwice) {
  EXPECT_EQ(found("/a", R"({"a": 1, "a": "x"})"), "text x");
  EXPECT_EQ(found("/a", R"({"a": 1, "a": null})"), "nothing");
  EXPECT_EQ(found("/a/b", R"({"a": {"b": 1}, "a": {}})"), "nothing");
  EXPECT_EQ(found("/a/b", R"({"a": {"b": 1}, "a": 3})"), "nothing");
}

TEST(JsonValues, FollowSeveralPointersAtOnce) {
  JsonValues values = finder({"/size/0", "/size", "/name", "/size/1"});
  ASSERT_TRUE(values.read(R"({"name": "x", "size": [640, 480.5]})").ok());
  EXPECT_EQ(std::get<std::int64_t>(*values.value(0)), 640);
  EXPECT_THAT(std::get<std::span<const double>>(*values.value(1)), ElementsAre(640, 480.5));
  EXPECT_EQ(std::get<std::string_view>(*values.value(2)), "x");
  EXPECT_EQ(std::get<double>(*values.value(3)), 480.5);
}

TEST(JsonValues, ForgetTheDocumentBefore) {
  JsonValues values = finder({"/a"});
  ASSERT_TRUE(values.read(R"({"a": [1, 2]})").ok());
  ASSERT_TRUE(values.read(R"({"b": 1})").ok());
  EXPECT_FALSE(values.value(0));
  ASSERT_TRUE(values.read(R"({"a": [3]})").ok());
  EXPECT_THAT(std::get<std::span<const std::int64_t>>(*values.value(0)), ElementsAre(3));
}

TEST(JsonValues, RefuseWhatNoColumnHolds) {
  EXPECT_THAT(found("/a", R"({"a": {"b": 1}})"), HasSubstr("at '/a' is an object"));
  EXPECT_THAT(found("/a", R"({"a": [1, "x"]})"), HasSubstr("at '/a' is a list with a text in it"));
  EXPECT_THAT(found("/a", R"({"a": [[1]]})"), HasSubstr("is a list with a list in it"));
  EXPECT_THAT(found("/a", R"({"a": [{}]})"), HasSubstr("is a list with an object in it"));
  EXPECT_THAT(found("/a", R"({"a": [null]})"), HasSubstr("is a list with null in it"));
  EXPECT_THAT(found("/a", R"({"a": [true]})"), HasSubstr("is a list with true or false in it"));
  EXPECT_THAT(found("/a", R"({"a": 9223372036854775808})"),
              HasSubstr("is or holds 9223372036854775808"));
  EXPECT_THAT(found("/a", R"({"a": 99999999999999999999})"), HasSubstr("which no int64 can be"));
  EXPECT_THAT(found("/a", R"({"a": [99999999999999999999]})"), HasSubstr("which no int64 can be"));
}

TEST(JsonValues, LetBeWhatNobodyAsksFor) {
  EXPECT_EQ(found("/a", R"({"b": 99999999999999999999, "c": [{}, [null]], "a": 1})"), "int64 1");
}

TEST(JsonValues, RefuseWhatIsNoJson) {
  EXPECT_THAT(found("/a", ""), HasSubstr("is no JSON"));
  EXPECT_THAT(found("/a", R"({"a": 1)"), HasSubstr("is no JSON"));
  EXPECT_THAT(found("/a", R"({"a": 1} x)"), HasSubstr("this is no JSON: syntax error"));
  EXPECT_THAT(found("/a", R"({"a": NaN})"), HasSubstr("is no JSON"));
  EXPECT_THAT(found("/a", R"({"a": 1e999})"), HasSubstr("is no JSON"));
  EXPECT_THAT(found("/a", "{\"a\": \"\xff\"}"), HasSubstr("ill-formed UTF-8"));
  EXPECT_THAT(found("/a", std::string("{\"a\": 1}\0", 9)), HasSubstr("holds a zero byte (byte 9)"));
}

TEST(JsonValues, BoundDepthAndSize) {
  const auto nested = [](int levels) {
    return R"({"a": 1, "d": )" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  EXPECT_EQ(found("/a", nested(64)), "int64 1");
  EXPECT_THAT(found("/a", nested(65)), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(found("/a", std::string(1'000'000, '[')), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(found("/a", std::string((16 << 20) + 1, ' ')),
              HasSubstr("JSON of more than 16777216 is not read"));
}

TEST(JsonValues, TakeNestedListsIfAskedTo) {
  const std::string boxes = R"({"b": [[1, 2], [3, 4.5]], "e": [], "n": [[], []]})";
  EXPECT_EQ(found("/b", boxes, Lists::kNested),
            "list of float64 1.000000 2.000000 3.000000 4.500000");
  EXPECT_EQ(found("/e", boxes, Lists::kNested), "list of int64");
  EXPECT_EQ(found("/n", boxes, Lists::kNested), "list of int64");
  EXPECT_EQ(found("/b/0", boxes, Lists::kNested), "list of int64 1 2");
  EXPECT_THAT(found("/b", boxes), HasSubstr("is a list with a list in it"));
}

TEST(JsonValues, TakeAListAndThatInIt) {
  JsonValues values = finder({"/b", "/b/1", "/b/1/0", "/after"}, Lists::kNested);
  ASSERT_TRUE(values.read(R"({"b": [[1, 2], [3, 4]], "after": "x"})").ok());
  EXPECT_THAT(std::get<std::span<const std::int64_t>>(*values.value(0)), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(std::get<std::span<const std::int64_t>>(*values.value(1)), ElementsAre(3, 4));
  EXPECT_EQ(std::get<std::int64_t>(*values.value(2)), 3);
  EXPECT_EQ(std::get<std::string_view>(*values.value(3)), "x");
}

TEST(JsonValues, RefuseNestedListsThatAreNoTable) {
  const auto refusal = [](const std::string& list) {
    return found("/a", R"({"a": )" + list + "}", Lists::kNested);
  };
  EXPECT_THAT(refusal("[[1, 2], [3]]"), HasSubstr("at '/a' is a list of lists of 2 and of 1"));
  EXPECT_THAT(refusal("[[1, 2], 3]"), HasSubstr("is a list of numbers and of lists"));
  EXPECT_THAT(refusal("[1, [2, 3]]"), HasSubstr("is a list of numbers and of lists"));
  EXPECT_THAT(refusal("[[[1]]]"), HasSubstr("is a list with a list in it"));
  EXPECT_THAT(refusal("[[1, \"x\"]]"), HasSubstr("is a list with a text in it"));
  EXPECT_THAT(refusal("[[1, {}]]"), HasSubstr("is a list with an object in it"));
  EXPECT_THAT(refusal("[[1, 99999999999999999999]]"), HasSubstr("no int64"));
}

TEST(JsonValues, TakeIntegersForNumbersWhereTheseAreDeclared) {
  JsonValues values = finder({"/i", "/l", "/f", "/none"});
  ASSERT_TRUE(values.read(R"({"i": 3, "l": [1, 2], "f": 0.5})").ok());
  EXPECT_EQ(std::get<double>(*values.value(0, ValueType::kFloat64)), 3.0);
  EXPECT_EQ(std::get<std::int64_t>(*values.value(0, ValueType::kInt64)), 3);
  EXPECT_THAT(std::get<std::span<const double>>(*values.value(1, ValueType::kFloat64List)),
              ElementsAre(1, 2));
  EXPECT_FALSE(values.value(2, ValueType::kInt64));
  EXPECT_FALSE(values.value(1, ValueType::kInt64));
  EXPECT_FALSE(values.value(3, ValueType::kText));
}

TEST(JsonValues, KnowWhereTheyStood) {
  const std::string text = "{\"n\": 12,\n\"t\": \"ab\", \"l\": [1, 2]}";
  JsonValues values = finder({"/n", "/t", "/l"});
  ASSERT_TRUE(values.read(text).ok());
  EXPECT_EQ(text[values.offset(0)], '2');
  EXPECT_EQ(text.substr(values.offset(1) - 3, 4), "\"ab\"");
  EXPECT_EQ(text[values.offset(2)], '[');
  ASSERT_TRUE(values.read("{\"n\": 12}").ok());
  EXPECT_EQ(values.offset(0), 7U);
}

}  // namespace
}  // namespace spdld
