// SPDX-License-Identifier: Apache-2.0
#include "media/image/image_limits.h"

#include <string>

namespace spdld::media {

Status ImageLimits::check_pixels(std::int64_t width, std::int64_t height) const {
  // Both come from 32-bit fields, so that the product cannot overflow.
  if (width * height <= max_pixels) return {};
  return {Code::kResourceExhausted,
          "image of " + std::to_string(width) + "x" + std::to_string(height) + " = " +
              std::to_string(width * height) + " pixels is over the limit of " +
              std::to_string(max_pixels) + "; raise decode_image.max_pixels to read it"};
}

Status ImageLimits::check_scans(int scans) const {
  if (scans <= max_scans) return {};
  return {Code::kResourceExhausted, "JPEG of " + std::to_string(scans) +
                                        " scans is over the limit of " + std::to_string(max_scans) +
                                        "; raise decode_image.max_scans to read it"};
}

}  // namespace spdld::media
