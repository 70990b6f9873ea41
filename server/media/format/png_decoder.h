// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/memory/byte_buffer.h"
#include "media/format/frame_decoder.h"
#include "media/format/png_chunks.h"
#include "media/image/image_limits.h"
#include "media/image/image_mode.h"
#include "media/image/raster_decoder.h"
#include "media/image/row_converter.h"

namespace spdld::media {

// Reads PNG through FFmpeg's decoder. Every colour type, depth and interlacing of the format; of an
// animation the default image. Where a mode has no alpha it is dropped, not blended, and in a mode
// of 8 bits samples of 16 keep their high byte, as in torchvision. Pillow's convert("RGB") agrees
// in all but one case: it clips 16-bit gray to 255, which leaves such images all but white.
//
// PNG cannot be decoded in part: read() decodes the whole and gives out the region.
class PngDecoder final : public RasterDecoder {
 public:
  PngDecoder(const ImageMode& mode, ImageLimits limits) : mode_(mode), limits_(limits) {}

  Result<RasterInfo> open(std::span<const std::byte> bytes) override;
  std::uint64_t read_bytes() const override { return read_bytes_; }
  Status read(const Rect& region, RowSink& rows) override;

 private:
  Status fill_packet();
  void give_numbers(const Rect& region, RowSink& rows);
  void give_bits(const Rect& region, RowSink& rows);

  const ImageMode mode_;
  const ImageLimits limits_;
  FrameDecoder codec_{"png", "PNG"};
  std::span<const std::byte> file_;
  PngLayout layout_;
  std::uint64_t packet_bytes_ = 0;
  std::uint64_t read_bytes_ = 0;
  Palette palette_;
  ByteBuffer numbers_;
  ByteBuffer row_;
};

}  // namespace spdld::media
