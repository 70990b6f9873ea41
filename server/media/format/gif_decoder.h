// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/memory/byte_buffer.h"
#include "media/format/frame_decoder.h"
#include "media/format/gif_blocks.h"
#include "media/image/image_limits.h"
#include "media/image/image_mode.h"
#include "media/image/raster_decoder.h"
#include "media/image/row_converter.h"

namespace spdld::media {

// Reads the first image of a GIF through FFmpeg's decoder, and lays it on the canvas as Pillow
// does: around it the canvas has the transparent number, or 0. FFmpeg would give colours, and
// another canvas; so its codec gets the image alone, with a palette of ours by which the colours
// that it makes are the numbers.
class GifDecoder final : public RasterDecoder {
 public:
  GifDecoder(const ImageMode& mode, ImageLimits limits) : mode_(mode), limits_(limits) {}

  Result<RasterInfo> open(std::span<const std::byte> bytes) override;
  std::uint64_t read_bytes() const override { return read_bytes_; }
  Status read(const Rect& region, RowSink& rows) override;

 private:
  Status fill_packet();
  Status check_rows() const;
  // Numbers of the canvas's row `y` from `region` on.
  void collect(const Rect& region, int y, std::uint8_t* numbers) const;

  const ImageMode mode_;
  const ImageLimits limits_;
  FrameDecoder codec_{"gif", "GIF"};
  GifLayout layout_;
  std::uint64_t read_bytes_ = 0;
  ByteBuffer numbers_;
  ByteBuffer row_;
};

}  // namespace spdld::media
