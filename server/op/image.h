// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace spdld {

struct Size {
  int width = 0;
  int height = 0;

  friend bool operator==(const Size&, const Size&) = default;
};

// Half-open: [x, x + width) by [y, y + height).
struct Rect {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;

  Size size() const { return {width, height}; }
  friend bool operator==(const Rect&, const Rect&) = default;
};

// Interleaved pixels that somebody else owns. Values of two bytes are native integers, and may lie
// at odd addresses.
struct ImageView {
  const std::uint8_t* data = nullptr;
  int width = 0;
  int height = 0;
  int channels = 0;
  std::ptrdiff_t stride_bytes = 0;
  int bytes_per_value = 1;

  int pixel_bytes() const { return channels * bytes_per_value; }
  const std::uint8_t* row(int y) const { return data + y * stride_bytes; }
};

// Takes the rows of a decoded region, top to bottom, as the decoder makes them: the pixels are
// still in the cache, and are gone when the call returns.
class RowSink {
 public:
  virtual ~RowSink() = default;
  // `y` counts from the region's top; `pixels` holds the region's width, interleaved as in an
  // ImageView.
  virtual void row(int y, const std::uint8_t* pixels) = 0;
};

// Gives the pixels of one picture, a region at a time.
class RegionReader {
 public:
  virtual ~RegionReader() = default;
  // `region` lies inside the picture and is not empty.
  virtual Status read(const Rect& region, RowSink& rows) = 0;
};

}  // namespace spdld
