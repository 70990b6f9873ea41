// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/byte_buffer.h"
#include "media/image_limits.h"
#include "media/image_mode.h"
#include "media/jpeg_codec.h"
#include "media/raster_decoder.h"
#include "media/row_converter.h"

namespace spdld::media {

// Reads JPEG through libjpeg-turbo: baseline, extended, progressive and arithmetic-coded, 8 bits a
// sample, 1, 3 or 4 components. The settings are libjpeg's defaults (accurate integer DCT,
// triangle-filter chroma upsampling, block smoothing of incomplete progressions), which are also
// Pillow's, so that pixels are the same as there.
//
// Of a region only the blocks it depends on are transformed, and decoding ends with its last row:
// corrupt data below goes unseen, a truncated file does not (media/jpeg_markers.h).
class JpegDecoder final : public RasterDecoder {
 public:
  JpegDecoder(const ImageMode& mode, ImageLimits limits) : mode_(mode), limits_(limits) {}

  Result<RasterInfo> open(std::span<const std::byte> bytes) override;
  std::uint64_t read_bytes() const override { return read_bytes_; }
  Status read(const Rect& region, RowSink& rows) override;

 private:
  Status check_header(std::size_t file_bytes) const;
  std::uint64_t bytes_to_read(bool many_scans) const;
  // What libjpeg makes, by what the file holds.
  J_COLOR_SPACE output_space() const;
  RowConverter converter() const;
  void read_rows(jpeg_decompress_struct& info, const Rect& region, RowSink& rows);
  void emit(const std::uint8_t* pixels, int y, const Rect& region, RowSink& rows);

  const ImageMode mode_;
  const ImageLimits limits_;
  JpegCodec codec_;
  std::uint64_t read_bytes_ = 0;  // of the image that is open
  ByteBuffer rows_;               // as libjpeg makes them
  RowConverter converter_;        // of what libjpeg does not make itself
  ByteBuffer converted_;          // one row
};

}  // namespace spdld::media
