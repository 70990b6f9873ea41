// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace spdld::source {

// A hash of a part's file, and of where the part lies there. A cache that keeps bytes by it
// compares the file's stamp as well, so that only two parts of one file could be taken for each
// other.
std::uint64_t part_key(std::string_view file, std::uint64_t offset, std::uint64_t size_bytes);

// The hash of an item's name that `select.split` goes by: XXH3 of its bytes, with a seed of its
// own. Changing the value moves items of every user from one part to another.
std::uint64_t split_hash(std::string_view name);
// Where in [0, 1) a name of this hash stands.
double split_share(std::uint64_t hash);

}  // namespace spdld::source
