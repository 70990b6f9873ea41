// SPDX-License-Identifier: Apache-2.0
#include "source/listing/companions.h"

#include <gtest/gtest.h>

#include <string>

namespace spdld::source {
namespace {

std::string companion(const std::string& pattern, const std::string& item) {
  const Result<CompanionPattern> parsed = CompanionPattern::parse(pattern);
  if (!parsed) {
    ADD_FAILURE() << parsed.error().message();
    return "";
  }
  const Result<std::string> uri = parsed->uri(item);
  return uri ? *uri : uri.error().message();
}

TEST(Companions, AreNamedByPartsOfTheItem) {
  const std::string item = "images/train/a.b.jpg";
  EXPECT_EQ(companion("masks/${stem}.png", item), "masks/a.b.png");
  EXPECT_EQ(companion("masks/${name}.png", item), "masks/a.b.jpg.png");
  EXPECT_EQ(companion("${dir}/${stem}.txt", item), "images/train/a.b.txt");
  EXPECT_EQ(companion("annotations/${subdir}/${stem}.png", item), "annotations/train/a.b.png");
  EXPECT_EQ(companion("${top}.list", item), "images.list");
  EXPECT_EQ(companion("${top}/${subdir}/${stem}.${ext}", item), item);
  EXPECT_EQ(companion("${stem}-${stem}$5$.${ext}", "a.jpg"), "a-a$5$.jpg");
}

TEST(Companions, LeaveOutAnEndThatThePatternNames) {
  EXPECT_EQ(companion("gt/${subdir}/${stem%_img}_ids.png", "im/train/a_img.png"),
            "gt/train/a_ids.png");
  EXPECT_EQ(companion("${dir%/images}/masks/${stem}.png", "x/images/a.jpg"), "x/masks/a.png");
  EXPECT_EQ(companion("${dir%images}masks/${name%.jpg}", "images/a.jpg"), "masks/a");
  EXPECT_EQ(companion("${stem%_img}.txt", "a_img_img.png"), "a_img.txt");
  EXPECT_EQ(companion("${stem%_img}.txt", "a.png"), "a.txt");
  EXPECT_EQ(companion("${stem%}.txt", "a.png"), "a.txt");
}

TEST(Companions, LeaveOutDirectoriesThatTheItemDoesNotHave) {
  EXPECT_EQ(companion("masks/${dir}/${stem}.png", "a.jpg"), "masks/a.png");
  EXPECT_EQ(companion("${dir}/${stem}.png", "a.jpg"), "a.png");
  EXPECT_EQ(companion("masks/${subdir}/${stem}.png", "x/a.jpg"), "masks/a.png");
  EXPECT_EQ(companion("${top}/${subdir}/m/${stem}.png", "a.jpg"), "m/a.png");
  EXPECT_EQ(companion("x${dir}/${stem}.png", "a.jpg"), "x/a.png");
}

TEST(Companions, TakeNamesWithoutEndingsAsTheirStems) {
  EXPECT_EQ(companion("${stem}.png", "d/a"), "a.png");
  EXPECT_EQ(companion("${stem}.png", ".hidden"), ".hidden.png");
  EXPECT_EQ(companion("${stem}_${ext}", "a."), "a_");
}

TEST(Companions, NeverLeaveTheRoot) {
  EXPECT_EQ(companion("${stem}/x", "d/...jpg"),
            "the companion of 'd/...jpg' would be '../x', which is no path below the root");
  EXPECT_EQ(companion("..${ext}", "a"),
            "the companion of 'a' would be '..', which is no path below the root");
  EXPECT_EQ(companion("${ext}/x", "a"),
            "the companion of 'a' would be '/x', which is no path below the root");
  EXPECT_EQ(companion("${dir}", "a"),
            "the companion of 'a' would be '', which is no path below the root");
  std::string deep(3000, 'd');
  deep += "/a";
  EXPECT_TRUE(companion("${dir}${dir}/x", deep).ends_with("which is no path below the root"));
}

TEST(CompanionErrors, SayWhatIsWrongWithThePattern) {
  const auto message = [](const std::string& pattern) {
    const Result<CompanionPattern> parsed = CompanionPattern::parse(pattern);
    return parsed ? "" : parsed.error().message();
  };
  EXPECT_EQ(message("masks/${stm}.png"),
            "companion 'masks/${stm}.png': 'stm' is no part of an item; did you mean 'stem'?");
  EXPECT_EQ(message("${}"),
            "companion '${}': '' is no part of an item; there are: name, stem, "
            "ext, dir, top, subdir");
  EXPECT_EQ(message("masks/${stm%_x}.png"),
            "companion 'masks/${stm%_x}.png': 'stm' is no part of an item; did you mean 'stem'?");
  EXPECT_EQ(message("masks/${stem.png"), "companion 'masks/${stem.png': '${' without '}'");
  EXPECT_EQ(message("masks/a.png"),
            "companion 'masks/a.png': it would be the same file for all items; name a part of the "
            "item: ${stem}");
  const std::string relative =
      "': it is relative to the source's root, without empty parts, '.' and '..'";
  for (const std::string pattern : {"/masks/${stem}.png", "../${stem}.png", "a/../${stem}",
                                    "a//${stem}", "./${stem}", "${stem}/", "${stem}/.."}) {
    EXPECT_EQ(message(pattern), "companion '" + pattern + relative);
  }
  EXPECT_EQ(message(std::string("${stem}\0", 8)),
            "companion '${stem}\\x00': no path holds a zero byte");
  std::string longest(5000, 'a');
  longest += "${stem}";
  EXPECT_TRUE(message(longest).ends_with("it is too long"));
}

}  // namespace
}  // namespace spdld::source
