// SPDX-License-Identifier: Apache-2.0
#include "transform/image/boxes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace spdld::transform {

bool operator==(const Box& a, const Box& b) {
  return a.left == b.left && a.top == b.top && a.right == b.right && a.bottom == b.bottom;
}
void PrintTo(const Box& box, std::ostream* out) {
  *out << box.left << ", " << box.top << ", " << box.right << ", " << box.bottom;
}

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Size kImage{200, 100};

std::vector<Box> boxes_of(const std::vector<double>& numbers, BoxFormat format,
                          bool normalized = false) {
  std::vector<Box> boxes{{1, 2, 3, 4}};
  const Status status =
      read_boxes(std::span<const double>(numbers), format, normalized, kImage, "boxes", boxes);
  EXPECT_TRUE(status.ok()) << status.message();
  return boxes;
}

std::string refusal_of(const std::vector<double>& numbers, BoxFormat format = BoxFormat::kXyxy,
                       bool normalized = false) {
  std::vector<Box> boxes;
  const Status status =
      read_boxes(std::span<const double>(numbers), format, normalized, kImage, "boxes", boxes);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  return status.message();
}

TEST(ReadBoxes, TakesEveryFormat) {
  EXPECT_THAT(boxes_of({10, 20, 40, 60}, BoxFormat::kXyxy), ElementsAre(Box{10, 20, 40, 60}));
  EXPECT_THAT(boxes_of({10, 20, 30, 40}, BoxFormat::kXywh), ElementsAre(Box{10, 20, 40, 60}));
  EXPECT_THAT(boxes_of({25, 40, 30, 40}, BoxFormat::kCxcywh), ElementsAre(Box{10, 20, 40, 60}));
  EXPECT_THAT(boxes_of({}, BoxFormat::kXyxy), IsEmpty());
}

TEST(ReadBoxes, TakesSharesOfTheImage) {
  EXPECT_THAT(boxes_of({0.5, 0.25, 0.25, 0.5, 0, 0, 1, 1}, BoxFormat::kXywh, true),
              ElementsAre(Box{100, 25, 150, 75}, Box{0, 0, 200, 100}));
}

TEST(ReadBoxes, TakesListsOfIntegers) {
  const std::array<std::int64_t, 4> numbers{1, 2, 3, 4};
  std::vector<Box> boxes;
  ASSERT_TRUE(read_boxes(std::span<const std::int64_t>(numbers), BoxFormat::kXyxy, false, kImage,
                         "boxes", boxes)
                  .ok());
  EXPECT_THAT(boxes, ElementsAre(Box{1, 2, 3, 4}));
}

TEST(ReadBoxes, LeavesBoxesThatStickOutAsTheyAre) {
  EXPECT_THAT(boxes_of({-10, -5, 300, 110}, BoxFormat::kXyxy), ElementsAre(Box{-10, -5, 300, 110}));
}

TEST(ReadBoxes, RefusesABoxThatLacksNumbers) {
  EXPECT_THAT(refusal_of({1, 2, 3, 4, 5}),
              HasSubstr("its field 'boxes' has 5 numbers, and each box takes 4"));
}

TEST(ReadBoxes, RefusesBoxesInsideOutByTheirNumber) {
  EXPECT_THAT(refusal_of({1, 2, 3, 4, 9, 2, 3, 4}),
              HasSubstr("boxes[1] is [9, 2, 3, 4], which as xyxy has its right edge left of its "
                        "left one"));
  EXPECT_THAT(refusal_of({1, 9, 3, 4}), HasSubstr("its bottom edge above its top one"));
  EXPECT_THAT(refusal_of({1, 9, -3, 4}, BoxFormat::kXywh), HasSubstr("a width below 0"));
  EXPECT_THAT(refusal_of({1, 9, 3, -4}, BoxFormat::kCxcywh), HasSubstr("a height below 0"));
}

TEST(ReadBoxes, RefusesNumbersThatAreNotFinite) {
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal_of({1, 2, std::nan(""), 4}), HasSubstr("boxes[0]"));
  EXPECT_THAT(refusal_of({1, 2, infinite, 4}), HasSubstr("not finite"));
  EXPECT_THAT(refusal_of({1e308, 2, 1e308, 4}, BoxFormat::kXywh), HasSubstr("not finite"));
}

TEST(ReadBoxes, RefusesPixelsWhereSharesAreMeant) {
  EXPECT_THAT(refusal_of({10, 20, 30, 40}, BoxFormat::kXyxy, true),
              HasSubstr("more than shares of an image"));
}

Geometry image() { return Geometry::identity(kImage); }

Box moved(const Geometry& step, Box box) {
  move_boxes(step, kImage, {&box, 1});
  return box;
}

TEST(MoveBoxes, ScalesWithoutClipping) {
  Geometry step = image();
  ASSERT_TRUE(step.append_resize({100, 300}, Interpolation::kBilinear, true));
  EXPECT_EQ(moved(step, {-10, 20, 220, 60}), (Box{-5, 60, 110, 180}));
}

TEST(MoveBoxes, ClipsToWhatACropLeaves) {
  Geometry step = image();
  ASSERT_TRUE(step.append_crop({50, 20, 100, 50}));
  EXPECT_EQ(moved(step, {10, 30, 100, 90}), (Box{0, 10, 50, 50}));
  EXPECT_EQ(moved(step, {0, 0, 40, 10}), (Box{0, 0, 0, 0}));
}

TEST(MoveBoxes, LeavesWhatSticksOutIntoPadding) {
  Geometry step = image();
  ASSERT_TRUE(step.append_crop({-10, -10, 220, 120}));
  EXPECT_EQ(moved(step, {-5, 0, 230, 100}), (Box{5, 10, 220, 110}));
}

TEST(MoveBoxes, ClipsBetweenCropAndResize) {
  Geometry step = image();
  ASSERT_TRUE(step.append_crop({50, 0, 100, 100}));
  ASSERT_TRUE(step.append_resize({50, 200}, Interpolation::kBilinear, true));
  EXPECT_EQ(moved(step, {0, 10, 100, 20}), (Box{0, 20, 25, 40}));
}

TEST(MoveBoxes, ClipsWhereACropLeavesAll) {
  Geometry step = image();
  ASSERT_TRUE(step.append_crop({0, 0, 200, 100}));
  EXPECT_EQ(moved(step, {-10, 0, 210, 50}), (Box{0, 0, 200, 50}));
}

TEST(MoveBoxes, MirrorsThem) {
  Geometry step = image();
  step.append_flip();
  EXPECT_EQ(moved(step, {10, 20, 40, 60}), (Box{160, 20, 190, 60}));
  EXPECT_EQ(moved(step, {-10, 20, 40, 60}), (Box{160, 20, 210, 60}));
}

TEST(ClipBoxes, LeavesNoAreaToBoxesBesideTheImage) {
  std::vector<Box> boxes{{-20, 10, -5, 20}, {250, 120, 260, 130}, {-1, -1, 300, 300}};
  clip_boxes(kImage, boxes);
  EXPECT_THAT(boxes, ElementsAre(Box{0, 10, 0, 20}, Box{200, 100, 200, 100}, Box{0, 0, 200, 100}));
}

}  // namespace
}  // namespace spdld::transform
