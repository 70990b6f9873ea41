// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "op/geometry.h"
#include "op/image.h"
#include "transform/image/column_resizer.h"
#include "transform/image/image_target.h"
#include "transform/image/pass_plan.h"
#include "transform/image/pixel_kernels.h"
#include "transform/image/plain_pass.h"
#include "transform/image/row_kernels.h"

namespace spdld::transform {

// Crops, resizes, flips, converts and lays out one image after the other while its rows come out
// of the decoder. Owned by one worker and not thread-safe; its buffers grow to the largest image
// seen and are then reused. Per image: begin(), row() for each row of the region that begin()
// asked for, finish(). An image that failed half-way is simply followed by the next begin().
//
// uint8 values of one or three channels are those that Pillow's resize gives to the cropped image,
// byte for byte, whatever the window and whatever instructions the machine has. Other images go
// through a PlainPass.
class ImagePass final : public RowSink {
 public:
  ImagePass() = default;
  ImagePass(const ImagePass&) = delete;
  ImagePass& operator=(const ImagePass&) = delete;

  // What its buffers take at most for such an image, of so many bytes a pixel.
  static std::uint64_t most_bytes(const Geometry& geometry, int pixel_bytes);

  // What to do with the next image, of up to 4 channels of 1 or 2 bytes. Returns the part of the
  // source that must be fed through row(): exactly the rows and columns that the window depends on.
  // It is empty when the window lies beside the image: then no row is fed.
  Rect begin(const Geometry& geometry, int channels, const ImageTarget& target,
             int bytes_per_value = 1);

  // The rows come in order and all of them; nothing outside the region's width is read.
  void row(int y, const std::uint8_t* pixels) override;

  // All rows came: writes what is left.
  void finish();

 private:
  void shape_rows();
  void make_columns(const std::uint8_t* pixels, std::uint8_t* row);
  void write_blended(int i);
  void write_row(int y, const std::uint8_t* row);
  void write_black(int begin, int end);
  std::uint8_t* kept_row(int y) {
    return kept_.data() + static_cast<std::size_t>(y % plan_.kept_rows()) * row_stride_;
  }
  std::byte* row_out(int y, std::size_t segment) const;

  const bool has_avx512_ = avx512::available();

  // The image at hand.
  int channels_ = 0;
  Size output_;
  Layout layout_ = Layout::kNCHW;
  bool flip_ = false;
  std::byte* out_ = nullptr;
  std::size_t plane_values_ =
      0;  // of the target, from one channel to the next; 0: as many as it has
  PixelConverter converter_;
  PassPlan plan_;
  PassPlan::Shown shown_columns_;  // mirrored if `flip_`
  PassPlan::Shown shown_rows_;
  int region_height_ = 0;
  int next_source_row_ = 0;
  int next_output_row_ = 0;  // of the shown ones
  ColumnResizer column_resizer_{has_avx512_};
  std::vector<WeightPair> row_weights_;
  std::vector<const std::uint8_t*> row_pointers_;

  // A kept row is one segment (interleaved or gray) or three planes.
  std::size_t segments_ = 1;
  std::size_t segment_values_ = 0;
  std::size_t segment_stride_ = 0;
  std::size_t row_stride_ = 0;
  std::vector<std::uint8_t> kept_;
  std::vector<std::uint8_t> blended_;

  PlainPass plain_;
  bool is_plain_ = false;
};

}  // namespace spdld::transform
