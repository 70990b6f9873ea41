// SPDX-License-Identifier: Apache-2.0
#include "source/item/part_key.h"

#include <xxhash.h>

#include "base/rng.h"

namespace spdld::source {

std::uint64_t part_key(std::string_view file, std::uint64_t offset, std::uint64_t size_bytes) {
  return mix64(mix64(XXH3_64bits(file.data(), file.size()), offset), size_bytes);
}

}  // namespace spdld::source
