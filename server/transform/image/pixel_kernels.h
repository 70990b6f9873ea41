// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "op/op.h"

namespace spdld::transform {

// Whether pixels of this dtype are integers as they were decoded, and not widened.
bool is_integer(DType dtype);

// The last pass over a row: values of one or two bytes to the format's dtype by one multiplication
// and one addition per value, out = in * factor[c] + offset[c] in float32, never fused, so that the
// values are the same on every machine. Half floats are rounded to nearest even.
class PixelConverter {
 public:
  PixelConverter() = default;
  // The format's dtype is a float, that of the values, or int64, which has them as they are.
  PixelConverter(const PixelFormat& format, int channels, int bytes_per_value = 1);

  std::size_t value_bytes() const { return value_bytes_; }

  // `count` values of channel `channel`.
  void convert_plane(const std::uint8_t* in, std::size_t count, int channel, std::byte* out) const;
  // `count` values of interleaved pixels, the first one of channel 0.
  void convert_interleaved(const std::uint8_t* in, std::size_t count, std::byte* out) const;

 private:
  // Factors or offsets of consecutive values: long enough for any vector at any phase of up to four
  // channels.
  using Pattern = std::array<float, 3 * 16>;

  DType dtype_ = DType::kUInt8;
  std::size_t value_bytes_ = 1;
  bool wide_ = false;                // values of two bytes come in
  std::array<Pattern, 5> factor_{};  // of a plane each; the last one of interleaved pixels
  std::array<Pattern, 5> offset_{};
};

}  // namespace spdld::transform
