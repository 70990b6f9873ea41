// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/transform/made_op.h"

namespace spdld::transform {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<PixelOp> normalize(const std::string& dtype = "float32") {
  return made<PixelOp>(
      "normalize",
      {{"mean", Floats{0.5, 0.4, 0.3}}, {"std", Floats{0.2, 0.1, 0.25}}, {"dtype", dtype}});
}

std::unique_ptr<PixelOp> to_dtype(const std::string& dtype, bool scale) {
  return made<PixelOp>("to_dtype", {{"dtype", dtype}, {"scale", scale}});
}

TEST(Normalize, BringsBytesIntoTheUnitIntervalFirst) {
  PixelFormat format;
  ASSERT_TRUE(normalize()->append_to(format, 3).ok());
  EXPECT_EQ(format.dtype, DType::kFloat32);
  EXPECT_EQ(format.scale, 1.0F / 255.0F);
  EXPECT_TRUE(format.normalized);
  EXPECT_EQ(format.mean[1], 0.4F);
  EXPECT_EQ(format.std[2], 0.25F);
}

TEST(Normalize, BringsValuesOfTwoBytesIntoTheUnitIntervalFirst) {
  PixelFormat format{.dtype = DType::kUInt16};
  ASSERT_TRUE(normalize()->append_to(format, 3).ok());
  EXPECT_EQ(format.scale, 1.0F / 65535.0F);
}

TEST(Normalize, TakesOneValueForEachOfFourChannels) {
  PixelFormat format;
  const auto op = made<PixelOp>(
      "normalize", {{"mean", Floats{0.1, 0.2, 0.3, 0.4}}, {"std", Floats{0.5, 0.6, 0.7, 0.8}}});
  ASSERT_TRUE(op->append_to(format, 4).ok());
  EXPECT_EQ(format.mean[3], 0.4F);
  EXPECT_EQ(format.std[3], 0.8F);
}

TEST(Normalize, DoubtsMeansOfPixelsOf0To65535) {
  const auto op = made<PixelOp>("normalize", {{"mean", Floats{32768}}, {"std", Floats{16384}}});
  EXPECT_EQ(op->doubt({.dtype = DType::kUInt16}),
            "normalize: mean [3.277e+04] and std [1.638e+04] look like values for pixels of 0 to "
            "65535, and pixels are divided by 65535 before: for those, the same is mean [0.5] and "
            "std [0.25]");
}

TEST(Normalize, TakesFloatsAsTheyAre) {
  PixelFormat format;
  ASSERT_TRUE(to_dtype("float32", false)->append_to(format, 3).ok());
  ASSERT_TRUE(normalize("bfloat16")->append_to(format, 3).ok());
  EXPECT_EQ(format.scale, 1.0F);
  EXPECT_EQ(format.dtype, DType::kBFloat16);
}

TEST(Normalize, TakesOneValueForAllChannels) {
  PixelFormat format;
  const auto op = made<PixelOp>("normalize", {{"mean", Floats{0.5}}, {"std", Floats{0.25}}});
  ASSERT_TRUE(op->append_to(format, 3).ok());
  EXPECT_EQ(format.mean[2], 0.5F);
  EXPECT_EQ(format.std[1], 0.25F);
}

TEST(Normalize, RefusesAnotherNumberOfChannels) {
  PixelFormat format;
  EXPECT_EQ(normalize()->append_to(format, 1).message(),
            "normalize: mean and std have 3 values, but the image has 1 channel; give one for "
            "all or one for each");
  EXPECT_FALSE(format.normalized);
}

TEST(Normalize, CannotBeDoneTwice) {
  PixelFormat format;
  ASSERT_TRUE(normalize()->append_to(format, 3).ok());
  EXPECT_THAT(normalize()->append_to(format, 3).message(), HasSubstr("make them one stage"));
}

TEST(Normalize, RefusesWhatCannotBeDividedBy) {
  EXPECT_THAT(refusal("normalize", {{"mean", Floats{0.5}}, {"std", Floats{0}}}),
              HasSubstr("every std must be"));
  EXPECT_THAT(refusal("normalize", {{"mean", Floats{0.5}}, {"std", Floats{1e-300}}}),
              HasSubstr("every std must be"));
  EXPECT_THAT(refusal("normalize", {{"mean", Floats{1e300}}, {"std", Floats{1}}}),
              HasSubstr("every mean must be"));
  EXPECT_THAT(refusal("normalize", {{"mean", Floats{0.5, 0.5}}, {"std", Floats{1}}}),
              HasSubstr("mean has 2 values and std 1"));
}

TEST(ToDtype, ScalesBytesOnlyIfAsked) {
  PixelFormat plain;
  ASSERT_TRUE(to_dtype("float16", false)->append_to(plain, 3).ok());
  EXPECT_EQ(plain.dtype, DType::kFloat16);
  EXPECT_EQ(plain.scale, 1.0F);
  PixelFormat scaled;
  ASSERT_TRUE(to_dtype("float32", true)->append_to(scaled, 3).ok());
  EXPECT_EQ(scaled.scale, 1.0F / 255.0F);
}

TEST(ToDtype, ChangesOneFloatIntoAnother) {
  PixelFormat format;
  ASSERT_TRUE(normalize()->append_to(format, 3).ok());
  ASSERT_TRUE(to_dtype("bfloat16", true)->append_to(format, 3).ok());
  EXPECT_EQ(format.dtype, DType::kBFloat16);
  EXPECT_EQ(format.scale, 1.0F / 255.0F);
  EXPECT_TRUE(format.normalized);
}

TEST(ToDtype, DoesNotTurnFloatsBackIntoBytes) {
  PixelFormat format;
  ASSERT_TRUE(to_dtype("uint8", true)->append_to(format, 3).ok());
  EXPECT_EQ(format.scale, 1.0F);
  ASSERT_TRUE(normalize()->append_to(format, 3).ok());
  EXPECT_EQ(to_dtype("uint8", true)->append_to(format, 3).message(),
            "to_dtype: uint8 cannot follow float32; remove this stage or the one that made it so");
}

TEST(ToDtype, WidensIntegersAndNothingElse) {
  for (const DType dtype : {DType::kUInt8, DType::kUInt16}) {
    PixelFormat format{.dtype = dtype};
    ASSERT_TRUE(to_dtype("int64", false)->append_to(format, 1).ok());
    EXPECT_EQ(format.dtype, DType::kInt64);
    EXPECT_EQ(
        to_dtype("float32", false)->append_to(format, 1).message(),
        "to_dtype: float32 cannot follow int64; remove this stage or the one that made it so");
    EXPECT_THAT(normalize()->append_to(format, 3).message(), HasSubstr("cannot follow 'to_dtype"));
  }
  PixelFormat format;
  EXPECT_THAT(to_dtype("int64", true)->append_to(format, 1).message(), HasSubstr("remove it"));
  ASSERT_TRUE(to_dtype("float32", false)->append_to(format, 1).ok());
  EXPECT_FALSE(to_dtype("int64", false)->append_to(format, 1).ok());
}

TEST(ToDtype, ScalesValuesOfTwoBytesByTheirRange) {
  PixelFormat format{.dtype = DType::kUInt16};
  ASSERT_TRUE(to_dtype("float16", true)->append_to(format, 1).ok());
  EXPECT_EQ(format.scale, 1.0F / 65535.0F);
  EXPECT_EQ(format.dtype, DType::kFloat16);
}

TEST(ToDtype, LeavesIntegersOfTheSameDtypeAsTheyAre) {
  for (const auto& [dtype, name] :
       {std::pair{DType::kUInt8, "uint8"}, {DType::kUInt16, "uint16"}}) {
    PixelFormat format{.dtype = dtype};
    ASSERT_TRUE(to_dtype(name, true)->append_to(format, 1).ok());
    EXPECT_EQ(format.dtype, dtype);
    EXPECT_EQ(format.scale, 1.0F);
  }
}

TEST(ToDtype, MakesNoIntegersOfOthers) {
  PixelFormat format{.dtype = DType::kUInt16};
  EXPECT_EQ(to_dtype("uint8", false)->append_to(format, 1).message(),
            "to_dtype: uint8 cannot follow uint16; remove this stage or the one that made it so");
  format.dtype = DType::kUInt8;
  EXPECT_EQ(to_dtype("uint16", true)->append_to(format, 1).message(),
            "to_dtype: uint16 cannot follow uint8; remove this stage or the one that made it so");
}

}  // namespace
}  // namespace spdld::transform
