// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/memory/byte_buffer.h"
#include "base/status.h"
#include "media/image/orientation.h"
#include "op/image.h"

namespace spdld::media {

// Turns what a decoder gives upright. A picture that is stored upright goes straight to the sink;
// of a turned one, the region is first decoded to scratch, which grows to the largest one and
// stays. One worker's.
class UprightRows {
 public:
  // A picture as `stored` gives it: its size, and its pixels.
  struct Picture {
    Size size;
    Orientation orientation;
    int channels = 3;
    int bytes_per_value = 1;

    std::uint64_t pixel_bytes() const {
      return static_cast<std::uint64_t>(channels * bytes_per_value);
    }
  };

  // `region` of the upright picture.
  Status read(RegionReader& stored, const Picture& picture, const Rect& region, RowSink& rows);

  // The memory that read() takes at most for such a picture.
  static std::uint64_t most_bytes(const Picture& picture);

 private:
  ByteBuffer scratch_;
};

}  // namespace spdld::media
