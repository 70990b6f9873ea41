// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace spdld::media {

// zlib's decompressor, which is kept from one stream to the next. Used by one thread at a time.
class Inflater {
 public:
  Inflater() = default;
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Fills `out` from a zlib stream, which may hold more; whether it did. kNoMemory.
  Result<bool> fill(std::span<const std::byte> data, std::span<std::uint8_t> out);

 private:
  z_stream stream_{};
  bool begun_ = false;
};

}  // namespace spdld::media
