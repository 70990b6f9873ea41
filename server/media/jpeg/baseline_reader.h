// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "media/image/image_mode.h"
#include "media/image/raster_decoder.h"
#include "media/jpeg/baseline_decoder.h"
#include "media/jpeg/coefficient_image.h"
#include "media/jpeg/jpeg_options.h"
#include "media/jpeg_scan/baseline_frame.h"
#include "media/jpeg_scan/seek_indexes.h"

namespace spdld::media {

// A file that our own decoder may read, and its index where that was made.
struct BaselineFile {
  std::span<const std::byte> bytes;
  BaselineFrame frame;
  SeekIndexes::Key key;
  std::optional<SeekIndex> index = {};
};

// Reads baseline files by our own decoder (media/jpeg/baseline_decoder.h) and keeps the indexes of
// their scans: one that comes for the first time is read from its begin to its end, which makes its
// index, and from then on the region alone. Files are also brought into the form that a cache
// keeps. A file in which anything is odd is noted as such, and not found again.
//
// Owned by one JpegDecoder, used by its thread alone. A failure leaves the rest of the file to
// libjpeg-turbo, which says what is wrong.
class BaselineReader {
 public:
  BaselineReader(const ImageMode& mode, const JpegOptions& options)
      : mode_(mode), options_(options) {}

  // Nothing: `file` is not for our own decoder.
  std::optional<BaselineFile> find(std::span<const std::byte> file) const;
  // The memory that reading takes at most beside the file.
  static std::uint64_t most_bytes(const BaselineFile& file);
  // Of one of the decoder's rows.
  std::size_t row_bytes(int width) const;

  // Returns how many rows the sink was given: fewer than the region has where the file is odd.
  int read(const BaselineFile& file, const Rect& region, RowSink& rows);
  // Likewise, of coefficients that were kept; fewer where these are damaged.
  int read(const CoefficientImage& image, const Rect& region, RowSink& rows);
  // The memory that recode() takes at most beside reading; 0: the file has no such form.
  static std::uint64_t most_recode_bytes(const BaselineFile& file);
  // The file's coefficients, as CoefficientDecoder reads them; they stay until the next call.
  // Empty: the scan is not sound.
  std::span<const std::byte> recode(const BaselineFile& file);

 private:
  const ImageMode mode_;
  const JpegOptions options_;
  BaselineDecoder decoder_;
  CoefficientWriter writer_;
};

}  // namespace spdld::media
