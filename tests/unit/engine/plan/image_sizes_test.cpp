// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/image_sizes.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/plan/plan.h"
#include "tests/support/fake_source.h"
#include "tests/support/pipelines.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"

namespace spdld::engine {
namespace {

using testing::FakeSource;

std::string jpeg_of(int width, int height) {
  const auto bytes = media::test::make_jpeg({.width = width, .height = height});
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ImageSizesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto plan = testing::compile("  - fetch\n  - decode_image\n  - resize: {size: [8, 8]}\n");
    ASSERT_TRUE(plan) << plan.error().message();
    plan_ = *plan;
  }
  PictureSizes look(source::Source& source) const {
    return look_at_images(source, 0, *plan_->image->decode);
  }

  std::shared_ptr<const Plan> plan_;
};

TEST_F(ImageSizesTest, AreOneIfAllThatCanBeReadHaveIt) {
  FakeSource source({"no image", jpeg_of(40, 30), jpeg_of(40, 30), "", jpeg_of(40, 30)});
  source.fail(2, Status(Code::kUnavailable, "gone"));
  const PictureSizes sizes = look(source);
  ASSERT_TRUE(sizes.one);
  EXPECT_EQ(*sizes.one, (Size{40, 30}));
  EXPECT_EQ(sizes.differing, "");
}

TEST_F(ImageSizesTest, NameTheFirstTwoThatDiffer) {
  FakeSource source({"no image", jpeg_of(40, 30), jpeg_of(40, 30), jpeg_of(30, 40), jpeg_of(9, 9)});
  const PictureSizes sizes = look(source);
  EXPECT_FALSE(sizes.one);
  EXPECT_EQ(sizes.differing, "fake/1 has 40x30 pixels, fake/3 30x40");
}

TEST_F(ImageSizesTest, AreLookedForAllOverTheSource) {
  std::vector<std::string> items(1000, jpeg_of(40, 30));
  for (std::size_t i = 930; i < items.size(); ++i) items[i] = jpeg_of(40, 31);
  FakeSource late(std::move(items));
  int asked = 0;
  late.on_given = [&](std::uint64_t, source::FetchedItem&) { ++asked; };
  EXPECT_NE(look(late).differing, "") << "one of the last items";
  EXPECT_EQ(asked, 16);
}

TEST_F(ImageSizesTest, AreNotKnownWhereNothingCanBeRead) {
  FakeSource source({"no image", ""});
  const PictureSizes sizes = look(source);
  EXPECT_FALSE(sizes.one);
  EXPECT_EQ(sizes.differing, "");
}

}  // namespace
}  // namespace spdld::engine
