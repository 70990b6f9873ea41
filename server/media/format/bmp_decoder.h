// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/memory/byte_buffer.h"
#include "media/format/bmp_header.h"
#include "media/format/frame_decoder.h"
#include "media/image/image_limits.h"
#include "media/image/image_mode.h"
#include "media/image/raster_decoder.h"
#include "media/image/row_converter.h"

namespace spdld::media {

// Reads BMP through FFmpeg's decoder: 1, 4, 8, 16, 24 and 32 bits a pixel, run-length coded or not,
// from the bottom up or from the top down, with the headers of Windows and OS/2. The codec gets the
// file's pixels under a plain header of ours, and makes palette numbers or samples of them; what
// these mean is read from the file's header here. Pixels are Pillow's; the fourth byte of 32 bits
// is alpha where a mask says so, and nothing elsewhere.
class BmpDecoder final : public RasterDecoder {
 public:
  BmpDecoder(const ImageMode& mode, ImageLimits limits) : mode_(mode), limits_(limits) {}

  Result<RasterInfo> open(std::span<const std::byte> bytes) override;
  std::uint64_t read_bytes() const override { return read_bytes_; }
  Status read(const Rect& region, RowSink& rows) override;

 private:
  Status fill_packet();
  // Rows of 16-bit pixels become RGB first.
  void give_fields(const std::uint8_t* data, std::ptrdiff_t stride, const Rect& region,
                   RowSink& rows);

  const ImageMode mode_;
  const ImageLimits limits_;
  FrameDecoder codec_{"bmp", "BMP"};
  BmpLayout layout_;
  std::uint64_t read_bytes_ = 0;
  ByteBuffer rgb_;
  ByteBuffer row_;
};

}  // namespace spdld::media
