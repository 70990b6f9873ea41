// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stop_token>
#include <string>

#include "base/status.h"
#include "media/bytes/byte_reader.h"
#include "media/container/demuxer.h"
#include "op/media.h"

namespace spdld::media {

// Tells what a file of video or sound holds, from what its container says and without decoding its
// pictures. Of an mp4 file only the header is read where that tells all. Blocks while `reader`
// does; no FfmpegReports may live on this thread. Errors as of Demuxer::open(); a file of which no
// stream can be decoded is kInvalidArgument, and says which streams it has.
Result<MediaFile> probe(ByteReader& reader, const MediaLimits& limits = {},
                        std::stop_token stop = {});

// Names all that what probe() finds depends on but the file: the versions of FFmpeg's libraries,
// how they were built, and the limits.
std::string probe_version(const MediaLimits& limits = {});

}  // namespace spdld::media
