// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "op/geometry.h"
#include "op/image.h"
#include "op/op.h"
#include "op/tensor_spec.h"

namespace spdld::transform {

// Where one image goes: one row of a batch, output().height x output().width x channels values of
// format.dtype, laid out as `layout` says. Every one of them is written, nothing else is.
struct ImageTarget {
  std::byte* data = nullptr;
  PixelFormat format;
  Layout layout = Layout::kNCHW;
};

// Crops, resizes, flips, converts and lays out one image after the other while its rows come out
// of the decoder. Owned by one worker and not thread-safe; its buffers grow to the largest image
// seen and are then reused. Per image: begin(), row() for each row of the region that begin()
// asked for, finish(). An image that failed half-way is simply followed by the next begin().
//
// uint8 values are those that Pillow's resize gives to the cropped image, byte for byte, whatever
// the window and whatever instructions the machine has.
class ImagePass final : public RowSink {
 public:
  ImagePass();
  ~ImagePass() override;
  ImagePass(const ImagePass&) = delete;
  ImagePass& operator=(const ImagePass&) = delete;

  // What to do with the next image (`channels` 1 or 3). Returns the part of the source that must be
  // fed through row(): exactly the rows and columns that the window depends on. It is empty when
  // the window lies beside the image: then no row is fed.
  Rect begin(const Geometry& geometry, int channels, const ImageTarget& target);

  // The rows come in order and all of them; nothing outside the region's width is read.
  void row(int y, const std::uint8_t* pixels) override;

  // All rows came: writes what is left.
  void finish();
};

}  // namespace spdld::transform
