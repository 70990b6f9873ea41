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
#include "media/jpeg/baseline_decoder.h"
#include "media/jpeg/coefficient_image.h"
#include "media/jpeg/jpeg_options.h"

namespace spdld::media {

// Reads what JpegDecoder::recode() has made of a file: the same pixels as of the file, of the
// region alone. Errors are kDataLoss: the bytes are not what was made.
class CoefficientDecoder final : public RasterDecoder {
 public:
  CoefficientDecoder(const ImageMode& mode, ImageLimits limits, JpegOptions options)
      : mode_(mode), limits_(limits), options_(std::move(options)) {}

  Result<RasterInfo> open(std::span<const std::byte> bytes) override;
  std::uint64_t read_bytes() const override;
  Status read(const Rect& region, RowSink& rows) override;

 private:
  const ImageMode mode_;
  const ImageLimits limits_;
  const JpegOptions options_;
  std::optional<CoefficientImage> image_;
  BaselineDecoder decoder_;
  ByteBuffer row_;  // in the mode's pixels
};

}  // namespace spdld::media
