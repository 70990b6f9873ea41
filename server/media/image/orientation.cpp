// SPDX-License-Identifier: Apache-2.0
#include "media/image/orientation.h"

#include <cstddef>
#include <cstring>

#include "base/check.h"

namespace spdld::media {
namespace {

// `count` pixels that lie `step_bytes` apart.
template <int kPixelBytes>
void gather(const std::uint8_t* from, std::ptrdiff_t step_bytes, int count, std::uint8_t* out) {
  for (int i = 0; i < count; ++i, from += step_bytes, out += kPixelBytes) {
    std::memcpy(out, from, kPixelBytes);
  }
}

}  // namespace

Orientation Orientation::from_exif(int value) {
  switch (value) {
    case 2: return {false, true, false};
    case 3: return {false, true, true};
    case 4: return {false, false, true};
    case 5: return {true, false, false};
    case 6: return {true, false, true};
    case 7: return {true, true, true};
    case 8: return {true, true, false};
    default: return {};
  }
}

Size Orientation::upright_size(Size stored) const {
  return transposed_ ? Size{stored.height, stored.width} : stored;
}

Rect Orientation::stored_region(const Rect& upright, Size stored) const {
  Rect region = transposed_ ? Rect{upright.y, upright.x, upright.height, upright.width} : upright;
  if (mirrored_x_) region.x = stored.width - region.x - region.width;
  if (mirrored_y_) region.y = stored.height - region.y - region.height;
  return region;
}

void Orientation::upright_row(const ImageView& stored, int y, std::uint8_t* out) const {
  const Size size = upright_size({stored.width, stored.height});
  int x0 = transposed_ ? y : 0;
  int y0 = transposed_ ? 0 : y;
  if (mirrored_x_) x0 = stored.width - 1 - x0;
  if (mirrored_y_) y0 = stored.height - 1 - y0;

  const bool backwards = transposed_ ? mirrored_y_ : mirrored_x_;
  const std::ptrdiff_t along = transposed_ ? stored.stride_bytes : stored.pixel_bytes();
  const std::uint8_t* from =
      stored.row(y0) + static_cast<std::ptrdiff_t>(x0) * stored.pixel_bytes();
  const std::ptrdiff_t step = backwards ? -along : along;
  switch (stored.pixel_bytes()) {
    case 1: return gather<1>(from, step, size.width, out);
    case 2: return gather<2>(from, step, size.width, out);
    case 3: return gather<3>(from, step, size.width, out);
    case 4: return gather<4>(from, step, size.width, out);
    case 6: return gather<6>(from, step, size.width, out);
    case 8: return gather<8>(from, step, size.width, out);
    default: SPDLD_CHECK(false);
  }
}

}  // namespace spdld::media
