// SPDX-License-Identifier: Apache-2.0
#include "source/tar/sample_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/tar_writer.h"
#include "tests/unit/source/bytes/memory_file.h"

namespace spdld::source {
namespace {

using test::TarWriter;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Grouping {
  std::vector<std::string> samples;  // "key: suffix suffix"
  SkippedCounts skipped{};
  Status status;

  std::uint64_t count(Skipped reason) const { return skipped[static_cast<std::size_t>(reason)]; }
};

std::string sample_text(const TarSample& sample) {
  std::string text = sample.key + ":";
  for (const TarSample::Member& member : sample.members) text += " " + member.suffix;
  return text;
}

Grouping group(const std::string& archive) {
  MemoryFile file(archive);
  TarReader reader(file);
  SampleGroups groups(file.path());
  Grouping result;
  const auto take = [&] {
    if (groups.take() != nullptr) result.samples.push_back(sample_text(*groups.take()));
  };
  for (TarMember member; reader.next(member).value();) {
    const auto added = groups.add(member);
    take();
    if (!added) {
      result.status = added.error();
      return result;
    }
  }
  groups.finish();
  take();
  result.status = groups.check_unique(file);
  result.skipped = groups.skipped();
  return result;
}

std::string files(const std::vector<std::string>& names) {
  TarWriter tar;
  for (const std::string& name : names) tar.file(name, "x");
  return tar.archive();
}

TEST(SampleName, EndsItsKeyAtTheFirstDotOfTheBaseName) {
  Skipped ignored{};
  const auto cut = [&](const char* name) {
    const auto found = sample_name(name, ignored);
    return std::string(found->key) + "|" + std::string(found->suffix);
  };
  EXPECT_EQ(cut("a.jpg"), "a|jpg");
  EXPECT_EQ(cut("d.1/e/a.seg.png"), "d.1/e/a|seg.png");
  EXPECT_EQ(cut("./a.jpg"), "./a|jpg");
  EXPECT_EQ(cut("../a.jpg"), "../a|jpg");
  EXPECT_EQ(cut("a."), "a|");
  EXPECT_EQ(cut("__a__.jpg"), "__a__|jpg");
  EXPECT_EQ(cut("d/__a__/b.jpg"), "d/__a__/b|jpg");
}

TEST(SampleName, BelongsToNoSampleForAReason) {
  const auto why = [](const char* name) {
    Skipped reason{};
    EXPECT_FALSE(sample_name(name, reason)) << name;
    return reason;
  };
  EXPECT_EQ(why("README"), Skipped::kNoSuffix);
  EXPECT_EQ(why("a.b/README"), Skipped::kNoSuffix);
  EXPECT_EQ(why(""), Skipped::kNoSuffix);
  EXPECT_EQ(why(".hidden.jpg"), Skipped::kHidden);
  EXPECT_EQ(why("d/.hidden"), Skipped::kHidden);
  EXPECT_EQ(why("__info__"), Skipped::kMetadata);
  EXPECT_EQ(why("__info__/a.jpg"), Skipped::kMetadata);
}

TEST(SampleGroups, MakeASampleOfConsecutiveMembersWithOneKey) {
  EXPECT_THAT(group(files({"a.jpg", "a.cls", "b.jpg", "d/a.jpg", "d/a.seg.png"})).samples,
              ElementsAre("a: jpg cls", "b: jpg", "d/a: jpg seg.png"));
}

TEST(SampleGroups, CompareSuffixesInLowerCaseAndKeysAsTheyAre) {
  EXPECT_THAT(group(files({"a.JPG", "a.Cls", "A.jpg"})).samples,
              ElementsAre("a: jpg cls", "A: jpg"));
}

TEST(SampleGroups, PassOverWhatBelongsToNoSampleAndCountIt) {
  TarWriter tar;
  tar.directory("d/")
      .file("a.jpg", "x")
      .directory("e.d/")
      .file(".DS_Store", "")
      .file("__meta__", "");
  tar.file("README", "").member({.name = "a.png", .type = '1', .link = "a.jpg"}, "");
  tar.member({.name = "a.gif", .type = '2', .link = "a.jpg"}, "");
  tar.member({.name = "a.fifo", .type = '6'}, "").file("a.cls", "1");
  const Grouping grouping = group(tar.archive());
  EXPECT_THAT(grouping.samples, ElementsAre("a: jpg cls"));
  EXPECT_EQ(grouping.count(Skipped::kDirectory), 2u);
  EXPECT_EQ(grouping.count(Skipped::kHidden), 1u);
  EXPECT_EQ(grouping.count(Skipped::kMetadata), 1u);
  EXPECT_EQ(grouping.count(Skipped::kNoSuffix), 1u);
  EXPECT_EQ(grouping.count(Skipped::kLink), 2u);
  EXPECT_EQ(grouping.count(Skipped::kSpecial), 1u);
}

TEST(SampleGroups, KnowWhereMembersLie) {
  TarWriter tar;
  tar.file("skip", "").gnu_long('L', "key.jpg").file("x", "12345");
  MemoryFile file(tar.archive());
  TarReader reader(file);
  SampleGroups groups(file.path());
  for (TarMember member; reader.next(member).value();) ASSERT_TRUE(groups.add(member));
  groups.finish();
  const TarSample* const sample = groups.take();
  ASSERT_NE(sample, nullptr);
  EXPECT_EQ(sample->header_offset, 512u);
  EXPECT_EQ(sample->members[0].header_offset, 512u);
  EXPECT_EQ(sample->members[0].data_offset, 2048u);
  EXPECT_EQ(sample->members[0].size, 5u);
}

TEST(SampleGroups, RefuseTwoPartsOfOneSuffix) {
  const Grouping grouping = group(files({"z.jpg", "a.jpg", "a.cls", "a.JPG"}));
  EXPECT_EQ(grouping.status.code(), Code::kInvalidArgument);
  EXPECT_THAT(
      grouping.status.message(),
      AllOf(HasSubstr("/data/train-000.tar: at byte 3072, sample 'a' has a second part 'jpg'"),
            HasSubstr("after that at byte 1024")));
}

TEST(SampleGroups, RefuseTwoPartsOfOneSuffixAmongMany) {
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back("a." + std::to_string(i) + ".jpg");
  EXPECT_TRUE(group(files(names)).status.ok());
  names.emplace_back("a.500.jpg");
  EXPECT_THAT(group(files(names)).status.message(),
              HasSubstr("second part '500.jpg', after that at byte 512000"));
}

TEST(SampleGroups, RefuseAKeyThatComesAgain) {
  const Grouping grouping = group(files({"a.jpg", "b.jpg", "c.jpg", "b.cls", "a.cls"}));
  EXPECT_EQ(grouping.status.code(), Code::kInvalidArgument);
  EXPECT_THAT(
      grouping.status.message(),
      AllOf(HasSubstr("/data/train-000.tar: the key 'b' at byte 1024 comes again at byte 3072"),
            HasSubstr("anew in the order of names: mkdir '/data/train-000-unpacked' && tar -xf "
                      "'/data/train-000.tar' -C '/data/train-000-unpacked' && tar --sort=name -cf "
                      "'/data/train-000-sorted.tar' -C '/data/train-000-unpacked' .")));
}

TEST(SampleGroups, RefuseMoreMembersThanASampleMayHave) {
  MemoryFile none("");
  SampleGroups groups(none.path());
  TarMember member;
  Status status;
  for (std::size_t i = 0; i <= SampleGroups::kMaxMembers; ++i) {
    member.name = "a." + std::to_string(i);
    const auto added = groups.add(member);
    if (!added) status = added.error();
  }
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("sample 'a' has more than 100000 members"));
}

TEST(SampleGroups, HaveNoSampleInAnEmptyShard) {
  SampleGroups groups("x");
  groups.finish();
  EXPECT_EQ(groups.take(), nullptr);
}

}  // namespace
}  // namespace spdld::source
