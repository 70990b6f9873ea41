// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace spdld::source {

// The hash of an item's name that `select.split` goes by: XXH3 of its bytes, with a seed of its
// own. Changing the value moves items of every user from one part to another.
std::uint64_t split_hash(std::string_view name);
// Where in [0, 1) a name of this hash stands.
double split_share(std::uint64_t hash);

}  // namespace spdld::source
