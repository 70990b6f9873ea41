// SPDX-License-Identifier: Apache-2.0
#include "op/webdataset_suffix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "op/webdataset_spec.h"

namespace spdld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string why_not(const std::string& text) {
  const auto split = split_suffixes(text);
  if (split) ADD_FAILURE() << text << " was taken";
  if (split) return "";
  EXPECT_EQ(split.error().code(), Code::kInvalidArgument);
  return split.error().message();
}

TEST(WebdatasetSuffix, SplitsAlternativesInOrderAndLowersTheirCase) {
  EXPECT_THAT(split_suffixes("jpg;JPEG;seg.png").value(), ElementsAre("jpg", "jpeg", "seg.png"));
  EXPECT_THAT(split_suffixes("txt").value(), ElementsAre("txt"));
}

TEST(WebdatasetSuffix, TellsIntegersAndClassesByTheLastExtension) {
  for (const char* suffix : {"count", "index", "inx", "id", "fine.id"})
    EXPECT_EQ(suffix_kind(suffix).value(), SuffixKind::kInteger) << suffix;
  for (const char* suffix : {"cls", "cls2", "class", "fine.cls"})
    EXPECT_EQ(suffix_kind(suffix).value(), SuffixKind::kClass) << suffix;
  for (const char* suffix : {"jpg", "cls.txt", "json", "npy", "classes"})
    EXPECT_EQ(suffix_kind(suffix).value(), SuffixKind::kBytes) << suffix;
}

TEST(WebdatasetSuffix, RefusesPickles) {
  for (const char* suffix : {"pyd", "pickle", "pkl", "pth", "pt", "PKL", "left.pth"})
    EXPECT_THAT(why_not(suffix), HasSubstr("unpickling runs code")) << suffix;
}

TEST(WebdatasetSuffix, DoesNotReadTensorsOfWebDatasetsOwn) {
  EXPECT_THAT(why_not("ten"), HasSubstr("'ten' is not read"));
}

TEST(WebdatasetSuffix, RefusesWhatIsNone) {
  EXPECT_THAT(why_not(""), HasSubstr("is no suffix"));
  EXPECT_THAT(why_not("jpg;"), HasSubstr("'' is no suffix"));
  EXPECT_THAT(why_not(".jpg"), HasSubstr("begins with a dot"));
  EXPECT_THAT(why_not("a/jpg"), HasSubstr("is no suffix"));
  EXPECT_THAT(why_not("jpg png"), HasSubstr("is no suffix"));
  EXPECT_THAT(why_not(std::string(300, 'a')), HasSubstr("longer than the 255 bytes"));
}

TEST(WebdatasetSuffix, RefusesAlternativesThatAreReadOtherwise) {
  EXPECT_THAT(why_not("jpg;cls"), HasSubstr("'cls' is read otherwise than 'jpg'"));
  EXPECT_THAT(why_not("cls;id"), HasSubstr("'id' is read otherwise than 'cls'"));
  EXPECT_THAT(why_not("jpg;JPG"), HasSubstr("'jpg' is named twice"));
}

TEST(WebdatasetSpec, DiffersInEachOfItsValues) {
  const WebdatasetSpec spec{.shards = {"/a.tar"},
                            .parts = {{.field = "image", .suffixes = {"jpg"}}}};
  EXPECT_EQ(spec, WebdatasetSpec(spec));
  WebdatasetSpec other = spec;
  other.missing = WebdatasetSpec::Missing::kSkip;
  EXPECT_NE(spec, other);
  other = spec;
  other.classes = ClassesSpec{.kind = ClassesSpec::Kind::kList, .names = {"a"}};
  EXPECT_NE(spec, other);
}

}  // namespace
}  // namespace spdld
