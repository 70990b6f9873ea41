// SPDX-License-Identifier: Apache-2.0
#include "source/listing/item_uri.h"

#include <algorithm>

#include "source/bytes/shown_columns.h"
#include "source/listing/listing.h"

namespace spdld::source {
namespace {

Result<std::string_view> refuse(std::string_view text, const std::string& why) {
  return error(Code::kInvalidArgument, shown_text(text) + " " + why);
}

}  // namespace

bool climbs(std::string_view path) {
  for (std::size_t at = path.find(".."); at != path.npos; at = path.find("..", at + 1)) {
    const bool begins = at == 0 || path[at - 1] == '/';
    if (begins && (at + 2 == path.size() || path[at + 2] == '/')) return true;
  }
  return false;
}

Result<std::string_view> item_uri(std::string_view text, std::string_view root) {
  if (text.empty()) return error(Code::kInvalidArgument, "the name of the item's file is empty");
  if (text.size() > Listing::kMaxUri) {
    return refuse(text,
                  "is too long for the name of a file: " + std::to_string(text.size()) + " bytes");
  }
  if (text.find('\0') != text.npos) return refuse(text, "holds a NUL character");
  std::string_view uri = text;
  if (text.front() == '/') {
    while (root.ends_with('/')) root.remove_suffix(1);
    if (!text.starts_with(root) || text.substr(root.size(), 1) != "/") {
      return refuse(text, "does not lie below root, " + std::string(root) +
                              "; set root to a directory above all items");
    }
    uri.remove_prefix(std::min(text.find_first_not_of('/', root.size()), text.size()));
  } else if (text.find("://") != text.npos) {
    return refuse(text, "is an address, and items are files below root: copy them to this machine");
  }
  if (uri.empty() || uri.back() == '/') return refuse(text, "names a directory, and no file");
  if (climbs(uri))
    return refuse(text, "has '..' as a part; set root to a directory above all items");
  return uri;
}

}  // namespace spdld::source
