// SPDX-License-Identifier: Apache-2.0
#include "op/tensor_spec.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace spdld {
namespace {

TEST(DTypeNames, ComeBackFromTheirText) {
  std::set<std::string_view> names;
  for (const DType dtype :
       {DType::kBool, DType::kUInt8, DType::kUInt16, DType::kInt8, DType::kInt16, DType::kInt32,
        DType::kInt64, DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    const std::string_view name = dtype_name(dtype);
    EXPECT_TRUE(names.insert(name).second) << name;
    const auto parsed = parse_dtype(name);
    ASSERT_TRUE(parsed) << name;
    EXPECT_EQ(*parsed, dtype);
  }
}

TEST(DTypeNames, RefuseWhatIsNone) {
  for (const std::string name : {"", "unknown", "Float32", "float32 ", "float"}) {
    const auto parsed = parse_dtype(name);
    ASSERT_FALSE(parsed) << name;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_NE(parsed.error().message().find("'" + name + "'"), std::string::npos);
  }
}

}  // namespace
}  // namespace spdld
