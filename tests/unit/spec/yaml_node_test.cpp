// SPDX-License-Identifier: Apache-2.0
#include "spec/yaml_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spdld::spec {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::StartsWith;

Result<Node> parse(std::string_view text) {
  return parse_yaml(text, std::make_shared<const Document>(Document{"f.yaml", "/d"}));
}

std::string error_of(std::string_view text) {
  const Result<Node> node = parse(text);
  return node ? "" : node.error().message();
}

TEST(YamlNode, KnowsThePlaceOfEveryValueAndKey) {
  const Result<Node> root = parse("a: 1\nb:\n  - x\n  - {c: y}\n");
  ASSERT_TRUE(root) << root.error().message();
  ASSERT_EQ(root->kind, Node::Kind::kMap);
  const Node& b = *root->find("b");
  EXPECT_EQ(b.items[0].where().text(), "f.yaml:3:5");
  EXPECT_EQ(b.items[1].find("c")->where().text(), "f.yaml:4:9");
  EXPECT_EQ(b.items[1].entries[0].line, 4);
  EXPECT_EQ(b.items[1].entries[0].column, 6);
  EXPECT_EQ(root->find("z"), nullptr);
}

TEST(YamlNode, TellsQuotedTextFromPlain) {
  const Result<Node> root = parse("[5, \"5\", '5', null, \"null\", ~]");
  ASSERT_TRUE(root);
  EXPECT_FALSE(root->items[0].quoted);
  EXPECT_TRUE(root->items[1].quoted);
  EXPECT_TRUE(root->items[2].quoted);
  EXPECT_EQ(root->items[3].kind, Node::Kind::kNull);
  EXPECT_EQ(root->items[4].text, "null");
  EXPECT_EQ(root->items[5].kind, Node::Kind::kNull);
}

TEST(YamlNode, DescribesWhatItIs) {
  const Result<Node> root = parse("[[], {}, 5, 5.5, abc, \"5\", null]");
  ASSERT_TRUE(root);
  std::vector<std::string> words;
  for (const Node& item : root->items) words.push_back(item.describe());
  EXPECT_EQ(words, (std::vector<std::string>{"a list", "a map", "the integer 5", "the number 5.5",
                                             "'abc'", "the string '5'", "nothing (null)"}));
}

TEST(YamlNode, WritesAliasesOut) {
  const Result<Node> root = parse("a: &x {k: 1}\nb: *x\n");
  ASSERT_TRUE(root) << root.error().message();
  EXPECT_EQ(root->find("b")->find("k")->text, "1");
}

TEST(YamlNode, RefusesDuplicateKeys) {
  EXPECT_EQ(error_of("a: 1\nb: 2\na: 3\n"), "f.yaml:3:1: duplicate key 'a', first given on line 1");
  EXPECT_EQ(error_of("m: {k: 1, \"k\": 2}"),
            "f.yaml:1:11: duplicate key 'k', first given on line 1");
}

TEST(YamlNode, RefusesTheMergeKeyAndPointsToExtends) {
  EXPECT_EQ(error_of("a: &a {k: 1}\nb:\n  <<: *a\n"),
            "f.yaml:3:3: the merge key '<<' is not supported; put what is shared into a file of "
            "its own and name it by 'extends'");
}

TEST(YamlNode, RefusesKeysThatAreNoNames) {
  EXPECT_EQ(error_of("? [a, b]\n: 1\n"), "f.yaml:1:3: a key must be a name, got a list");
  EXPECT_EQ(error_of("~: 1\n"), "f.yaml:1:1: a key must be a name, got nothing (null)");
}

TEST(YamlNode, RefusesTags) {
  EXPECT_EQ(error_of("a: !!str 5\n"),
            "f.yaml:1:4: tags such as 'tag:yaml.org,2002:str' are not used here; leave it out");
}

TEST(YamlNode, RefusesASecondDocument) {
  EXPECT_EQ(error_of("a: 1\n---\nb: 2\n"),
            "f.yaml:2:1: a second document starts here; a file holds one");
}

TEST(YamlNode, RefusesAnEmptyFile) {
  EXPECT_EQ(error_of(""), "f.yaml: the file is empty");
  EXPECT_EQ(error_of("# nothing\n"), "f.yaml: the file is empty");
}

TEST(YamlNode, RefusesBrokenYamlWithItsPlace) {
  EXPECT_EQ(error_of("a: [1, 2\nb: 3\n"),
            "f.yaml:2:2: not valid YAML: end of sequence flow not found");
  EXPECT_EQ(error_of("a: *nobody\n"),
            "f.yaml:1:4: not valid YAML: the referenced anchor is not defined");
}

TEST(YamlNode, SaysWhatToDoAboutATab) {
  EXPECT_THAT(error_of("a:\n\tb: 1\n"),
              AllOf(StartsWith("f.yaml:2:3: not valid YAML: "),
                    EndsWith("; the line is indented by a tab, and YAML takes spaces alone")));
}

TEST(YamlNode, SaysWhatToDoAboutAVariableInBrackets) {
  for (const char* text : {"a: {size: ${size}}\n", "b: 1\na: [${size}, 2]\n"}) {
    EXPECT_THAT(error_of(text), EndsWith("must be quoted: {size: \"${size}\"}")) << text;
  }
}

TEST(YamlNode, RefusesWhatIsNotUtf8Text) {
  EXPECT_EQ(error_of("a: 1\nb: \xff\n"),
            "f.yaml:2:4: neither text in UTF-8 nor a line end; is this a YAML file?");
  EXPECT_EQ(error_of(std::string_view("a: \0", 4)),
            "f.yaml:1:4: neither text in UTF-8 nor a line end; is this a YAML file?");
  EXPECT_EQ(error_of("a: \"\\0\"\n"), "f.yaml:1:4: the text holds a control character");
}

TEST(YamlNode, KnowsUtf8FromItsLookalikes) {
  EXPECT_TRUE(is_clean_text("a\t\r\n\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
  EXPECT_FALSE(is_clean_text("\xC0\x80"));          // overlong NUL
  EXPECT_FALSE(is_clean_text("\xE0\x80\x80"));      // overlong
  EXPECT_FALSE(is_clean_text("\xED\xA0\x80"));      // surrogate
  EXPECT_FALSE(is_clean_text("\xF4\x90\x80\x80"));  // beyond U+10FFFF
  EXPECT_FALSE(is_clean_text("\xE2\x82"));          // cut off
  EXPECT_FALSE(is_clean_text("\x1b[0m"));
}

TEST(YamlNode, RefusesDeepNesting) {
  EXPECT_TRUE(parse(std::string(kMaxDepth, '[') + std::string(kMaxDepth, ']')));
  EXPECT_EQ(error_of(std::string(kMaxDepth + 1, '[') + std::string(kMaxDepth + 1, ']')),
            "f.yaml:1:33: nested deeper than 32");
  EXPECT_TRUE(error_of(std::string(100'000, '[')).ends_with(": nested deeper than 32"));
}

TEST(YamlNode, RefusesDepthByAliases) {
  std::string text = "a0: &a0 [1]\n";
  for (int i = 1; i < 40; ++i) {
    const std::string name = "a" + std::to_string(i);
    text += name + ": &" + name + " [*a" + std::to_string(i - 1) + "]\n";
  }
  EXPECT_EQ(error_of(text), "f.yaml:32:12: nested deeper than 32");
}

TEST(YamlNode, RefusesAliasBombs) {
  std::string text = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) text += (k == 0 ? "" : ", ") + before;
    text += "]\n";
  }
  EXPECT_TRUE(error_of(text).ends_with(": more than 100000 values, aliases written out"))
      << error_of(text);
}

TEST(YamlNode, RefusesAnAliasInsideOfItsAnchor) {
  EXPECT_EQ(error_of("a: &a [*a]\n"), "f.yaml:1:8: this alias lies inside of what it refers to");
}

}  // namespace
}  // namespace spdld::spec
