// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace spdld::ctl {

// Bytes of a value of this dtype; 0: it is none that is drawn.
std::size_t value_bytes(std::string_view dtype);

// The value `i` of a tensor's bytes.
float value_at(std::string_view data, std::string_view dtype, std::size_t i);

// Which values are black and white.
struct ValueRange {
  float low = 0;
  float high = 255;
};

// All values of an integer type; of floats the least and the largest that there are.
ValueRange range_of(std::string_view data, std::string_view dtype, std::size_t values);

// NaN is black.
std::uint8_t to_pixel(float value, const ValueRange& range);

}  // namespace spdld::ctl
