// SPDX-License-Identifier: Apache-2.0
#include "source/item/source.h"

#include "source/item/item_hashes.h"

namespace spdld::source {

Result<std::unique_ptr<PartBytes>> Source::open_part(std::uint64_t, std::size_t) const {
  return error(Code::kUnimplemented, "its items are no files that could be looked into");
}

std::uint64_t Source::split_hash(std::uint64_t item) const { return source::split_hash(uri(item)); }

std::uint64_t Source::part_key(std::uint64_t item, std::size_t part) const {
  return source::part_key(listing_digest(), item, part);
}

std::optional<std::uint64_t> Source::listed_bytes(std::uint64_t, std::size_t) const {
  return std::nullopt;
}

std::vector<std::string> Source::suffixes(std::size_t) const { return {}; }

}  // namespace spdld::source
