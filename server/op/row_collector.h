// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "op/image.h"

namespace spdld {

// Copies the rows of a region into one piece of memory, for code that needs the region whole.
// `pixels` has room for all of them and outlives this.
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
