// SPDX-License-Identifier: Apache-2.0
#include "op/video.h"

#include <algorithm>
#include <utility>

namespace spdld {

Status DecodeVideoOp::plan(FieldTable& table, const StageKey& key, std::string&) const {
  auto encoded = table.encoded(fields().front(), key.name);
  if (!encoded) return std::move(encoded).error();
  Field& field = **encoded;
  if (!field.clip || field.clip->kind != StreamInfo::Kind::kVideo)
    return {Code::kInvalidArgument,
            "'" + key.name + "' decodes clips of video, and the field '" + field.name +
                "' is whole files: write 'clips:' under the source, which says what frames of them "
                "make a sample"};
  const std::int64_t frames = field.clip->frames * std::max<std::int64_t>(field.clip->repeats, 1);
  if (frames > max_frames())
    return {Code::kInvalidArgument, "'" + key.name + "': a sample has " + std::to_string(frames) +
                                        " frames, and max_frames is " +
                                        std::to_string(max_frames()) +
                                        ": raise it, or ask for shorter clips"};
  field.chain = table.make_video_chain()(*this, table.request(field), *field.clip);
  field.kind = Field::Kind::kDecoded;
  Field* behind = &field;
  for (const std::string* const name : {&pts_field(), &duration_field()}) {
    if (name->empty()) continue;
    auto made = table.make_decoded(*name, *behind, key.name);
    if (!made) return std::move(made).error();
    behind = *made;
  }
  return {};
}

}  // namespace spdld
