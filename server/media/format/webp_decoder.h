// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/memory/byte_buffer.h"
#include "media/format/webp_chunks.h"
#include "media/image/image_limits.h"
#include "media/image/image_mode.h"
#include "media/image/raster_decoder.h"
#include "media/image/row_converter.h"

namespace spdld::media {

// Reads WebP through libwebp: lossy and lossless, with and without alpha; of an animation the first
// frame, on a canvas that is transparent, or black where the file has no alpha. Pixels are
// Pillow's.
//
// Of a region libwebp makes only the pixels that it depends on, and decoding ends with its last
// row: corrupt data below goes unseen, a truncated file does not.
class WebpDecoder final : public RasterDecoder {
 public:
  WebpDecoder(const ImageMode& mode, ImageLimits limits) : mode_(mode), limits_(limits) {}

  Result<RasterInfo> open(std::span<const std::byte> bytes) override;
  std::uint64_t read_bytes() const override { return read_bytes_; }
  Status read(const Rect& region, RowSink& rows) override;

 private:
  // Leaves `part` of the image in pixels_.
  Status decode(const Rect& part);
  int channels() const { return layout_.alpha && mode_.has_alpha() ? 4 : 3; }

  const ImageMode mode_;
  const ImageLimits limits_;
  WebpLayout layout_;
  std::uint64_t read_bytes_ = 0;
  ByteBuffer pixels_;
  ByteBuffer canvas_;  // one row
  ByteBuffer row_;
};

}  // namespace spdld::media
