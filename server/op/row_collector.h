// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "op/image.h"

namespace spdld {

// Keeps the rows of a region one behind the other, for those who need it whole. There is room for
// them at `pixels`, which outlives this.
class RowCollector final : public RowSink {
 public:
  RowCollector(std::uint8_t* pixels, std::size_t row_bytes)
      : pixels_(pixels), row_bytes_(row_bytes) {}

  void row(int y, const std::uint8_t* pixels) override {
    std::memcpy(pixels_ + static_cast<std::size_t>(y) * row_bytes_, pixels, row_bytes_);
  }

 private:
  std::uint8_t* pixels_;
  std::size_t row_bytes_;
};

}  // namespace spdld
