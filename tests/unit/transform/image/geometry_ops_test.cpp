// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "tests/unit/transform/made_op.h"

namespace spdld::transform {
namespace {

using ::testing::HasSubstr;

// What the op makes of an image of this size.
Geometry applied(const GeometryOp& op, Size in, std::uint64_t key = 1) {
  Geometry chain = Geometry::identity(in);
  const Result<bool> appended = op.append_to(chain, KeyedRng(key));
  EXPECT_TRUE(appended && *appended);
  return chain;
}

TEST(Resize, MakesTheShortSideAndRoundsTheLongOneDown) {
  const auto op = made<GeometryOp>("resize", {{"size", Ints{256}}});
  EXPECT_EQ(applied(*op, {500, 375}).output(), (Size{341, 256}));
  EXPECT_EQ(applied(*op, {375, 500}).output(), (Size{256, 341}));
  EXPECT_EQ(applied(*op, {100, 100}).output(), (Size{256, 256}));
  EXPECT_EQ(op->output_size(Size{500, 375}), (Size{341, 256}));
  EXPECT_EQ(op->output_size(std::nullopt), std::nullopt);
}

TEST(Resize, TakesHeightBeforeWidth) {
  const auto op = made<GeometryOp>("resize", {{"size", Ints{120, 200}}});
  EXPECT_EQ(applied(*op, {500, 375}).output(), (Size{200, 120}));
  EXPECT_EQ(op->output_size(std::nullopt), (Size{200, 120}));
}

TEST(Resize, BoundsTheLongSideByMaxSize) {
  const auto op =
      made<GeometryOp>("resize", {{"size", Ints{256}}, {"max_size", std::int64_t{300}}});
  EXPECT_EQ(applied(*op, {500, 375}).output(), (Size{300, 225}));
  EXPECT_EQ(applied(*op, {400, 390}).output(), (Size{262, 256}));
  EXPECT_EQ(applied(*op, {5000, 1}).output(), (Size{300, 1}));
}

TEST(Resize, PassesOnHowPixelsAreMade) {
  const auto op = made<GeometryOp>(
      "resize",
      {{"size", Ints{9}}, {"interpolation", std::string("bicubic")}, {"antialias", false}});
  const Geometry chain = applied(*op, {50, 40});
  EXPECT_EQ(chain.interpolation, Interpolation::kBicubic);
  EXPECT_FALSE(chain.antialias);
}

TEST(Resize, DoesNotFitIntoAChainThatResizesAlready) {
  const auto op = made<GeometryOp>("resize", {{"size", Ints{10, 10}}});
  Geometry chain = Geometry::identity({50, 40});
  ASSERT_TRUE(chain.append_resize({30, 30}, Interpolation::kBilinear, true));
  const Geometry before = chain;
  const Result<bool> appended = op->append_to(chain, KeyedRng(1));
  ASSERT_TRUE(appended);
  EXPECT_FALSE(*appended);
  EXPECT_EQ(chain.scaled, before.scaled);
}

TEST(Resize, RefusesAnImageThatWouldBecomeEndless) {
  const auto op = made<GeometryOp>("resize", {{"size", Ints{224}}});
  Geometry chain = Geometry::identity({60000, 1});
  const Result<bool> appended = op->append_to(chain, KeyedRng(1));
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().message(),
            "resize: an image of 60000x1 pixels is too long and narrow for a short side of 224; "
            "give max_size, or both sides as size");
}

TEST(Resize, RefusesAMaxSizeThatSaysNothing) {
  EXPECT_THAT(refusal("resize", {{"size", Ints{256}}, {"max_size", std::int64_t{256}}}),
              HasSubstr("max_size must be greater than size"));
  EXPECT_THAT(refusal("resize", {{"size", Ints{256, 256}}, {"max_size", std::int64_t{300}}}),
              HasSubstr("leave one out"));
}

TEST(CenterCrop, PlacesTheCropAsTorchvisionRounds) {
  const auto op = made<GeometryOp>("center_crop", {{"size", Ints{224}}});
  // (225 - 224) / 2 = 0.5 and (229 - 224) / 2 = 2.5 round to even, 1.5 up.
  EXPECT_EQ(applied(*op, {225, 227}).window, (Rect{0, 2, 224, 224}));
  EXPECT_EQ(applied(*op, {229, 256}).window, (Rect{2, 16, 224, 224}));
  EXPECT_EQ(applied(*op, {224, 224}).window, (Rect{0, 0, 224, 224}));
}

TEST(CenterCrop, ReachesBeyondASmallerImage) {
  const auto op = made<GeometryOp>("center_crop", {{"size", Ints{10, 20}}});
  EXPECT_EQ(applied(*op, {15, 7}).window, (Rect{-2, -1, 20, 10}));
  EXPECT_EQ(op->output_size(std::nullopt), (Size{20, 10}));
}

TEST(RandomCrop, ReachesEveryPlaceAndNoOther) {
  const auto op = made<GeometryOp>("random_crop", {{"size", Ints{4, 6}}});
  std::set<std::pair<int, int>> places;
  for (std::uint64_t key = 0; key < 1000; ++key) {
    const Rect window = applied(*op, {9, 6}, key).window;
    EXPECT_EQ(window.size(), (Size{6, 4}));
    EXPECT_TRUE(window.x >= 0 && window.x <= 3 && window.y >= 0 && window.y <= 2);
    places.insert({window.x, window.y});
  }
  EXPECT_EQ(places.size(), 12U);
}

TEST(RandomCrop, RefusesAnImageThatIsTooSmall) {
  const auto op = made<GeometryOp>("random_crop", {{"size", Ints{4, 6}}});
  Geometry chain = Geometry::identity({5, 40});
  const Result<bool> appended = op->append_to(chain, KeyedRng(1));
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().message(),
            "random_crop: an image of 5x40 pixels is smaller than the crop, 6x4; resize it before, "
            "or set pad_if_needed: true");
}

TEST(RandomCrop, PadsOnBothSidesIfNeeded) {
  const auto op = made<GeometryOp>("random_crop", {{"size", Ints{6}}, {"pad_if_needed", true}});
  std::set<int> lefts;
  for (std::uint64_t key = 0; key < 200; ++key) {
    const Rect window = applied(*op, {5, 6}, key).window;
    EXPECT_EQ(window.y, 0);
    lefts.insert(window.x);
  }
  EXPECT_EQ(lefts, (std::set<int>{-1, 0}));
}

TEST(RandomCrop, PadsBeforeItCuts) {
  const auto op = made<GeometryOp>("random_crop", {{"size", Ints{32}}, {"padding", Ints{4}}});
  int left = 0;
  int right = 0;
  for (std::uint64_t key = 0; key < 500; ++key) {
    const Rect window = applied(*op, {32, 32}, key).window;
    left = std::min(left, window.x);
    right = std::max(right, window.x);
  }
  EXPECT_EQ(left, -4);
  EXPECT_EQ(right, 4);
  const auto uneven =
      made<GeometryOp>("random_crop", {{"size", Ints{8, 16}}, {"padding", Ints{1, 2, 5, 4}}});
  EXPECT_EQ(applied(*uneven, {10, 2}).window, (Rect{-1, -2, 16, 8}));
}

TEST(RandomCrop, RefusesAPaddingOfThree) {
  EXPECT_THAT(refusal("random_crop", {{"size", Ints{4}}, {"padding", Ints{1, 2, 3}}}),
              HasSubstr("holds 3 numbers"));
}

TEST(RandomResizedCrop, StaysWithinTheImageItsScaleAndItsRatio) {
  const auto op = made<GeometryOp>("random_resized_crop", {{"size", Ints{224}}});
  const Size in{500, 375};
  double area = 0;
  constexpr int kDraws = 4000;
  for (std::uint64_t key = 0; key < kDraws; ++key) {
    const Geometry chain = applied(*op, in, key);
    EXPECT_EQ(chain.output(), (Size{224, 224}));
    const Rect& crop = chain.crop;
    ASSERT_TRUE(crop.x >= 0 && crop.y >= 0 && crop.x + crop.width <= in.width &&
                crop.y + crop.height <= in.height);
    const double share = static_cast<double>(crop.width) * crop.height / (in.width * in.height);
    const double ratio = static_cast<double>(crop.width) / crop.height;
    EXPECT_GT(share, 0.08 - 0.005);
    EXPECT_LE(share, 1.0);
    EXPECT_GT(ratio, 0.75 - 0.01);
    EXPECT_LT(ratio, 4.0 / 3.0 + 0.02);
    area += share;
  }
  // Uniform between 0.08 and 1, less the large ones that do not fit.
  EXPECT_NEAR(area / kDraws, 0.47, 0.04);
}

TEST(RandomResizedCrop, DrawsFromItsKeyAlone) {
  const auto op = made<GeometryOp>("random_resized_crop", {{"size", Ints{224}}});
  EXPECT_EQ(applied(*op, {500, 375}, 8).crop, applied(*op, {500, 375}, 8).crop);
  std::set<std::pair<int, int>> sizes;
  for (std::uint64_t key = 0; key < 100; ++key) {
    const Rect crop = applied(*op, {500, 375}, key).crop;
    sizes.insert({crop.width, crop.height});
  }
  EXPECT_GT(sizes.size(), 90U);
}

TEST(RandomResizedCrop, TakesWideAndNarrowPartsEquallyOften) {
  const auto op =
      made<GeometryOp>("random_resized_crop", {{"size", Ints{64}}, {"scale", Floats{0.1, 0.2}}});
  int wide = 0;
  constexpr int kDraws = 4000;
  for (std::uint64_t key = 0; key < kDraws; ++key) {
    const Rect crop = applied(*op, {400, 400}, key).crop;
    wide += crop.width > crop.height ? 1 : 0;
  }
  EXPECT_NEAR(wide, kDraws / 2, 150);
}

TEST(RandomResizedCrop, TakesTheMiddleOfAnImageThatNoPartFits) {
  const auto op =
      made<GeometryOp>("random_resized_crop", {{"size", Ints{64}}, {"scale", Floats{0.9, 1.0}}});
  // 10 * 4 / 3 = 13.33 wide; (1000 - 13) / 2 = 493.
  EXPECT_EQ(applied(*op, {1000, 10}).crop, (Rect{493, 0, 13, 10}));
  EXPECT_EQ(applied(*op, {10, 1000}).crop, (Rect{0, 493, 10, 13}));
  EXPECT_EQ(applied(*op, {1, 60000}).crop.size(), (Size{1, 1}));
}

TEST(RandomResizedCrop, LeavesAChainAloneThatCannotHoldIt) {
  const auto op = made<GeometryOp>("random_resized_crop", {{"size", Ints{64}}});
  Geometry chain = Geometry::identity({500, 375});
  ASSERT_TRUE(chain.append_resize({300, 300}, Interpolation::kBilinear, true));
  const Result<bool> appended = op->append_to(chain, KeyedRng(1));
  ASSERT_TRUE(appended);
  EXPECT_FALSE(*appended);
  EXPECT_EQ(chain.window, (Rect{0, 0, 300, 300}));
  EXPECT_EQ(chain.scaled, (Size{300, 300}));
}

TEST(RandomResizedCrop, RefusesIntervalsThatAreNone) {
  EXPECT_THAT(refusal("random_resized_crop", {{"size", Ints{64}}, {"scale", Floats{0.9, 0.2}}}),
              HasSubstr("scale must be [low, high] with 0 < low <= high"));
  EXPECT_THAT(refusal("random_resized_crop", {{"size", Ints{64}}, {"ratio", Floats{0, 1}}}),
              HasSubstr("ratio must be"));
  EXPECT_THAT(refusal("random_resized_crop", {{"size", Ints{64}}, {"ratio", Floats{NAN, 1}}}),
              HasSubstr("ratio must be"));
}

TEST(RandomHorizontalFlip, FlipsAsOftenAsItShould) {
  for (const double p : {0.0, 0.3, 0.5, 1.0}) {
    const auto op = made<GeometryOp>("random_horizontal_flip", {{"p", p}});
    int flips = 0;
    for (std::uint64_t key = 0; key < 4000; ++key) {
      flips += applied(*op, {20, 20}, key).flip ? 1 : 0;
    }
    EXPECT_NEAR(flips, p * 4000, p == 0 || p == 1 ? 0 : 120);
  }
}

TEST(RandomHorizontalFlip, LeavesTheSizeAsItIs) {
  const auto op = made<GeometryOp>("random_horizontal_flip", {});
  EXPECT_EQ(op->output_size(Size{3, 4}), (Size{3, 4}));
  EXPECT_EQ(op->output_size(std::nullopt), std::nullopt);
  EXPECT_FALSE(op->resizes());
}

TEST(GeometryOps, CutTheMirroredImageAfterAFlip) {
  const auto flip = made<GeometryOp>("random_horizontal_flip", {{"p", 1.0}});
  const auto crop = made<GeometryOp>("center_crop", {{"size", Ints{10, 9}}});
  Geometry chain = Geometry::identity({20, 10});
  ASSERT_TRUE(*flip->append_to(chain, KeyedRng(1)));
  ASSERT_TRUE(*crop->append_to(chain, KeyedRng(1)));
  // (20 - 9) / 2 = 5.5 rounds to 6 from the mirrored left, which leaves 5 on the source's.
  EXPECT_EQ(chain.window, (Rect{5, 0, 9, 10}));
}

TEST(Ops, HaveNamesParametersAndDocs) {
  std::set<std::string> names;
  for (const OpInfo& op : ops()) {
    EXPECT_TRUE(names.insert(op.name).second) << op.name;
    EXPECT_FALSE(op.doc.empty()) << op.name;
    for (const ParamInfo& param : op.params) EXPECT_FALSE(param.doc.empty()) << param.name;
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"bounding_boxes", "resize", "center_crop", "random_crop",
                                   "random_resized_crop", "random_horizontal_flip", "normalize",
                                   "to_dtype", "mix_channels", "pad_or_trim", "speed_perturbation",
                                   "gain", "add_noise", "normalize_audio", "spectrogram",
                                   "mel_spectrogram", "amplitude_to_db", "log_mel", "mfcc"}));
}

}  // namespace
}  // namespace spdld::transform
