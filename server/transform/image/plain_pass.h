// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "op/geometry.h"
#include "transform/image/image_target.h"
#include "transform/image/pass_plan.h"
#include "transform/image/pixel_kernels.h"

namespace spdld::transform {

// What ImagePass does, for images that it has no kernels for: 2 and 4 channels, and 16 bits. Plain
// loops, the same on every machine. Channels know nothing of each other: colours are not multiplied
// with alpha before they are mixed. 8-bit values are those that ImagePass gives to each channel
// alone; 16-bit ones are weighted in double precision, rounded to nearest along each axis.
class PlainPass {
 public:
  // As ImagePass.
  Rect begin(const Geometry& geometry, int channels, int bytes_per_value,
             const ImageTarget& target);
  void row(int y, const std::uint8_t* pixels);
  void finish();

 private:
  template <typename Value>
  void make_columns(const std::uint8_t* pixels, std::uint8_t* row) const;
  template <typename Value>
  void blend(int i);
  void write_row(int y, const std::uint8_t* row);
  void write_black(int begin, int end);
  // Of value `channel` of column `x` in a row that is being made.
  std::size_t place(int x, int channel) const {
    return planar_ ? static_cast<std::size_t>(channel * output_.width + x)
                   : static_cast<std::size_t>(x * channels_ + channel);
  }
  std::uint8_t* kept_row(int y) {
    return kept_.data() + static_cast<std::size_t>(y % plan_.kept_rows()) * row_bytes_;
  }

  PassPlan plan_;
  PixelConverter converter_;
  int channels_ = 0;
  int bytes_per_value_ = 0;
  Size output_;
  bool planar_ = false;
  bool flip_ = false;
  std::byte* out_ = nullptr;
  std::size_t plane_values_ = 0;  // as ImagePass has it
  int shown_begin_ = 0;           // column, mirrored if `flip_`
  int region_height_ = 0;
  int next_source_row_ = 0;
  int next_output_row_ = 0;  // of the shown ones
  std::size_t row_bytes_ = 0;
  std::vector<std::uint8_t> kept_;
  std::vector<std::uint8_t> blended_;
};

}  // namespace spdld::transform
