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
#include "transform/axis_filter.h"
#include "transform/column_resizer.h"
#include "transform/pixel_kernels.h"
#include "transform/row_kernels.h"

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
  ImagePass() = default;
  ImagePass(const ImagePass&) = delete;
  ImagePass& operator=(const ImagePass&) = delete;

  // What its buffers take at most for such an image.
  static std::uint64_t most_bytes(const Geometry& geometry, int channels);

  // What to do with the next image (`channels` 1 or 3). Returns the part of the source that must be
  // fed through row(): exactly the rows and columns that the window depends on. It is empty when
  // the window lies beside the image: then no row is fed.
  Rect begin(const Geometry& geometry, int channels, const ImageTarget& target);

  // The rows come in order and all of them; nothing outside the region's width is read.
  void row(int y, const std::uint8_t* pixels) override;

  // All rows came: writes what is left.
  void finish();

 private:
  // A part of the output along one axis: outputs [begin, begin + size) show the image, those before
  // and after it are 0.
  struct Shown {
    int begin = 0;
    int size = 0;
  };

  void plan_rows(const AxisFilter::Request& request);
  void shape_rows();
  void make_columns(const std::uint8_t* pixels, std::uint8_t* row);
  void write_blended(int i);
  void write_row(int y, const std::uint8_t* row);
  void write_black(int begin, int end);
  std::uint8_t* kept_row(int y) {
    return kept_.data() + static_cast<std::size_t>(y % kept_rows_) * row_stride_;
  }
  std::byte* row_out(int y, std::size_t segment) const;

  const bool has_avx512_ = avx512::available();

  // The image at hand.
  int channels_ = 0;
  Size output_;
  Layout layout_ = Layout::kNCHW;
  bool flip_ = false;
  std::byte* out_ = nullptr;
  PixelConverter converter_;
  Shown shown_columns_;
  Shown shown_rows_;
  int region_height_ = 0;
  int next_source_row_ = 0;
  int next_output_row_ = 0;  // of the shown ones

  // Columns.
  bool resizes_columns_ = false;
  AxisFilter column_filter_;
  ColumnResizer column_resizer_{has_avx512_};

  // Rows. A row whose columns are made is kept until no output needs it any more.
  bool resizes_rows_ = false;
  AxisFilter row_filter_;
  std::vector<int> complete_at_;  // output i needs source rows before this one ...
  std::vector<int> needed_from_;  // ... and no output from i on needs rows before this one
  int kept_rows_ = 1;
  std::vector<WeightPair> row_weights_;
  std::vector<const std::uint8_t*> row_pointers_;

  // A kept row is one segment (interleaved or gray) or three planes.
  std::size_t segments_ = 1;
  std::size_t segment_values_ = 0;
  std::size_t segment_stride_ = 0;
  std::size_t row_stride_ = 0;
  std::vector<std::uint8_t> kept_;
  std::vector<std::uint8_t> blended_;
};

}  // namespace spdld::transform
