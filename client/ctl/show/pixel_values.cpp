// SPDX-License-Identifier: Apache-2.0
#include "ctl/show/pixel_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace spdld::ctl {
namespace {

float half_to_float(std::uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const int fraction = half & 0x3ff;
  float value = 0;
  if (exponent == 0x1f) {
    value = fraction == 0 ? std::numeric_limits<float>::infinity()
                          : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    value = std::ldexp(static_cast<float>(fraction | 0x400), exponent - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

}  // namespace

std::size_t value_bytes(std::string_view dtype) {
  if (dtype == "uint8") return 1;
  if (dtype == "uint16" || dtype == "float16" || dtype == "bfloat16") return 2;
  if (dtype == "float32") return 4;
  return 0;
}

float value_at(std::string_view data, std::string_view dtype, std::size_t i) {
  if (dtype == "uint8") return static_cast<unsigned char>(data[i]);
  if (dtype == "float32") {
    float value = 0;
    std::memcpy(&value, data.data() + i * sizeof(value), sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, data.data() + i * sizeof(bits), sizeof(bits));
  if (dtype == "uint16") return bits;
  return dtype == "float16" ? half_to_float(bits) : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

ValueRange range_of(std::string_view data, std::string_view dtype, std::size_t values) {
  if (dtype == "uint8") return {};
  if (dtype == "uint16") return {0, 65535};
  ValueRange range{std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  for (std::size_t i = 0; i < values; ++i) {
    const float value = value_at(data, dtype, i);
    if (!std::isfinite(value)) continue;
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
  }
  if (!(range.low < range.high)) return {range.low, range.low + 1};
  return range;
}

std::uint8_t to_pixel(float value, const ValueRange& range) {
  const float stretched = (value - range.low) / (range.high - range.low) * 255.0F;
  if (!(stretched > 0)) return 0;  // NaN too
  return static_cast<std::uint8_t>(std::min(stretched + 0.5F, 255.0F));
}

}  // namespace spdld::ctl
