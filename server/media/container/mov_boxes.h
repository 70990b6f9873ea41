// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "media/bytes/byte_reader.h"
#include "media/container/media_io.h"

namespace spdld::media {

// The claims of an mp4 or mov file's boxes, before FFmpeg builds its tables by them.
struct MovBoxes {
  // Where the media data lie (`mdat`), ascending. FFmpeg reads no header from there.
  std::vector<MediaIo::Range> media;
};

// Walks over the boxes, reading their headers and the counts in them. kInvalidArgument: the media
// stand in other files, or the header is compressed; kResourceExhausted: tables of more than
// `max_packets` samples are claimed. Of damage it says nothing: it ends where it cannot go on.
Result<MovBoxes> walk_mov(ByteReader& reader, std::uint64_t max_packets);

}  // namespace spdld::media
