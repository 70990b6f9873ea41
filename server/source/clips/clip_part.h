// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "op/clips_spec.h"
#include "source/item/source.h"

namespace spdld::source {

// The part of a source that clips are cut from.
struct ClipPart {
  std::size_t index = 0;  // of the part
  std::string name;
  std::string others;  // "'audio', 'text'": the source's further parts
};

// The part that `spec` names. If it names none: the only part, or else the only one whose suffixes
// are those of files with such media. An error names the parts; it is about the key `field`.
Result<ClipPart> find_clip_part(const ClipsSpec& spec, const Source& source);

}  // namespace spdld::source
