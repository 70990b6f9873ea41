// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/pad_value.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace spdld::engine {
namespace {

template <typename T>
bool fits(double value) {
  return value == std::floor(value) &&
         value >= static_cast<double>(std::numeric_limits<T>::min()) &&
         value <= static_cast<double>(std::numeric_limits<T>::max());
}

using Element = std::array<std::byte, 8>;

template <typename T>
void put(Element& element, double value) {
  const T held = static_cast<T>(value);
  std::memcpy(element.data(), &held, sizeof held);
}

// Whether the type of `kMantissaBits` and `kLeastExponent` to `kMostExponent` has it exactly, and
// not as a subnormal.
template <int kMantissaBits, int kLeastExponent, int kMostExponent>
bool is_exact(double value) {
  if (value == 0 || std::isinf(value)) return true;
  if (std::isnan(value)) return false;
  int exponent = 0;
  const double mantissa = std::ldexp(std::frexp(value, &exponent), kMantissaBits + 1);
  return mantissa == std::floor(mantissa) && exponent - 1 >= kLeastExponent &&
         exponent - 1 <= kMostExponent;
}

// Only values that a half has exactly get here.
std::uint16_t half_bits(double value) {
  std::uint32_t bits = 0;
  const auto single = static_cast<float>(value);
  std::memcpy(&bits, &single, sizeof bits);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const int exponent = static_cast<int>(bits >> 23 & 0xFFU) - 127;
  const std::uint32_t mantissa = bits & 0x7FFFFFU;
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | 0x7C00U);
  if (value == 0) return static_cast<std::uint16_t>(sign);
  return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(exponent + 15) << 10 |
                                    mantissa >> 13);
}

std::uint16_t bfloat_bits(double value) {
  std::uint32_t bits = 0;
  const auto single = static_cast<float>(value);
  std::memcpy(&bits, &single, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

}  // namespace

bool is_value_of(DType dtype, double value) {
  switch (dtype) {
    case DType::kBool: return value == 0 || value == 1;
    case DType::kUInt8: return fits<std::uint8_t>(value);
    case DType::kInt8: return fits<std::int8_t>(value);
    case DType::kInt16: return fits<std::int16_t>(value);
    case DType::kUInt16: return fits<std::uint16_t>(value);
    case DType::kInt32: return fits<std::int32_t>(value);
    case DType::kInt64: return std::abs(value) <= 0x1p53 && value == std::floor(value);
    case DType::kFloat16: return is_exact<10, -14, 15>(value);
    case DType::kBFloat16: return is_exact<7, -126, 127>(value);
    case DType::kFloat32:
      return std::isinf(value) || std::abs(value) <= std::numeric_limits<float>::max();
    case DType::kFloat64: return !std::isnan(value);
  }
  return false;
}

void fill(std::byte* out, std::uint64_t bytes, DType dtype, double value) {
  Element element{};
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8: put<std::uint8_t>(element, value); break;
    case DType::kInt8: put<std::int8_t>(element, value); break;
    case DType::kInt16: put<std::int16_t>(element, value); break;
    case DType::kUInt16: put<std::uint16_t>(element, value); break;
    case DType::kInt32: put<std::int32_t>(element, value); break;
    case DType::kInt64: put<std::int64_t>(element, value); break;
    case DType::kFloat32: put<float>(element, value); break;
    case DType::kFloat64: put<double>(element, value); break;
    case DType::kFloat16: put<std::uint16_t>(element, half_bits(value)); break;
    case DType::kBFloat16: put<std::uint16_t>(element, bfloat_bits(value)); break;
  }
  const std::uint64_t size = wire::dtype_bytes(dtype);
  SPDLD_CHECK(bytes % size == 0);
  for (std::uint64_t at = 0; at < bytes; at += size) std::memcpy(out + at, element.data(), size);
}

}  // namespace spdld::engine
