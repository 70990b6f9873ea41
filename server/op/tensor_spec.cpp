// SPDX-License-Identifier: Apache-2.0
#include "op/tensor_spec.h"

#include <array>
#include <utility>

namespace spdld {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 11> kNames{{
    {DType::kBool, "bool"},
    {DType::kUInt8, "uint8"},
    {DType::kInt8, "int8"},
    {DType::kUInt16, "uint16"},
    {DType::kInt16, "int16"},
    {DType::kInt32, "int32"},
    {DType::kInt64, "int64"},
    {DType::kFloat16, "float16"},
    {DType::kBFloat16, "bfloat16"},
    {DType::kFloat32, "float32"},
    {DType::kFloat64, "float64"},
}};

}  // namespace

std::string_view dtype_name(DType dtype) {
  for (const auto& [value, name] : kNames) {
    if (value == dtype) return name;
  }
  return "unknown";
}

std::string TensorSpec::mend() const {
  return to_one_shape + ", or let them differ: batch: {collate: {" + name +
         ": {kind: ragged, max_bytes: " + ample_row + "}}}";
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t extent : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

Result<DType> parse_dtype(std::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (known == name) return value;
  }
  return error(Code::kInvalidArgument, "'" + std::string(name) + "' is no dtype");
}

std::uint64_t TensorSpec::row_bytes() const {
  std::uint64_t bytes = wire::dtype_bytes(dtype);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::uint64_t>(extent);
  return bytes;
}

}  // namespace spdld
