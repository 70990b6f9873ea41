// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg/jpeg_decoder.h"

#include <utility>

#include "media/image/exif.h"
#include "media/image/row_converter.h"

namespace spdld::media {

JpegDecoder::JpegDecoder(const ImageMode& mode, ImageLimits limits, const JpegOptions& options)
    : mode_(mode),
      limits_(limits),
      ours_(mode, options),
      libjpeg_(mode, limits, options),
      verifier_(options, ours_, libjpeg_) {}

Result<RasterInfo> JpegDecoder::open(std::span<const std::byte> bytes) {
  file_ = bytes;
  baseline_ = ours_.find(bytes);
  return baseline_ && baseline_->index ? open_baseline() : open_by_libjpeg();
}

// These very bytes were found whole and sound when their index was made.
Result<RasterInfo> JpegDecoder::open_baseline() {
  const BaselineFrame& frame = baseline_->frame;
  SPDLD_TRY(limits_.check_scans(1));
  SPDLD_TRY(limits_.check_pixels(static_cast<std::uint32_t>(frame.size.width),
                                 static_cast<std::uint32_t>(frame.size.height)));
  read_bytes_ = baseline_bytes();
  return raster_info(frame, exif_orientation(frame.exif));
}

Result<RasterInfo> JpegDecoder::open_by_libjpeg() {
  SPDLD_ASSIGN(const RasterInfo info, libjpeg_.open(file_));
  read_bytes_ = libjpeg_.read_bytes() + (baseline_ ? baseline_bytes() : 0);
  return info;
}

std::uint64_t JpegDecoder::baseline_bytes() const {
  return BaselineReader::most_bytes(*baseline_) + verifier_.most_bytes(baseline_->frame);
}

Status JpegDecoder::read(const Rect& region, RowSink& rows) {
  const int components = baseline_ ? baseline_->frame.component_count : libjpeg_.components();
  RowGiver giver(RowConverter(mode_, LibjpegReader::rows_of(mode_, components)), region.width,
                 converted_, rows);
  if (!baseline_) return libjpeg_.read(region, 0, giver);
  if (verifier_.is_next())
    return verifier_.read(*std::exchange(baseline_, std::nullopt), region, giver);
  const int given = ours_.read(*baseline_, region, giver);
  if (given == region.height) {
    libjpeg_.abort();
    return {};
  }
  // Without an index libjpeg-turbo has read the header.
  if (std::exchange(baseline_, std::nullopt)->index) {
    if (const Result<RasterInfo> header = libjpeg_.open(file_); !header) return header.error();
  }
  return libjpeg_.read(region, given, giver);
}

std::uint64_t JpegDecoder::recode_bytes() const {
  const std::uint64_t most = baseline_ ? BaselineReader::most_recode_bytes(*baseline_) : 0;
  return most == 0 ? 0 : read_bytes_ + most;
}

std::span<const std::byte> JpegDecoder::recode() {
  libjpeg_.abort();
  if (recode_bytes() == 0) return {};
  const BaselineFile file = *std::exchange(baseline_, std::nullopt);
  const std::span<const std::byte> recoded = ours_.recode(file);
  if (recoded.empty() || !verifier_.is_next()) return recoded;
  return verifier_.is_same(file, recoded) ? recoded : std::span<const std::byte>();
}

}  // namespace spdld::media
