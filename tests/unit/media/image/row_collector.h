// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "op/image.h"

namespace spdld::media::test {

// Writes the rows of a picture one behind the other into `pixels`, which has room for them.
class RowCollector final : public RowSink {
 public:
  RowCollector(std::vector<std::uint8_t>& pixels, std::size_t row_bytes)
      : pixels_(pixels), row_bytes_(row_bytes) {}
  void row(int y, const std::uint8_t* row) override {
    std::memcpy(pixels_.data() + static_cast<std::size_t>(y) * row_bytes_, row, row_bytes_);
  }

 private:
  std::vector<std::uint8_t>& pixels_;
  std::size_t row_bytes_;
};

}  // namespace spdld::media::test
