// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "media/image_limits.h"
#include "media/pixels.h"
#include "op/op.h"

namespace spdld::media {

// decode_image: JPEG through libjpeg-turbo, PNG through FFmpeg, told apart by their first bytes.
// Immutable and shared by all workers; each worker's decoder is its own.
class DecodeImage final : public DecodeImageOp {
 public:
  DecodeImage(ColorMode mode, bool exif, ImageLimits limits, std::string field = "image");

  std::unique_ptr<ImageDecoder> make_decoder() const override;
  int channels() const override { return channels_of(mode_); }
  std::int64_t max_pixels() const override { return limits_.max_pixels; }

 private:
  ColorMode mode_;
  bool exif_;
  ImageLimits limits_;
};

}  // namespace spdld::media
