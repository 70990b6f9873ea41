// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/memory/byte_buffer.h"
#include "media/format/tiff_chunks.h"
#include "media/format/tiff_layout.h"
#include "media/image/image_limits.h"
#include "media/image/image_mode.h"
#include "media/image/raster_decoder.h"
#include "media/image/row_converter.h"

namespace spdld::media {

// Reads the first page of a TIFF or BigTIFF: gray, RGB, CMYK and palettes, with and without alpha,
// 1 to 16 bits, in strips or tiles, pixel by pixel or plane by plane, as they are or compressed by
// PackBits, LZW, deflate and fax codes. What lies outside a region is not decompressed.
// Pixels are Pillow's, and alpha that colours were multiplied with is divided out as there; but 16
// bits keep their high byte in a mode of 8, as in PNG, and gray of 16 bits in which 0 is white is
// turned round, as that of 8 is.
class TiffDecoder final : public RasterDecoder {
 public:
  TiffDecoder(const ImageMode& mode, ImageLimits limits) : mode_(mode), limits_(limits) {}

  Result<RasterInfo> open(std::span<const std::byte> bytes) override;
  std::uint64_t read_bytes() const override { return read_bytes_; }
  Status read(const Rect& region, RowSink& rows) override;

 private:
  Status read_strips(const Rect& region, RowGiver& giver);
  Status read_tiles(const Rect& region, RowGiver& giver);
  // Puts the chunks of row `down` of the page into the band.
  Status collect_band(const Rect& region, std::uint32_t down, int first_row, int rows);
  void collect_chunk(const Rect& region, std::uint32_t across, unsigned plane,
                     std::uint32_t chunk_row, int first_row, int rows);
  // Makes `width` pixels of samples what the converter expects.
  void correct(std::uint8_t* samples, int width) const;

  const ImageMode mode_;
  const ImageLimits limits_;
  TiffChunks chunks_;
  std::optional<TiffLayout> layout_;
  std::uint32_t at_once_ = 1;
  std::uint64_t read_bytes_ = 0;
  Palette palette_;
  ByteBuffer samples_;  // of one row, or of a band: as many bytes a sample as there must be
  ByteBuffer row_;
};

}  // namespace spdld::media
