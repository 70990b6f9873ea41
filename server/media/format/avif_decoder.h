// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/memory/byte_buffer.h"
#include "media/image/image_limits.h"
#include "media/image/image_mode.h"
#include "media/image/raster_decoder.h"
#include "media/image/row_converter.h"

struct avifDecoder;

namespace spdld::media {

// Reads AVIF through libavif: 8, 10 and 12 bits, with and without alpha, gray and colour, grids; of
// a sequence the first image. Pixels are those of libavif's own conversion to RGB, of 8 bits, or of
// 16 where the mode has them; avifdec writes the same. The image is turned as irot and imir say,
// and only without these as its Exif does; a clean aperture is not cut out, as avifdec does not
// either.
//
// AVIF cannot be decoded in part: read() decodes the whole, and converts the region's rows.
class AvifDecoder final : public RasterDecoder {
 public:
  AvifDecoder(const ImageMode& mode, ImageLimits limits) : mode_(mode), limits_(limits) {}

  Result<RasterInfo> open(std::span<const std::byte> bytes) override;
  std::uint64_t read_bytes() const override { return read_bytes_; }
  Status read(const Rect& region, RowSink& rows) override;

 private:
  struct Deleter {
    void operator()(avifDecoder* decoder) const;
  };
  using Handle = std::unique_ptr<avifDecoder, Deleter>;

  Status check_limits(const avifDecoder& decoder) const;
  std::uint64_t bytes_to_read() const;
  bool wide() const { return mode_.bytes_per_value == 2 && info_.pixels.bits > 8; }
  int rgb_channels() const { return info_.pixels.alpha == StoredPixels::Alpha::kNone ? 3 : 4; }
  Status decode();
  // Rows [begin, end) of the decoded image in pixels_.
  Status convert(int begin, int end);

  const ImageMode mode_;
  const ImageLimits limits_;
  std::span<const std::byte> file_;
  Handle decoder_;  // of the image that is open
  RasterInfo info_;
  std::uint64_t read_bytes_ = 0;
  ByteBuffer pixels_;
  ByteBuffer row_;
};

}  // namespace spdld::media
