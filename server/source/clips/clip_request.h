// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "op/media.h"
#include "source/clips/clip_files.h"
#include "source/clips/clip_pieces.h"

namespace spdld::source {

// Sets `clip` to the clips of a file that begin at `starts`, which ascend, at most
// ClipsSpec::kMostStacked of them. Returns the pieces of the part that they are made from, at most
// `most_pieces`. `clip` was cleared. Allocates nothing once `clip` has had a clip of that
// size. An error is kDataLoss, without the file's name.
Result<ClipPieces> make_clip(const ClipsSpec& spec, const ClipFile& file,
                             std::span<const std::uint64_t> starts, std::size_t most_pieces,
                             MediaClip& clip);

// The sound of the clip of a video that begins at that frame.
Result<ClipPieces> make_clip_sound(const ClipsSpec& spec, const ClipFile& file,
                                   const ClipSound& sound, std::uint64_t start, MediaClip& clip);

}  // namespace spdld::source
