// SPDX-License-Identifier: Apache-2.0
#include "op/geometry.h"

namespace spdld {

void Geometry::append_crop(Rect rect) {
  // A crop that follows a flip cuts the mirrored columns.
  const int x = flip ? window.width - rect.x - rect.width : rect.x;
  window = {window.x + x, window.y + rect.y, rect.width, rect.height};
}

bool Geometry::append_resize(Size size, Interpolation how, bool smooth) {
  if (size == output()) return true;
  if (resizes()) return false;
  if (window.x < 0 || window.y < 0 || window.x + window.width > scaled.width ||
      window.y + window.height > scaled.height) {
    return false;
  }
  crop = {crop.x + window.x, crop.y + window.y, window.width, window.height};
  scaled = size;
  window = {0, 0, size.width, size.height};
  interpolation = how;
  antialias = smooth;
  return true;
}

}  // namespace spdld
