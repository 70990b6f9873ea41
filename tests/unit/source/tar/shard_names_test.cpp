// SPDX-License-Identifier: Apache-2.0
#include "source/tar/shard_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "source/tar/brace_expansion.h"
#include "tests/unit/source/temp_dir.h"

namespace spdld::source {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::vector<std::string> expanded(const std::string& pattern) {
  std::vector<std::string> out;
  const Status status = expand_braces(pattern, 1'000'000, out);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

TEST(BraceExpansion, TakesListsAlsoNestedAndEmptyOnes) {
  EXPECT_THAT(expanded("a{b,c}d"), ElementsAre("abd", "acd"));
  EXPECT_THAT(expanded("{a,b{c,d}}{,e}"), ElementsAre("a", "ae", "bc", "bce", "bd", "bde"));
  EXPECT_THAT(expanded("plain"), ElementsAre("plain"));
  EXPECT_THAT(expanded("{x{1..2},y}"), ElementsAre("x1", "x2", "y"));
}

TEST(BraceExpansion, TakesNumbersAsWideAsTheyAreWritten) {
  EXPECT_THAT(expanded("{8..11}"), ElementsAre("8", "9", "10", "11"));
  EXPECT_THAT(expanded("{08..11}"), ElementsAre("08", "09", "10", "11"));
  EXPECT_THAT(expanded("{8..011}"), ElementsAre("008", "009", "010", "011"));
  EXPECT_THAT(expanded("{2..0}"), ElementsAre("2", "1", "0"));
  EXPECT_THAT(expanded("{0..10..5}"), ElementsAre("0", "5", "10"));
  EXPECT_THAT(expanded("{10..0..-5}"), ElementsAre("10", "5", "0"));
  EXPECT_THAT(expanded("{-1..1}"), ElementsAre("-1", "0", "1"));
  EXPECT_THAT(expanded("{-01..1}"), ElementsAre("-01", "000", "001"));
  EXPECT_THAT(expanded("{a..c}{1..2}"), ElementsAre("a1", "a2", "b1", "b2", "c1", "c2"));
  EXPECT_THAT(expanded("t-{000000..000146}.tar"), SizeIs(147));
}

TEST(BraceExpansion, LeavesOtherBracesAsTheyAre) {
  for (const char* pattern : {"{}", "{x}", "{1..}", "{1..b}", "{1.2}", "a}b", "\\{a,b\\}", "[{,}]",
                              "{1..99999999999999999999}"})
    EXPECT_THAT(expanded(pattern), ElementsAre(pattern));
  EXPECT_THAT(expanded("{x{a,b}}"), ElementsAre("{xa}", "{xb}"));
}

TEST(BraceExpansion, RefusesBracesThatAreNotClosed) {
  std::vector<std::string> out;
  EXPECT_THAT(expand_braces("a{b,c", 10, out).message(), HasSubstr("'a{b,c': a '{' is not closed"));
}

TEST(BraceExpansion, IsBounded) {
  std::vector<std::string> out;
  EXPECT_TRUE(expand_braces("{1..10}", 10, out).ok());
  EXPECT_EQ(expand_braces("a", 10, out).code(), Code::kResourceExhausted);
  out.clear();
  EXPECT_EQ(expand_braces("{0..999999999999999999}", 10, out).code(), Code::kResourceExhausted);
  out.clear();
  EXPECT_EQ(expand_braces("{1..1000}{1..1000}{1..1000}", 1'000'000, out).code(),
            Code::kResourceExhausted);
  out.clear();
  EXPECT_EQ(expand_braces(std::string(4000, 'x') + "{1..900000}", 1'000'000, out).code(),
            Code::kResourceExhausted);
  out.clear();
  EXPECT_EQ(expand_braces(std::string(5000, 'x'), 10, out).code(), Code::kInvalidArgument);
  std::string deep;
  for (int i = 0; i < 40; ++i) deep += "{a,";
  EXPECT_EQ(expand_braces(deep + std::string(40, '}'), 10, out).code(), Code::kInvalidArgument);
}

class ShardPaths : public ::testing::Test {
 protected:
  Result<std::vector<std::string>> find(const std::vector<std::string>& names) {
    std::vector<std::string> patterns;
    for (const std::string& name : names) {
      std::string pattern = name;
      for (std::size_t at; (at = pattern.find('@')) != std::string::npos;)
        pattern.replace(at, 1, dir_.path());
      patterns.push_back(pattern);
    }
    return shard_paths(patterns, Access(AccessRules{}, Access::trusted()), {.max_shards = 1000});
  }
  // Below the directory.
  std::vector<std::string> below(const std::vector<std::string>& names) {
    auto paths = find(names);
    if (!paths) ADD_FAILURE() << paths.error().message();
    if (!paths) return {};
    for (std::string& path : *paths) path = path.substr(dir_.path().size() + 1);
    return *paths;
  }
  std::string why_not(const std::vector<std::string>& names) {
    const auto paths = find(names);
    return paths ? "it was taken" : paths.error().message();
  }

  TempDir dir_;
};

TEST_F(ShardPaths, ComeInTheOrderInWhichTheyAreNamed) {
  EXPECT_THAT(below({"@/b-{01..00}.tar", "@/a.tar::@/c.tar"}),
              ElementsAre("b-01.tar", "b-00.tar", "a.tar", "c.tar"));
}

TEST_F(ShardPaths, OfAGlobAreSortedBytewise) {
  for (const char* name : {"t-2.tar", "t-10.tar", "t-1.tar", "x.tar", "t-1.txt", ".t-0.tar"})
    dir_.file(name);
  dir_.directory("t-3.tar");
  EXPECT_THAT(below({"@/t-*.tar"}), ElementsAre("t-1.tar", "t-10.tar", "t-2.tar"));
  EXPECT_THAT(below({"@/t-[2-9].tar", "@/?.tar"}), ElementsAre("t-2.tar", "x.tar"));
  EXPECT_THAT(below({"@/{x,t-1}*.tar"}), ElementsAre("x.tar", "t-1.tar", "t-10.tar"));
}

TEST_F(ShardPaths, OfAGlobLieInAnyDirectoriesThatItNames) {
  for (const char* name : {"a/1.tar", "b/2.tar", "b/c/3.tar"}) dir_.file(name);
  EXPECT_THAT(below({"@/*/*.tar"}), ElementsAre("a/1.tar", "b/2.tar"));
  EXPECT_THAT(below({"@/**/*.tar"}), ElementsAre("a/1.tar", "b/2.tar", "b/c/3.tar"));
}

TEST_F(ShardPaths, MayHoldCharactersThatStandForOthersElsewhere) {
  dir_.file("a[1]{x}*.tar");
  dir_.file("a[1]{x}b.tar");
  EXPECT_THAT(below({"@/a\\[1\\]{x}\\*.tar"}), ElementsAre("a[1]{x}*.tar"));
  EXPECT_THAT(below({"@/a\\[1]{x}?.tar"}), ElementsAre("a[1]{x}*.tar", "a[1]{x}b.tar"));
  EXPECT_THAT(below({"@/open[.tar"}), ElementsAre("open[.tar"));
}

TEST_F(ShardPaths, MatchSomethingOrAreRefused) {
  dir_.file("other.txt");
  EXPECT_THAT(why_not({"@/t-*.tar"}),
              AllOf(HasSubstr("/t-*.tar' matches none of the files below " + dir_.path()),
                    HasSubstr("such as other.txt")));
  EXPECT_THAT(why_not({"@/{other,none}*.txt"}), HasSubstr("/none*.txt' matches none"));
  EXPECT_THAT(why_not({"@/none/*.tar"}), HasSubstr("there is no directory " + dir_.path("none")));
  EXPECT_EQ(find({"@/none/*.tar"}).error().code(), Code::kNotFound);
}

TEST_F(ShardPaths, AreNoAddressesAndNoCommands) {
  EXPECT_THAT(why_not({"https://host/{000..146}.tar"}),
              HasSubstr("'https://host/{000..146}.tar' is an address"));
  EXPECT_THAT(why_not({"@/a.tar::s3://bucket/b.tar"}),
              HasSubstr("'s3://bucket/b.tar' is an address"));
  EXPECT_THAT(why_not({"pipe:cat a.tar"}), HasSubstr("is a command, and none is run"));
  EXPECT_THAT(why_not({"a.tar"}), HasSubstr("is no absolute path"));
  EXPECT_THAT(why_not({std::string("/a\0b", 4)}), HasSubstr("holds a zero byte"));
}

TEST_F(ShardPaths, AreNamedOnce) {
  EXPECT_THAT(why_not({"@/a.tar", "@/{b,a}.tar"}), HasSubstr("/a.tar' is named twice"));
}

TEST_F(ShardPaths, AreBounded) {
  EXPECT_EQ(find({"@/{0..600}.tar", "@/x{0..600}.tar"}).error().code(), Code::kResourceExhausted);
}

TEST_F(ShardPaths, AreAtLeastOne) {
  EXPECT_THAT(why_not({}), HasSubstr("names no shard"));
  EXPECT_THAT(why_not({""}), HasSubstr("is no absolute path"));
  EXPECT_THAT(why_not({"@/a.tar::"}), HasSubstr("ends with '::'"));
}

TEST_F(ShardPaths, AreLookedForWithTheReadersRights) {
  dir_.file("closed/a.tar");
  const Access access({.roots = {{dir_.path("closed")}}, .own_directories = {dir_.path("closed")}},
                      Access::trusted());
  const auto paths = shard_paths({dir_.path("closed/*.tar")}, access, {});
  ASSERT_FALSE(paths);
  EXPECT_EQ(paths.error().code(), Code::kPermissionDenied);
}

}  // namespace
}  // namespace spdld::source
