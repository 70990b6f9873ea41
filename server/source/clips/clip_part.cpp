// SPDX-License-Identifier: Apache-2.0
#include "source/clips/clip_part.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <vector>

namespace spdld::source {
namespace {

// Of containers that are read. Those of videos hold sound, too.
constexpr std::array<std::string_view, 13> kVideo{"mp4",  "m4v", "mov", "qt",  "3gp",  "3g2", "mkv",
                                                  "webm", "avi", "ts",  "mts", "m2ts", "ogv"};
constexpr std::array<std::string_view, 12> kSound{"wav",  "w64", "mp3", "flac", "ogg", "oga",
                                                  "opus", "aac", "m4a", "m4b",  "mka", "spx"};

template <std::size_t N>
bool has(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool can_hold(ClipsSpec::Unit unit, const std::vector<std::string>& suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(), [unit](const std::string& suffix) {
    return has(kVideo, suffix) || (unit == ClipsSpec::Unit::kSeconds && has(kSound, suffix));
  });
}

std::string quoted(const std::vector<const SourceField*>& parts, const SourceField* but = nullptr) {
  std::string text;
  for (const SourceField* const part : parts) {
    if (part != but) text += (text.empty() ? "'" : ", '") + part->name + "'";
  }
  return text;
}

}  // namespace

Result<ClipPart> find_clip_part(const ClipsSpec& spec, const Source& source) {
  std::vector<const SourceField*> parts;
  for (const SourceField& field : source.fields()) {
    if (field.kind == SourceField::Kind::kPart) parts.push_back(&field);
  }
  std::vector<const SourceField*> fitting;
  if (!spec.field.empty()) {
    std::copy_if(parts.begin(), parts.end(), std::back_inserter(fitting),
                 [&](const SourceField* part) { return part->name == spec.field; });
    if (fitting.empty())
      return error(Code::kInvalidArgument,
                   "the source has no part '" + spec.field + "'; it has " + quoted(parts));
  } else if (parts.size() == 1) {
    fitting = parts;
  } else {
    std::copy_if(
        parts.begin(), parts.end(), std::back_inserter(fitting),
        [&](const SourceField* part) { return can_hold(spec.unit, source.suffixes(part->index)); });
    const std::string media = spec.unit == ClipsSpec::Unit::kFrames ? "video" : "sound";
    if (fitting.empty())
      return error(Code::kInvalidArgument, "none of the source's parts (" + quoted(parts) +
                                               ") has a suffix that tells of " + media +
                                               "; write 'field: NAME' with the one that has it");
    if (fitting.size() > 1)
      return error(Code::kInvalidArgument, "by their suffixes, each of the parts " +
                                               quoted(fitting) + " may hold " + media +
                                               "; write 'field: NAME' with one of them");
  }
  const SourceField& found = *fitting.front();
  return ClipPart{.index = found.index, .name = found.name, .others = quoted(parts, &found)};
}

}  // namespace spdld::source
