// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/image.h"

namespace spdld {

enum class Interpolation {
  kNearest,  // the pixel that a center lies in, as Pillow finds it
  kBilinear,
  kBicubic,
  // The same as kNearest but where a center lies between two pixels: as torch finds it, whose
  // "nearest-exact" it is.
  kNearestExact,
};

constexpr bool is_nearest(Interpolation interpolation) {
  return interpolation == Interpolation::kNearest || interpolation == Interpolation::kNearestExact;
}

// What a chain of crops, resizes and flips comes to: take `crop` of the source, resize it to
// `scaled`, keep `window` of that, mirror it left to right if `flip`. Coordinates are those of the
// upright source (EXIF orientation undone). `window` may reach beyond `scaled`: there it is 0.
//
// It is what makes fusion possible: a decoder needs to decode only what `window` depends on.
struct Geometry {
  Rect crop;
  Size scaled;
  Rect window;
  bool flip = false;
  Interpolation interpolation = Interpolation::kBilinear;
  bool antialias = true;
  // Whether it was cropped, be it to all that there was: what lies in an image ends at its edges
  // then.
  bool cropped = false;
  // Whatever a resize asks for, pixels are taken as they are: they are class numbers.
  bool nearest_only = false;

  // The chain that does nothing to a source of this size.
  static Geometry identity(Size source) {
    const Rect all{0, 0, source.width, source.height};
    return {.crop = all, .scaled = source, .window = all};
  }

  Size output() const { return window.size(); }
  bool resizes() const { return scaled != crop.size(); }

  // Append to the chain. False, and nothing appended, when this chain cannot hold it: the pixels so
  // far must be made first, and a new chain begun. That is so for a crop that would bring back
  // pixels which an earlier crop took away (beyond output() all is 0), and for a resize of what is
  // resized already, reaches beyond the source, or is mirrored and sampled by nearest (which does
  // not commute).
  [[nodiscard]] bool append_crop(Rect rect);  // in the coordinates of output(); may reach beyond
  void append_flip() { flip = !flip; }
  [[nodiscard]] bool append_resize(Size size, Interpolation interpolation, bool antialias);
};

}  // namespace spdld
