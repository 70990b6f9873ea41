// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ctl/daemon.h"

namespace spdld::ctl {

// The texts of each row, by the names of their fields, in the order of the fields.
struct TextField {
  std::string name;
  std::vector<std::string> rows;
};
std::vector<TextField> texts_of(const Preview& preview);

// The boxes of each row, in pixels of the images, if there is a field of them; and their labels.
struct BoxField {
  struct Box {
    float left = 0;
    float top = 0;
    float right = 0;
    float bottom = 0;
    std::int64_t label = 0;
  };
  std::string name;
  std::vector<std::vector<Box>> rows;
};
std::optional<BoxField> boxes_of(const Preview& preview);

// The samples of each row, if there is a field of sound: float32, [channels, samples].
struct SoundField {
  static constexpr std::uint32_t kMostChannels = 8;

  struct Row {
    std::uint32_t channels = 0;
    std::size_t samples = 0;
    std::vector<float> values;
  };
  std::string name;
  std::vector<Row> rows;
};
std::optional<SoundField> sound_of(const Preview& preview);

}  // namespace spdld::ctl
