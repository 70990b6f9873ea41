// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/memory/byte_buffer.h"
#include "media/video/chroma_axis.h"
#include "media/video/yuv_kernels.h"
#include "op/image.h"

namespace spdld::media {

// A decoded picture of video, in memory that somebody else owns: planes of samples that are whole
// numbers of `bits` bits.
struct VideoPicture {
  enum class Kind : std::uint8_t {
    kYuv,
    kGray,  // the first plane alone
    kGbr,   // three planes of green, blue and red
  };
  enum class Matrix : std::uint8_t { kBt601, kBt709, kFcc, kSmpte240m, kBt2020 };
  struct Plane {
    const std::uint8_t* data = nullptr;
    std::ptrdiff_t stride_bytes = 0;

    const std::uint8_t* row(int y) const { return data + y * stride_bytes; }
  };

  Kind kind = Kind::kYuv;
  Size size;
  int bits = 8;
  int shift_x = 0;  // log2 of the pixels to a sample of chroma
  int shift_y = 0;
  std::array<Plane, 3> planes;
  Matrix matrix = Matrix::kBt601;
  bool full_range = false;  // 0 to the largest number, not 16/256 to 235/256 (of chroma 240/256)
  // Where chroma's first sample lies: ChromaAxis's positions.
  int chroma_x = ChromaAxis::kBetween;
  int chroma_y = ChromaAxis::kBetween;
};

// Makes pixels of pictures, a region at a time: RGB, or the gray of the luma. Each is within one
// level of swscale's with bilinear+accurate_rnd+full_chroma_int+full_chroma_inp, and the same
// whatever the region and whatever instructions the machine has. One worker's; it keeps tables and
// scratch, and allocates nothing once it has seen the largest picture.
class YuvRows {
 public:
  // `channels`: 3 or 1. `region` lies inside the picture and is not empty.
  void give(const VideoPicture& picture, const Rect& region, int channels, RowSink& rows);

 private:
  void shape(const VideoPicture& picture, const Rect& region, int channels);
  void make_chroma(const VideoPicture& picture, const Rect& region, int plane,
                   const ChromaTap& tap);
  void make_gbr(const VideoPicture& picture, const Rect& region, int y, int channels);

  ChromaAxis columns_;
  ChromaAxis rows_;
  ColorMatrix matrix_;
  // Samples of chroma that the region needs: `sample_count_` from `first_sample_` on, and one more
  // on either side, which repeats the one at the picture's edge.
  int first_sample_ = 0;
  int sample_count_ = 0;
  ByteBuffer samples_;
  std::array<ByteBuffer, 2> chroma_;  // u and v, a value for each pixel
  std::array<const Chroma*, 2> chroma_rows_{};
  ByteBuffer pixels_;
};

}  // namespace spdld::media
