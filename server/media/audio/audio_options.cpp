// SPDX-License-Identifier: Apache-2.0
#include "media/audio/audio_options.h"

#include <algorithm>
#include <charconv>

namespace spdld::media {

Result<StreamChoice> StreamChoice::parse(std::string_view text) {
  if (text == "best") return StreamChoice{};
  int number = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (bad == std::errc() && end == text.data() + text.size() && number >= 0)
    return StreamChoice{.kind = Kind::kNumber, .number = number};
  const bool letters =
      text.size() >= 2 && text.size() <= 3 &&
      std::all_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  if (letters) return StreamChoice{.kind = Kind::kLanguage, .language = std::string(text)};
  return error(Code::kInvalidArgument,
               "stream is '" + std::string(text) +
                   "', and is 'best', a number as ffprobe numbers streams, or a language such as "
                   "'eng'");
}

}  // namespace spdld::media
