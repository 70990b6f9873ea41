// SPDX-License-Identifier: Apache-2.0
#include "media/audio/audio_stream.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text/printable.h"
#include "media/container/codecs.h"

namespace spdld::media {
namespace {

bool is_sound(const AVStream& stream) {
  return stream.codecpar->codec_type == AVMEDIA_TYPE_AUDIO &&
         find_media_codec(avcodec_get_name(stream.codecpar->codec_id)) != nullptr;
}

std::string_view language_of(const AVStream& stream) {
  const AVDictionaryEntry* const entry =
      av_dict_get(stream.metadata, "language", nullptr, AV_DICT_MATCH_CASE);
  return entry == nullptr ? "" : entry->value;
}

bool is_wanted(const AVStream& stream, int number, const StreamChoice& choice) {
  using Kind = StreamChoice::Kind;
  if (choice.kind == Kind::kNumber) return number == choice.number;
  return choice.kind == Kind::kBest || language_of(stream) == choice.language;
}

// The larger, the better: `best` of windows, which the index chooses, is the same.
std::pair<bool, int> merit(const AVStream& stream) {
  return {(stream.disposition & AV_DISPOSITION_DEFAULT) != 0,
          stream.codecpar->ch_layout.nb_channels};
}

// Of sound whose codec is not decoded, for a message: ", but one of gsm_ms".
std::string unread_sound(const Demuxer& demuxer) {
  for (int i = 0; i < demuxer.streams(); ++i) {
    const AVCodecParameters& codec = *demuxer.stream(i).codecpar;
    if (codec.codec_type == AVMEDIA_TYPE_AUDIO)
      return std::string(", but one of ") + avcodec_get_name(codec.codec_id) +
             ": convert it, 'ffmpeg -i FILE FILE.flac'";
  }
  return {};
}

// The streams of sound by number, for a message: " (its streams of sound: 1, 2 'eng')".
std::string sounds_text(const Demuxer& demuxer) {
  constexpr int kMostShown = 8;
  std::string text;
  int shown = 0;
  for (int i = 0; i < demuxer.streams() && shown < kMostShown; ++i) {
    if (!is_sound(demuxer.stream(i))) continue;
    text += (shown++ > 0 ? ", " : "") + std::to_string(i);
    const std::string_view language = language_of(demuxer.stream(i));
    if (!language.empty()) text += " '" + printable(language.substr(0, 16)) + "'";
  }
  return shown == 0 ? "it has no stream of sound that is decoded" + unread_sound(demuxer)
                    : "its streams of sound are " + text;
}

Status not_there(const std::string& has, const StreamChoice& choice) {
  return {Code::kInvalidArgument,
          has + ", and decode_audio.stream is " +
              (choice.kind == StreamChoice::Kind::kNumber ? std::to_string(choice.number)
                                                          : "'" + choice.language + "'")};
}

}  // namespace

Result<int> find_audio_stream(const Demuxer& demuxer, const StreamChoice& choice) {
  std::optional<int> found;
  for (int i = 0; i < demuxer.streams(); ++i) {
    const AVStream& stream = demuxer.stream(i);
    if (!is_sound(stream) || !is_wanted(stream, i, choice)) continue;
    if (!found || merit(stream) > merit(demuxer.stream(*found))) found = i;
  }
  if (found) return *found;
  const std::string has = sounds_text(demuxer);
  if (choice.kind == StreamChoice::Kind::kBest) return error(Code::kInvalidArgument, has);
  return tl::unexpected<Status>(not_there(has, choice));
}

Status check_only_stream(const StreamChoice& choice) {
  using Kind = StreamChoice::Kind;
  if (choice.kind == Kind::kBest || (choice.kind == Kind::kNumber && choice.number == 0)) return {};
  return not_there("its streams of sound are 0", choice);
}

}  // namespace spdld::media
