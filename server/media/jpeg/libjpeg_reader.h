// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/memory/byte_buffer.h"
#include "base/status.h"
#include "media/image/image_limits.h"
#include "media/image/image_mode.h"
#include "media/image/raster_decoder.h"
#include "media/image/row_converter.h"
#include "media/jpeg/jpeg_codec.h"
#include "media/jpeg/jpeg_options.h"

namespace spdld::media {

// Reads JPEG through libjpeg-turbo: baseline, extended, progressive and arithmetic-coded, 8 bits a
// sample, 1, 3 or 4 components. The settings are libjpeg's defaults (accurate integer DCT,
// triangle-filter chroma upsampling, block smoothing of incomplete progressions), which are also
// Pillow's, so that pixels are the same as there.
//
// Of a region only the blocks it depends on are transformed, and decoding ends with its last row:
// corrupt data below goes unseen, a truncated file does not (media/jpeg_scan/jpeg_markers.h).
//
// Owned by one JpegDecoder, used by its thread alone. An image is open()ed, and then read() once;
// after a failure of either the next image may be opened.
class LibjpegReader {
 public:
  LibjpegReader(const ImageMode& mode, const ImageLimits& limits, const JpegOptions& options)
      : mode_(mode), limits_(limits), options_(options) {}

  // How rows come out of it, and out of our own decoder.
  static DecodedRows rows_of(const ImageMode& mode, int components);

  // `file` must live as long as it is read.
  Result<RasterInfo> open(std::span<const std::byte> file);
  // Of the image that is open.
  int components() const { return codec_.info().num_components; }
  std::uint64_t read_bytes() const { return read_bytes_; }
  // The rows of the region but for the first `given`.
  Status read(const Rect& region, int given, RowSink& rows);
  // Ends the image, whatever its state.
  void abort() { codec_.abort(); }

 private:
  Status check_header(std::size_t file_bytes) const;
  std::uint64_t bytes_to_read(bool many_scans) const;
  void read_rows(jpeg_decompress_struct& info, const Rect& region, int given, RowSink& rows);

  const ImageMode mode_;
  const ImageLimits limits_;
  const JpegOptions options_;
  JpegCodec codec_;
  std::uint64_t read_bytes_ = 0;
  ByteBuffer rows_;  // as libjpeg makes them
};

}  // namespace spdld::media
