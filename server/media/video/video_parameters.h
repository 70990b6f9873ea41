// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "media/container/ffmpeg.h"
#include "op/media.h"

namespace spdld::media {

// FFmpeg's own parameters of a stream of video.
Result<AvPtr<AVCodecParameters>> video_parameters(const CodecParameters& codec);

// Whether a decoder that was opened for packets of the one stream decodes those of the other as one
// that was opened for them.
bool decode_alike(const CodecParameters& a, const CodecParameters& b);

}  // namespace spdld::media
