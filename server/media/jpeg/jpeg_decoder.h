// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/memory/byte_buffer.h"
#include "media/image/image_limits.h"
#include "media/image/image_mode.h"
#include "media/image/raster_decoder.h"
#include "media/jpeg/baseline_reader.h"
#include "media/jpeg/jpeg_options.h"
#include "media/jpeg/jpeg_verifier.h"
#include "media/jpeg/libjpeg_reader.h"

namespace spdld::media {

// Chooses the decoder that reads a JPEG. Our own decoder reads baseline files
// (media/jpeg/baseline_reader.h), with libjpeg-turbo's pixels bit for bit; where it finds anything
// odd, libjpeg-turbo (media/jpeg/libjpeg_reader.h) reads the rows that are left, and says what is
// wrong with the file. All other files are libjpeg-turbo's from the begin. Some images are read by
// both, and compared (media/jpeg/jpeg_verifier.h).
class JpegDecoder final : public RasterDecoder {
 public:
  JpegDecoder(const ImageMode& mode, ImageLimits limits, const JpegOptions& options);

  Result<RasterInfo> open(std::span<const std::byte> bytes) override;
  std::uint64_t read_bytes() const override { return read_bytes_; }
  Status read(const Rect& region, RowSink& rows) override;
  // Of baseline files whose scan is sound: what CoefficientDecoder reads.
  std::uint64_t recode_bytes() const override;
  std::span<const std::byte> recode() override;

 private:
  Result<RasterInfo> open_baseline();
  Result<RasterInfo> open_by_libjpeg();
  std::uint64_t baseline_bytes() const;

  const ImageMode mode_;
  const ImageLimits limits_;
  std::span<const std::byte> file_;
  std::optional<BaselineFile> baseline_;  // none: libjpeg-turbo reads the file
  BaselineReader ours_;
  LibjpegReader libjpeg_;
  JpegVerifier verifier_;
  std::uint64_t read_bytes_ = 0;  // of the image that is open
  ByteBuffer
      converted_;  // one row in the mode's pixels, where a decoder does not make these itself
};

}  // namespace spdld::media
