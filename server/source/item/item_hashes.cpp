// SPDX-License-Identifier: Apache-2.0
#include "source/item/item_hashes.h"

#include <xxhash.h>

#include "base/rng.h"

namespace spdld::source {
namespace {

// Other hashes of uris must not fall together with this one.
constexpr std::uint64_t kSplitSeed = 0x73706c6974;

}  // namespace

std::uint64_t part_key(std::string_view file, std::uint64_t offset, std::uint64_t size_bytes) {
  return mix64(mix64(XXH3_64bits(file.data(), file.size()), offset), size_bytes);
}

std::uint64_t split_hash(std::string_view name) {
  return XXH3_64bits_withSeed(name.data(), name.size(), kSplitSeed);
}

double split_share(std::uint64_t hash) {
  // 53 bits are what a double holds, so that 1 is never reached.
  return static_cast<double>(hash >> 11) * 0x1p-53;
}

}  // namespace spdld::source
