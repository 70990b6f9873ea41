// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace spdld::media::test {

// WAV files whose headers say what the test wants.
struct WavRecipe {
  std::uint32_t tag = 1;
  std::uint32_t channels = 1;
  std::uint32_t rate = 8000;
  std::uint32_t bits = 16;
  std::uint32_t frame_bytes = 2;
  std::string extension = {};  // behind the 16 bytes of a plain format
  std::string data = std::string("\x01\x00\x02\x00\x03\x00", 6);
  std::int64_t data_bytes = -1;  // as the header tells it; -1: as it is
  std::int64_t riff_bytes = -1;
  std::string before = {};  // chunks between format and data
  std::string after = {};   // and behind the data
};

inline std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

inline std::string chunk(const std::string& id, const std::string& content) {
  return id + little(content.size(), 4) + content + std::string(content.size() % 2, '\0');
}

inline std::vector<std::byte> make_wav(const WavRecipe& recipe) {
  const std::string format = little(recipe.tag, 2) + little(recipe.channels, 2) +
                             little(recipe.rate, 4) + little(recipe.rate * recipe.frame_bytes, 4) +
                             little(recipe.frame_bytes, 2) + little(recipe.bits, 2) +
                             recipe.extension;
  const auto told = [](std::int64_t wanted, std::size_t actual) {
    return little(wanted < 0 ? actual : static_cast<std::uint64_t>(wanted), 4);
  };
  const std::string body = "WAVE" + chunk("fmt ", format) + recipe.before + "data" +
                           told(recipe.data_bytes, recipe.data.size()) + recipe.data +
                           std::string(recipe.data.size() % 2, '\0') + recipe.after;
  const std::string file = "RIFF" + told(recipe.riff_bytes, body.size()) + body;
  const auto* const begin = reinterpret_cast<const std::byte*>(file.data());
  return {begin, begin + file.size()};
}

}  // namespace spdld::media::test
