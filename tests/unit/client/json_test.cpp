// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/src/json.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace spdld::client {
namespace {

constexpr char kApplied[] =
    R"( {"version": 4, "epoch":2,"step":0 , "tuned":false, "note": null, "more":[1,{"a":"]"}]} )";

TEST(JsonObject, GivesItsPlainValues) {
  const auto told = JsonObject::parse(kApplied);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->count("version"), 4u);
  EXPECT_EQ(told->count("step"), 0u);
  EXPECT_EQ(told->flag("tuned"), false);
  EXPECT_FALSE(told->flag("version"));
  EXPECT_FALSE(told->count("tuned"));
  EXPECT_FALSE(told->count("missing"));
  EXPECT_FALSE(told->text("note"));
  EXPECT_FALSE(told->text("more")) << "what is inside is read over";
  EXPECT_FALSE(told->text("a"));
  EXPECT_TRUE(JsonObject::parse("{}"));
}

TEST(JsonObject, ReadsTextsWithEscapes) {
  const auto told = JsonObject::parse(R"({"error": "a \"b\"\\\/\n\u00e4\u20ac\ud83d\ude00 ä"})");
  ASSERT_TRUE(told);
  EXPECT_EQ(told->text("error"), "a \"b\"\\/\nä€😀 ä");
}

TEST(JsonObject, CountsOnlyWithWholeNumbersThatFit) {
  const auto told = JsonObject::parse(
      R"({"a": 18446744073709551615, "b": 18446744073709551616, "c": -1, "d": 1.5, "e": 1e3})");
  ASSERT_TRUE(told);
  EXPECT_EQ(told->count("a"), 18446744073709551615u);
  for (const char* name : {"b", "c", "d", "e"}) EXPECT_FALSE(told->count(name)) << name;
}

TEST(JsonObject, RefusesWhatIsNone) {
  for (const char* text : {"",
                           "[]",
                           "null",
                           "{",
                           "}",
                           "{}}",
                           "{} x",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "{\"a\":tru}",
                           "{\"a\":-}",
                           "{\"a\":\"\\x\"}",
                           "{\"a\":\"\\ud800\"}",
                           "{\"a\":\"\\udc00\"}",
                           "{\"a\":\"\\ud800\\u0041\"}",
                           "{\"a\":\"\\u12\"}",
                           "{\"a\":\"\n\"}",
                           "{\"a\":[1,]}",
                           "{'a': 1}",
                           "{\"a\":1 \"b\":2}"}) {
    EXPECT_FALSE(JsonObject::parse(text)) << text;
  }
}

TEST(JsonObject, RefusesEveryTruncation) {
  const std::string whole = R"({"error":"\ud83d\ude00","n":[{"x":1}],"v":true})";
  ASSERT_TRUE(JsonObject::parse(whole));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(JsonObject::parse(whole.substr(0, length))) << length;
  }
}

TEST(JsonObject, RefusesEndlessDepth) {
  EXPECT_FALSE(JsonObject::parse("{\"a\":" + std::string(100'000, '[')));
  std::string nested;
  for (int i = 0; i < 50'000; ++i) nested += "{\"a\":";
  EXPECT_FALSE(JsonObject::parse(nested));
}

TEST(JsonObject, SurvivesAnyBytes) {
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = kApplied;
    for (int n = 0; n < 3; ++n) text[random() % text.size()] = static_cast<char>(random());
    (void)JsonObject::parse(text);  // the sanitizers look on
  }
}

}  // namespace
}  // namespace spdld::client
