// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

// What the WebDataset package makes of a member, told by the last extension of its suffix:
// "fine.cls" is read as "cls" is.
namespace spdld {

enum class SuffixKind {
  kBytes,    // brought with its sample
  kInteger,  // count, index, inx, id: the text is an integer
  kClass,    // cls, cls2, class: the text is an integer, or the name of a class
};

// kInvalidArgument: members of that suffix are never read, for the reason that the message gives.
Result<SuffixKind> suffix_kind(std::string_view suffix);

// "jpg;JPEG;png" as suffixes in lower case. kInvalidArgument: one of them is none, is refused,
// comes twice, or is of another kind than the first.
Result<std::vector<std::string>> split_suffixes(std::string_view text);

}  // namespace spdld
