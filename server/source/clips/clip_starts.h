// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "op/clips_spec.h"
#include "source/clips/clip_faults.h"
#include "source/clips/clip_files.h"
#include "source/item/source.h"

namespace spdld::source {

constexpr const char* kTooShortForClip =
    "too short for one ('end: pad' or 'end: loop' makes one all the same)";

// Whether where clips begin is told one by one, and not by a ClipGrid.
inline bool are_starts_told(ClipsSpec::Sampling sampling) {
  return sampling == ClipsSpec::Sampling::kTimestamps ||
         sampling == ClipsSpec::Sampling::kKeyframes;
}

// Puts where the clips of `file` begin behind `starts`, in frames or samples: at the given times or
// the key frames. An error is that of the times that an item names.
Status add_starts(const ClipsSpec& spec, const Source& source, const ClipFile& file,
                  ClipFaults& faults, std::vector<std::uint64_t>& starts);

}  // namespace spdld::source
