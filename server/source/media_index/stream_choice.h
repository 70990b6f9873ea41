// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "source/media_index/media_record.h"

namespace spdld::source {

// The stream of that kind that `wanted` names: its number in the file, as `ffprobe` numbers
// streams, its language, such as "eng", or "best": of those that the file marks as its defaults, or
// else of all, the one with the most pixels or channels, the first of several. Null: there is none.
const StreamRecord* choose_stream(const MediaRecord& record, StreamInfo::Kind kind,
                                  const std::string& wanted);

// "without video", of files that have no such stream.
std::string no_stream_text(StreamInfo::Kind kind, const std::string& wanted);

}  // namespace spdld::source
