// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/byte_buffer.h"
#include "media/ffmpeg.h"
#include "media/image_limits.h"
#include "media/pixels.h"
#include "media/raster_decoder.h"

namespace spdld::media {

// Reads PNG through FFmpeg's decoder, fed with the packet itself: no demuxer, no protocol. Every
// colour type, depth and interlacing of the format; of an animation the default image. Alpha is
// dropped, not blended, and a gray or RGB image of 16 bits keeps each sample's high byte, as in
// torchvision. Pillow's convert("RGB") agrees in all but one case: it clips 16-bit gray to 255,
// which leaves such images all but white.
//
// PNG cannot be decoded in part: read() decodes the whole and gives out the region.
class PngDecoder final : public RasterDecoder {
 public:
  PngDecoder(ColorMode mode, ImageLimits limits) : mode_(mode), limits_(limits) {}

  Result<RasterInfo> open(std::span<const std::byte> bytes) override;
  std::uint64_t read_bytes() const override { return read_bytes_; }
  Status read(const Rect& region, RowSink& rows) override;

 private:
  Status prepare();  // the codec, once it is needed
  Status fill_packet();
  Status decode();

  const ColorMode mode_;
  const ImageLimits limits_;
  std::span<const std::byte> file_;
  std::uint64_t needed_bytes_ = 0;
  std::uint64_t read_bytes_ = 0;
  AvPtr<AVCodecContext> context_;
  AvPtr<AVFrame> frame_;
  AvPtr<AVPacket> packet_;
  AvPtr<AVBufferRef> input_;  // what the packet refers to; grows, and is kept
  ByteBuffer row_;
};

}  // namespace spdld::media
