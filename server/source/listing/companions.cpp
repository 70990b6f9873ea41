// SPDX-License-Identifier: Apache-2.0
#include "source/listing/companions.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "base/text/near_names.h"
#include "base/text/printable.h"
#include "op/item_parts.h"
#include "source/bytes/shown_columns.h"
#include "source/listing/listing.h"

namespace spdld::source {
namespace {

constexpr std::size_t kMaxCompanion = 4096;

Status invalid_companion(std::string_view pattern, const std::string& why) {
  return {Code::kInvalidArgument, "companion " + shown_text(pattern) + ": " + why};
}

// Whether one of the parts between slashes is no name of a file or directory.
bool has_bad_part(std::string_view path) {
  while (true) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    if (part.empty() || part == "." || part == "..") return true;
    if (end == path.size()) return false;
    path.remove_prefix(end + 1);
  }
}

}  // namespace

Result<CompanionPattern> CompanionPattern::parse(std::string_view pattern) {
  static_assert(kItemParts[0] == "name" && kItemParts[1] == "stem" && kItemParts[2] == "ext" &&
                kItemParts[3] == "dir" && kItemParts[4] == "top" && kItemParts[5] == "subdir");
  if (pattern.size() > kMaxCompanion)
    return tl::unexpected(invalid_companion(pattern, "it is too long"));
  if (pattern.find('\0') != pattern.npos) {
    return tl::unexpected(invalid_companion(pattern, "no path holds a zero byte"));
  }
  CompanionPattern parsed;
  std::size_t at = 0;
  while (true) {
    const std::size_t open = pattern.find("${", at);
    if (open == pattern.npos) break;
    const std::size_t close = pattern.find('}', open);
    if (close == pattern.npos)
      return tl::unexpected(invalid_companion(pattern, "'${' without '}'"));
    const std::string_view reference = pattern.substr(open + 2, close - open - 2);
    const std::string_view name = item_part_of(reference);
    const auto found = std::find(kItemParts.begin(), kItemParts.end(), name);
    if (found == kItemParts.end()) {
      return tl::unexpected(invalid_companion(
          pattern, shown_text(name) + " is no part of an item" +
                       printable(hint(name, {kItemParts.begin(), kItemParts.end()}))));
    }
    parsed.pieces_.push_back({.text = std::string(pattern.substr(at, open - at)),
                              .part = static_cast<Part>(found - kItemParts.begin())});
    if (name.size() < reference.size())
      parsed.pieces_.back().without = reference.substr(name.size() + 1);
    at = close + 1;
  }
  parsed.rest_ = pattern.substr(at);
  if (parsed.pieces_.empty()) {
    return tl::unexpected(invalid_companion(
        pattern, "it would be the same file for all items; name a part of the item: ${stem}"));
  }
  // Of an item that has all parts, the path is as the pattern has it.
  if (has_bad_part(parsed.expand("t/s/n.e"))) {
    return tl::unexpected(invalid_companion(
        pattern, "it is relative to the source's root, without empty parts, '.' and '..'"));
  }
  return parsed;
}

Result<std::string> CompanionPattern::uri(std::string_view item_uri) const {
  std::string companion = expand(item_uri);
  if (companion.size() <= Listing::kMaxUri && !has_bad_part(companion)) return companion;
  return error(Code::kInvalidArgument, "the companion of " + shown_text(item_uri) + " would be " +
                                           shown_text(companion) +
                                           ", which is no path below the root");
}

std::string CompanionPattern::expand(std::string_view item_uri) const {
  const std::size_t slash = item_uri.rfind('/');
  const std::string_view dir = slash == item_uri.npos ? "" : item_uri.substr(0, slash);
  const std::string_view name = slash == item_uri.npos ? item_uri : item_uri.substr(slash + 1);
  const std::size_t dot = name.rfind('.');
  const bool has_ending = dot != name.npos && dot != 0;
  const std::size_t below = dir.find('/');
  const auto value = [&](Part part) -> std::string_view {
    switch (part) {
      case Part::kName: return name;
      case Part::kStem: return has_ending ? name.substr(0, dot) : name;
      case Part::kExt: return has_ending ? name.substr(dot + 1) : "";
      case Part::kDir: return dir;
      case Part::kTop: return dir.substr(0, below);
      case Part::kSubdir: return below == dir.npos ? "" : dir.substr(below + 1);
    }
    return "";
  };
  std::string companion;
  bool drop_slash = false;
  const auto append = [&](std::string_view text) {
    if (drop_slash && text.starts_with('/')) text.remove_prefix(1);
    if (!text.empty()) drop_slash = false;
    companion += text;
  };
  for (const Piece& piece : pieces_) {
    append(piece.text);
    std::string_view text = value(piece.part);
    if (text.ends_with(piece.without)) text.remove_suffix(piece.without.size());
    const bool directory =
        piece.part == Part::kDir || piece.part == Part::kTop || piece.part == Part::kSubdir;
    append(text);
    // Where a directory is all that stands between two slashes, or in front.
    const bool alone = companion.empty() || companion.back() == '/';
    drop_slash = drop_slash || (directory && text.empty() && alone);
  }
  append(rest_);
  return companion;
}

}  // namespace spdld::source
