// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace spdld::source {

// A hash of a part's file, and of where it lies there. Whoever keeps something by it compares the
// file's stamp as well, so that only two parts of one file could be taken for each other.
std::uint64_t part_key(std::string_view file, std::uint64_t offset, std::uint64_t size_bytes);

}  // namespace spdld::source
