// SPDX-License-Identifier: Apache-2.0
#include "source/media_index/stream_choice.h"

#include <algorithm>
#include <tuple>

#include "base/text/ascii.h"

namespace spdld::source {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

bool is_wanted(const StreamRecord& stream, const std::string& wanted) {
  if (wanted == "best") return true;
  if (is_number(wanted)) return std::to_string(stream.info.index) == wanted;
  return stream.language == wanted;
}

// The larger, the better.
std::tuple<bool, std::int64_t> merit(const StreamRecord& stream) {
  const CodecParameters& codec = *stream.info.codec;
  return {stream.is_default, stream.info.kind == StreamInfo::Kind::kVideo
                                 ? std::int64_t{codec.width} * codec.height
                                 : std::int64_t{codec.channels}};
}

}  // namespace

const StreamRecord* choose_stream(const MediaRecord& record, StreamInfo::Kind kind,
                                  const std::string& wanted) {
  const StreamRecord* best = nullptr;
  for (const StreamRecord& stream : record.streams) {
    if (stream.info.kind != kind || !is_wanted(stream, wanted)) continue;
    if (best == nullptr || merit(stream) > merit(*best)) best = &stream;
  }
  return best;
}

std::string no_stream_text(StreamInfo::Kind kind, const std::string& wanted) {
  const std::string what = kind == StreamInfo::Kind::kVideo ? "video" : "sound";
  if (wanted == "best") return "without " + what;
  return "without a " + what + " stream " + (is_number(wanted) ? "of number " : "in ") + wanted;
}

}  // namespace spdld::source
