// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/status.h"

namespace spdld::media {

// What an image may cost at most. They are checked on the header, before memory is taken for it.
struct ImageLimits {
  std::int64_t max_pixels = 178956970;  // Pillow's limit for decompression bombs
  int max_scans = 100;                  // each scan of a progressive JPEG is a pass over the image

  Status check_pixels(std::int64_t width, std::int64_t height) const;
  Status check_scans(int scans) const;
};

}  // namespace spdld::media
