// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "media/image/image_mode.h"
#include "media/image/orientation.h"
#include "op/image.h"

namespace spdld::media {

// What the header says: the image as it is stored, and how to turn it upright.
struct RasterInfo {
  Size size;
  Orientation orientation;
  StoredPixels pixels;
};

// One format's half of an ImageDecoder: the same contract (op/op.h), in stored coordinates. Owned
// by one DecodeImage worker, used by its thread alone, ready for the next open() after any failure.
class RasterDecoder : public RegionReader {
 public:
  virtual Result<RasterInfo> open(std::span<const std::byte> bytes) = 0;
  virtual std::uint64_t read_bytes() const = 0;
  Status read(const Rect& region, RowSink& rows) override = 0;

  // Of ImageDecoder: most formats have no coefficients.
  virtual std::uint64_t recode_bytes() const { return 0; }
  virtual std::span<const std::byte> recode() { return {}; }
};

}  // namespace spdld::media
