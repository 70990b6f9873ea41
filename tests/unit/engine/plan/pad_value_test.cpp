// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/pad_value.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

namespace spdld::engine {
namespace {

template <typename T>
std::vector<T> filled(DType dtype, double value) {
  std::vector<T> values(3);
  fill(reinterpret_cast<std::byte*>(values.data()), sizeof(T) * values.size(), dtype, value);
  return values;
}

TEST(PadValue, FillsElementsOfEveryDtype) {
  EXPECT_EQ(filled<std::uint8_t>(DType::kUInt8, 255), (std::vector<std::uint8_t>{255, 255, 255}));
  EXPECT_EQ(filled<std::int64_t>(DType::kInt64, -1), (std::vector<std::int64_t>{-1, -1, -1}));
  EXPECT_EQ(filled<std::int16_t>(DType::kInt16, -300), (std::vector<std::int16_t>(3, -300)));
  EXPECT_EQ(filled<std::uint16_t>(DType::kUInt16, 65535), (std::vector<std::uint16_t>(3, 65535)));
  EXPECT_EQ(filled<float>(DType::kFloat32, 0.25), (std::vector<float>(3, 0.25F)));
  EXPECT_EQ(filled<double>(DType::kFloat64, -INFINITY), (std::vector<double>(3, -INFINITY)));
  EXPECT_EQ(filled<std::uint16_t>(DType::kFloat16, -2), (std::vector<std::uint16_t>(3, 0xC000)));
  EXPECT_EQ(filled<std::uint16_t>(DType::kBFloat16, 1), (std::vector<std::uint16_t>(3, 0x3F80)));
  EXPECT_EQ(filled<std::uint8_t>(DType::kBool, 1), (std::vector<std::uint8_t>(3, 1)));
}

TEST(PadValue, KnowsWhichValuesADtypeHas) {
  EXPECT_TRUE(is_value_of(DType::kUInt8, 255));
  EXPECT_FALSE(is_value_of(DType::kUInt8, 256));
  EXPECT_FALSE(is_value_of(DType::kUInt8, -1));
  EXPECT_TRUE(is_value_of(DType::kUInt16, 65535));
  EXPECT_FALSE(is_value_of(DType::kUInt16, 65536));
  EXPECT_FALSE(is_value_of(DType::kInt32, 0.5));
  EXPECT_FALSE(is_value_of(DType::kInt64, 0x1p60)) << "not each integer there is a double";
  EXPECT_FALSE(is_value_of(DType::kBool, 2));
  EXPECT_TRUE(is_value_of(DType::kFloat32, -INFINITY));
  EXPECT_FALSE(is_value_of(DType::kFloat32, NAN));
  EXPECT_FALSE(is_value_of(DType::kFloat16, 0.1));
  EXPECT_TRUE(is_value_of(DType::kFloat16, 0.5) && is_value_of(DType::kFloat16, -INFINITY));
  EXPECT_FALSE(is_value_of(DType::kFloat16, 65536) || is_value_of(DType::kFloat16, 2049));
  EXPECT_TRUE(is_value_of(DType::kBFloat16, 0x1p100));
  EXPECT_FALSE(is_value_of(DType::kFloat32, 1e300));
}

}  // namespace
}  // namespace spdld::engine
