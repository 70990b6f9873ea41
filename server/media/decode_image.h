// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "media/image/image_limits.h"
#include "media/image/image_mode.h"
#include "media/jpeg/jpeg_options.h"
#include "op/op.h"

namespace spdld::media {

// decode_image: images of the formats in image_format.h, told apart by their first bytes. Immutable
// and shared by all workers; each worker's decoder is its own.
class DecodeImage final : public DecodeImageOp {
 public:
  DecodeImage(const ImageMode& mode, bool exif, ImageLimits limits, JpegOptions jpeg = {},
              std::string field = "image");

  std::unique_ptr<ImageDecoder> make_decoder() const override;
  int channels() const override { return mode_.channels; }
  DType dtype() const override { return mode_.dtype(); }
  bool is_index() const override { return mode_.color == ColorMode::kIndex; }
  std::int64_t max_pixels() const override { return limits_.max_pixels; }

 private:
  ImageMode mode_;
  bool exif_;
  ImageLimits limits_;
  JpegOptions jpeg_;
};

}  // namespace spdld::media
