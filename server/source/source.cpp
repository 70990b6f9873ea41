// SPDX-License-Identifier: Apache-2.0
#include "source/source.h"

#include "source/part_key.h"
#include "source/select.h"

namespace spdld::source {

std::uint64_t Source::split_hash(std::uint64_t item) const { return source::split_hash(uri(item)); }

std::uint64_t Source::part_key(std::uint64_t item, std::size_t part) const {
  return source::part_key(listing_digest(), item, part);
}

}  // namespace spdld::source
