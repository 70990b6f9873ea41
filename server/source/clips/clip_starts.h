// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

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

// Puts where the clips of `file` begin behind those in `clips.starts`, in frames or samples: at the
// given times or the key frames. A time names the frame or sample that is nearest, the earlier one
// of two. One that lies before the first frame, or behind the end of the last one, by more than
// half a frame names none: where the item names it, it is ClipFiles::kNoStart; where the pipeline
// names it for all files, nothing begins there. An error is that of values that are no times.
Status add_starts(const ClipsSpec& spec, const Source& source, const ClipFile& file,
                  ClipFaults& faults, ClipFiles& clips);

// Why the item of a kNoStart is an error.
std::string missed_time_text(const ClipsSpec& spec, const ClipFile& file);

}  // namespace spdld::source
