// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "media/container/ffmpeg.h"

namespace spdld::media {

// FFmpeg's decoders reuse the memory of frames, and some accept a packet that holds a part of its
// picture alone. So every frame comes filled with a mark from here on, and what a decoder leaves
// out is known: the pixels of a clip are those of its file, or there is an error. Decoders that
// bring frames of their own (libdav1d) are not affected. `mark` outlives the context.
void mark_frames(AVCodecContext& context, const std::uint64_t& mark);

// Whether a part of the frame, of at least 8 x 8 samples or of every second row, is still marked.
// A picture that shows the mark itself looks so, too.
bool has_marks(const AVFrame& frame, std::uint64_t mark);

// One that hardly any picture shows.
inline constexpr std::uint64_t kFrameMark = 0xC71EA439F20B8D56;

}  // namespace spdld::media
