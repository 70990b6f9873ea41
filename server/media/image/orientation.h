// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "op/image.h"

namespace spdld::media {

// How a stored image is turned to stand upright: EXIF's eight cases as "swap the axes, then mirror
// them". An immutable value.
class Orientation {
 public:
  Orientation() = default;  // stored upright
  // EXIF's number; all but 2 to 8 mean upright.
  static Orientation from_exif(int value);

  bool upright() const { return !transposed_ && !mirrored_x_ && !mirrored_y_; }

  Size upright_size(Size stored) const;
  // Where the pixels of `upright`, a region of the upright image, are stored.
  Rect stored_region(const Rect& upright, Size stored) const;
  // Writes row `y` of the upright picture of `stored`, which is a whole image or such a region.
  void upright_row(const ImageView& stored, int y, std::uint8_t* out) const;

 private:
  Orientation(bool transposed, bool mirrored_x, bool mirrored_y)
      : transposed_(transposed), mirrored_x_(mirrored_x), mirrored_y_(mirrored_y) {}

  // stored x = upright (transposed ? y : x), then counted from the right if mirrored; so for y.
  bool transposed_ = false;
  bool mirrored_x_ = false;
  bool mirrored_y_ = false;
};

}  // namespace spdld::media
