// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "media/audio/audio_options.h"
#include "media/container/demuxer.h"

namespace spdld::media {

// The number of the stream of sound that is chosen. kInvalidArgument: there is none, and the
// message tells which there are.
Result<int> find_audio_stream(const Demuxer& demuxer, const StreamChoice& choice);
// Whether a file with one stream, which has no language, has the one that is chosen.
Status check_only_stream(const StreamChoice& choice);

}  // namespace spdld::media
