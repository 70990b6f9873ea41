// SPDX-License-Identifier: Apache-2.0
#include "source/listing/glob.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/source/repeated.h"

namespace spdld::source {
namespace {

using ::testing::HasSubstr;

bool match(const std::string& pattern, const std::string& path) {
  const auto glob = Glob::parse(pattern);
  EXPECT_TRUE(glob) << pattern << ": " << glob.error().message();
  return glob && glob->matches(path);
}

TEST(Glob, TakesStarsWithinOneName) {
  EXPECT_TRUE(match("*.jpg", "a.jpg"));
  EXPECT_TRUE(match("*", "a"));
  EXPECT_TRUE(match("a*b*c", "aXbbYc"));
  EXPECT_FALSE(match("a*b*c", "aXbbYcd"));
  EXPECT_FALSE(match("*.jpg", "d/a.jpg"));
  EXPECT_FALSE(match("*.jpg", "a.jpeg"));
  EXPECT_TRUE(match("d/*.jpg", "d/a.jpg"));
}

TEST(Glob, TakesDoubleStarsOverAnyDirectoriesAndNone) {
  EXPECT_TRUE(match("**/*.JPEG", "a.JPEG"));
  EXPECT_TRUE(match("**/*.JPEG", "n01/a.JPEG"));
  EXPECT_TRUE(match("**/*.JPEG", "n01/x/y/a.JPEG"));
  EXPECT_TRUE(match("a/**/b", "a/b"));
  EXPECT_TRUE(match("a/**/b", "a/x/y/b"));
  EXPECT_FALSE(match("a/**/b", "x/a/b"));
  EXPECT_TRUE(match("a/**", "a/x/y"));
  EXPECT_FALSE(match("a/**", "a"));
  EXPECT_TRUE(match("**", "x/y"));
  EXPECT_TRUE(match("**/**/b", "b"));
  EXPECT_TRUE(match("**/a/**/b", "a/a/x/b"));
  EXPECT_FALSE(match("**/a/**/b", "x/b"));
}

TEST(Glob, TakesQuestionMarksAndSets) {
  EXPECT_TRUE(match("?.png", "a.png"));
  EXPECT_FALSE(match("?.png", ".png"));
  EXPECT_TRUE(match("n[0-9][!a]", "n1b"));
  EXPECT_FALSE(match("n[0-9][!a]", "n1a"));
  EXPECT_TRUE(match("[]x]", "]"));
  EXPECT_TRUE(match("[a-]", "-"));
  EXPECT_FALSE(match("[^a]", "a"));
}

TEST(Glob, TakesBracesAlsoNestedAndAcrossSlashes) {
  EXPECT_TRUE(match("**/*.{jpg,png}", "x/a.png"));
  EXPECT_FALSE(match("**/*.{jpg,png}", "x/a.gif"));
  EXPECT_TRUE(match("{a,b{c,d}}e", "bde"));
  EXPECT_TRUE(match("{a/b,c}/*", "a/b/x"));
  EXPECT_TRUE(match("a{,b}", "a"));
  EXPECT_TRUE(match("\\{a,b\\}", "{a,b}"));
}

TEST(Glob, TellsCaseApart) { EXPECT_FALSE(match("*.JPEG", "a.jpeg")); }

TEST(Glob, LeavesHiddenNamesToPatternsThatNameThem) {
  EXPECT_FALSE(match("**/*", ".hidden"));
  EXPECT_FALSE(match("**/*.jpg", ".snapshot/a.jpg"));
  EXPECT_FALSE(match("**/*.jpg", "d/._a.jpg"));
  EXPECT_FALSE(match("?a", ".a"));
  EXPECT_TRUE(match(".x/*.jpg", ".x/a.jpg"));
  EXPECT_TRUE(match("**/.*", "d/.a"));
}

TEST(Glob, TakesEscapedCharactersAsThemselves) {
  EXPECT_TRUE(match("a\\*", "a*"));
  EXPECT_FALSE(match("a\\*", "ab"));
  EXPECT_TRUE(match("\\[x\\]", "[x]"));
}

TEST(Glob, TakesNamesThatAreNoText) {
  EXPECT_TRUE(match("*", "\xff\xfe"));
  EXPECT_TRUE(match("[\x80-\xff]", "\xe4"));
}

TEST(Glob, KnowsWhichDirectoriesNeedNoVisit) {
  const auto glob = Glob::parse("{train,val}/n*/*.jpg");
  ASSERT_TRUE(glob);
  EXPECT_TRUE(glob->enter(glob->start(), "test").dead());
  const auto train = glob->enter(glob->start(), "train");
  EXPECT_FALSE(train.dead());
  EXPECT_TRUE(glob->enter(train, "x").dead());
  const auto n = glob->enter(train, "n01");
  EXPECT_TRUE(glob->accepts(n, "a.jpg"));
  EXPECT_TRUE(glob->enter(n, "deeper").dead());
}

TEST(Glob, KnowsWhichDirectoriesItCoversWhole) {
  const auto covers = [](const std::string& pattern, const std::string& path) {
    return Glob::parse(pattern)->covers(path);
  };
  for (const char* pattern : {"a/**", "a/**/*", "{b,a}/**", "**/a/**", "**", "?/**/**"}) {
    EXPECT_TRUE(covers(pattern, "a")) << pattern;
    EXPECT_TRUE(covers(pattern, "a/b/c")) << pattern;
  }
  for (const char* pattern : {"a", "a/*", "a/**/*.jpg", "a/b/**", "**/a", "**/.a/**", "A/**"})
    EXPECT_FALSE(covers(pattern, "a")) << pattern;
  EXPECT_FALSE(covers("a/**", "ab"));
  EXPECT_FALSE(covers("a/**", "a/.b"));
  EXPECT_FALSE(covers("a/**", ""));
}

TEST(Glob, KnowsWhetherItNamesHiddenFiles) {
  for (const char* pattern : {".*", "a/.b/**", "{a,\\.b}/*"})
    EXPECT_TRUE(Glob::parse(pattern)->may_match_hidden()) << pattern;
  for (const char* pattern : {"**/*", "a.b/*.c", "?.b"})
    EXPECT_FALSE(Glob::parse(pattern)->may_match_hidden()) << pattern;
}

TEST(Glob, MatchesInBoundedTimeWhateverThePattern) {
  std::string stars;
  for (int i = 0; i < 1000; ++i) stars += "*a";
  EXPECT_FALSE(match(stars + "b", std::string(2000, 'a')));
  std::string deep;
  std::string path;
  for (int i = 0; i < 30; ++i) deep += "**/a/";
  for (int i = 0; i < 100; ++i) path += "a/";
  EXPECT_FALSE(match(deep + "b", path + "c"));
  EXPECT_TRUE(match(deep + "b", path + "b"));
}

struct WrongGlob {
  std::string pattern;
  std::string message;
};

class GlobErrors : public ::testing::TestWithParam<WrongGlob> {};

TEST_P(GlobErrors, SayWhatIsWrong) {
  const auto glob = Glob::parse(GetParam().pattern);
  ASSERT_FALSE(glob) << GetParam().pattern.substr(0, 100);
  EXPECT_EQ(glob.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(glob.error().message(), HasSubstr(GetParam().message));
  EXPECT_LT(glob.error().message().size(), 400u);
}

INSTANTIATE_TEST_SUITE_P(
    Patterns, GlobErrors,
    ::testing::Values(
        WrongGlob{"", "it is empty"}, WrongGlob{"a/[b", "'[' is not closed"},
        WrongGlob{"[a/b]", "'[' is not closed"}, WrongGlob{"{a,b", "'{' is not closed"},
        WrongGlob{"a\\", "follows a '\\'"}, WrongGlob{"/a", "relative to the source's root"},
        WrongGlob{"a//b", "without empty parts"}, WrongGlob{"a/", "without empty parts"},
        WrongGlob{"../a", "'..'"}, WrongGlob{"./a", "'.'"}, WrongGlob{"{a,..}/b", "'..'"},
        WrongGlob{repeated("a/", 70) + "a", "more than 63 parts"},
        WrongGlob{repeated("{a,b}", 9), "more than 256 patterns"},
        WrongGlob{repeated("{", 40), "too long"}, WrongGlob{repeated("a", 5000), "too long"},
        WrongGlob{std::string("a\0b", 3), "zero byte"}));

}  // namespace
}  // namespace spdld::source
