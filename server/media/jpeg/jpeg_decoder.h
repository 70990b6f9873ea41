// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/memory/byte_buffer.h"
#include "media/image/image_limits.h"
#include "media/image/image_mode.h"
#include "media/image/raster_decoder.h"
#include "media/image/row_converter.h"
#include "media/jpeg/baseline_decoder.h"
#include "media/jpeg/coefficient_image.h"
#include "media/jpeg/jpeg_codec.h"
#include "media/jpeg/jpeg_options.h"
#include "media/jpeg_scan/baseline_frame.h"
#include "media/jpeg_scan/seek_indexes.h"

namespace spdld::media {

// Reads JPEG through libjpeg-turbo: baseline, extended, progressive and arithmetic-coded, 8 bits a
// sample, 1, 3 or 4 components. The settings are libjpeg's defaults (accurate integer DCT,
// triangle-filter chroma upsampling, block smoothing of incomplete progressions), which are also
// Pillow's, so that pixels are the same as there.
//
// Of a region only the blocks it depends on are transformed, and decoding ends with its last row:
// corrupt data below goes unseen, a truncated file does not (media/jpeg_scan/jpeg_markers.h).
//
// Baseline files are read by our own decoder (media/jpeg/baseline_decoder.h), with the same pixels
// bit for bit: when one comes for the first time from its begin to its end, which makes its index,
// and from then on the region alone. Where it finds anything odd, libjpeg-turbo reads the rows that
// are left, and says what is wrong with the file.
class JpegDecoder final : public RasterDecoder {
 public:
  JpegDecoder(const ImageMode& mode, ImageLimits limits, JpegOptions options)
      : mode_(mode), limits_(limits), options_(std::move(options)) {}

  Result<RasterInfo> open(std::span<const std::byte> bytes) override;
  std::uint64_t read_bytes() const override { return read_bytes_; }
  Status read(const Rect& region, RowSink& rows) override;
  // Of baseline files whose scan is sound: what CoefficientDecoder reads.
  std::uint64_t recode_bytes() const override;
  std::span<const std::byte> recode() override;

 private:
  // A file that our own decoder may read.
  struct Baseline {
    BaselineFrame frame;
    SeekIndexes::Key key;
    std::optional<SeekIndex> index = {};
  };
  class Comparison;

  std::optional<Baseline> find_baseline() const;
  Result<RasterInfo> open_baseline();
  Result<RasterInfo> open_by_libjpeg();
  Status read_header();  // by libjpeg-turbo, of a file that was opened without it
  Status check_header(std::size_t file_bytes) const;
  std::uint64_t bytes_to_read(bool many_scans) const;
  std::uint64_t baseline_bytes() const;
  std::uint64_t compared_bytes() const;  // of a whole image, where some are verified
  bool is_to_verify();
  // What is made of the file's components.
  J_COLOR_SPACE output_space(int components) const;
  RowConverter converter(int components) const;
  std::size_t row_bytes(int width) const;  // that our own decoder makes
  // Returns how many rows the sink was given.
  int read_baseline(const Rect& region, RowSink& rows);
  // Both ways. The sink is given libjpeg-turbo's rows.
  Status read_verified(const Rect& region, RowSink& rows);
  // Whether the whole image comes out of `recoded` as libjpeg-turbo makes it.
  bool is_same(const BaselineFrame& frame, std::span<const std::byte> recoded);
  // The rows of the region but for those that were given.
  Status read_by_libjpeg(const Rect& region, int given, RowSink& rows);
  void read_rows(jpeg_decompress_struct& info, const Rect& region, int given, RowSink& rows);

  const ImageMode mode_;
  const ImageLimits limits_;
  const JpegOptions options_;
  std::span<const std::byte> file_;
  std::optional<Baseline> baseline_;  // none: libjpeg-turbo reads the file
  BaselineDecoder decoder_;
  JpegCodec codec_;
  std::uint64_t read_bytes_ = 0;  // of the image that is open
  ByteBuffer rows_;               // as libjpeg makes them
  ByteBuffer converted_;  // one row in the mode's pixels, where libjpeg does not make these itself
  CoefficientWriter writer_;
};

}  // namespace spdld::media
