// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "media/container/ffmpeg.h"
#include "op/media.h"

namespace spdld::media {

// Sets what FFmpeg's decoder of sound is opened with. kDataLoss: no stream of sound has such
// parameters; or kNoMemory.
Status set_audio_parameters(const CodecParameters& codec, AVCodecParameters& out);

// Opus tells in its header how many samples the decoder drops when it begins; packets from the
// midst of a stream must lose none.
bool has_opus_preskip(const AVCodecParameters& parameters);
void clear_opus_preskip(AVCodecParameters& parameters);

}  // namespace spdld::media
