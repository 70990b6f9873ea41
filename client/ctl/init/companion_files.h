// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ctl/init/draft.h"

namespace spdld::ctl {

// Files of a folder that belong to its items, one to each, as their names tell: masks/a.png to
// images/a.jpg.
struct CompanionFiles {
  enum class Kind { kMask, kWideMask, kText, kOther };

  std::string field;
  std::string pattern;          // as YAML takes it, not yet in quotes
  std::string item;             // the first that has one
  std::string such;             // its companion
  std::uint64_t items = 0;      // that have one
  std::uint64_t max_bytes = 0;  // of the largest
  Kind kind = Kind::kOther;
  std::string why_not = {};  // it is a comment only; empty: it is not

  bool is_mask() const { return kind == Kind::kMask || kind == Kind::kWideMask; }
};

struct PairedFiles {
  std::vector<std::string> items;          // media files without those that belong to others
  std::string pattern = "**/";             // the items' directories
  std::vector<std::string> exclude = {};   // files that are none of them
  bool paired = false;                     // there are masks
  std::vector<CompanionFiles> companions;  // those that are no comments come first
  std::vector<std::string> splits = {};    // directories of the items' that are datasets of their
                                           // own, the one that is taken in front
  std::uint64_t others = 0;                // files that are no media, and come along with no item
  std::string other = {};                  // one of them
  bool alike = false;                      // no companions, but all directories have files of the
                                           // same names
};

// `files`: below `root`, sorted. `kind`: of the items. `within`: the items are those in this
// directory alone; empty: not so.
PairedFiles pair_files(const std::string& root, const std::vector<std::string>& files,
                       Draft::Kind kind, const std::string& within);

// "train", "val" and their like.
bool is_split(std::string_view name);

// The path as `pattern` takes it for itself.
std::string glob_text(std::string_view path);

}  // namespace spdld::ctl
