// SPDX-License-Identifier: Apache-2.0
#include "media/jpeg/coefficient_decoder.h"

#include "media/image/orientation.h"
#include "media/image/row_converter.h"

namespace spdld::media {
namespace {

Status damaged() {
  return {Code::kDataLoss, "the coefficients that a cache has kept of it are damaged"};
}

}  // namespace

Result<RasterInfo> CoefficientDecoder::open(std::span<const std::byte> bytes) {
  image_ = CoefficientImage::parse(bytes);
  if (!image_) return tl::unexpected<Status>(damaged());
  const BaselineFrame& frame = image_->frame();
  SPDLD_TRY(limits_.check_scans(1));
  SPDLD_TRY(limits_.check_pixels(frame.size.width, frame.size.height));
  return raster_info(frame, image_->exif_orientation());
}

std::uint64_t CoefficientDecoder::read_bytes() const {
  return BaselineDecoder::most_bytes(image_->frame());
}

Status CoefficientDecoder::read(const Rect& region, RowSink& rows) {
  options_.count(JpegWay::kByCoefficients);
  const auto output = BaselineDecoder::output_for(mode_);
  decoder_.open(*image_, output);
  RowGiver giver({mode_, BaselineDecoder::rows_of(output)}, region.width, row_, rows);
  return decoder_.read(*image_, region, giver) == region.height ? Status() : damaged();
}

}  // namespace spdld::media
