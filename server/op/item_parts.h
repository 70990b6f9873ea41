// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

namespace spdld {

// The parts of an item's relative uri that a companion's pattern may name, as in
// "masks/${stem}.png": source/listing/companions.h says what each is. Patterns stand below this key
// of a source; spec/ leaves these names to source/ there, and replaces variables alone.
inline constexpr std::string_view kCompanionsKey = "companions";
inline constexpr std::array<std::string_view, 6> kItemParts = {"name", "stem", "ext",
                                                               "dir",  "top",  "subdir"};
// As in a shell, ${stem%TEXT} is the stem without a TEXT at its end. This is the part's name.
constexpr std::string_view item_part_of(std::string_view reference) {
  return reference.substr(0, reference.find('%'));
}

}  // namespace spdld
