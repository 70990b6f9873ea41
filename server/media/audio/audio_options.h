// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace spdld::media {

// Sample rates in Hz that sound is brought to, and the highest that a file may have.
inline constexpr int kLeastRate = 1000;
inline constexpr int kMostRate = 768000;

// Which stream of a file is wanted.
struct StreamChoice {
  enum class Kind : std::uint8_t { kBest, kNumber, kLanguage };

  Kind kind = Kind::kBest;    // the default one, or else the first
  int number = 0;             // as `ffprobe` numbers streams
  std::string language = {};  // ISO 639-2, such as "eng"

  // Reads "best", "1" or "eng".
  static Result<StreamChoice> parse(std::string_view text);
};

// The choices and limits that decode_audio is told.
struct AudioOptions {
  StreamChoice stream;
  double max_seconds = 600;
  int max_channels = 8;

  // Sound of this rate has no more samples.
  std::int64_t max_samples(int sample_rate) const {
    return static_cast<std::int64_t>(max_seconds * sample_rate);
  }
};

}  // namespace spdld::media
