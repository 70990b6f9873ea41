// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spdld::source {

// Where the file lies that belongs to an item, such as its mask: "masks/${subdir}/${stem}.png". Of
// the item images/train/a.b.jpg,
//   ${name}    is a.b.jpg           ${dir}     images/train
//   ${stem}    a.b                  ${top}     images, as the item's class is where directories are
//   ${ext}     jpg                             the classes
//                                   ${subdir}  train
// and ${stem%TEXT} is, as in a shell, the stem without the TEXT that it may end in: of
// x_leftImg8bit.png, "${stem%_leftImg8bit}_labels.png" is x_labels.png. So with each of these.
// Directories that an item does not have are empty, and take the slash behind them along; a name
// without an ending, or with its only dot in front, is its own stem. The result is relative to the
// item's root. Other characters stand for themselves. These names are no variables of a pipeline:
// spec/vars.h says how both are told apart.
//
// Immutable; any thread.
class CompanionPattern {
 public:
  // kInvalidArgument: a ${...} that is none of these, an absolute path, a part that is '..', '.' or
  // empty, or nothing of the item at all.
  static Result<CompanionPattern> parse(std::string_view pattern);

  // The relative uri of the item's companion. An error names an item for which there is none: a
  // part of the path would be empty, '.' or '..', or it would be too long.
  Result<std::string> uri(std::string_view item_uri) const;

 private:
  enum class Part { kName, kStem, kExt, kDir, kTop, kSubdir };
  struct Piece {
    std::string text;  // in front of the part
    Part part = Part::kName;
    std::string without = {};  // an end of the part that is left out
  };

  std::string expand(std::string_view item_uri) const;

  std::vector<Piece> pieces_;
  std::string rest_;
};

}  // namespace spdld::source
