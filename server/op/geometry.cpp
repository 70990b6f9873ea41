// SPDX-License-Identifier: Apache-2.0
#include "op/geometry.h"

#include <algorithm>

namespace spdld {
namespace {

Rect intersect(const Rect& a, const Rect& b) {
  const int x = std::max(a.x, b.x);
  const int y = std::max(a.y, b.y);
  const int right = std::min(a.x + a.width, b.x + b.width);
  const int bottom = std::min(a.y + a.height, b.y + b.height);
  if (right <= x || bottom <= y) return {};
  return {x, y, right - x, bottom - y};
}

}  // namespace

bool Geometry::append_crop(Rect rect) {
  // A crop that follows a flip cuts the mirrored columns.
  const int x = flip ? window.width - rect.x - rect.width : rect.x;
  const Rect cut{window.x + x, window.y + rect.y, rect.width, rect.height};
  const Rect all{0, 0, scaled.width, scaled.height};
  const Rect shown = intersect(cut, all);
  if (intersect(shown, window) != shown) return false;
  window = cut;
  cropped = true;
  return true;
}

bool Geometry::append_resize(Size size, Interpolation how, bool smooth) {
  if (size == output()) return true;
  if (nearest_only) how = Interpolation::kNearestExact;
  if (resizes() || (flip && is_nearest(how))) return false;
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
