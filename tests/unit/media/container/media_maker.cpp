// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/media/container/media_maker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>

namespace spdld::media::test {

std::string MediaMaker::output(const std::string& command) const {
  const std::string whole = "cd '" + dir_.path() + "' && " + command;
  const auto close = [](std::FILE* pipe) { ::pclose(pipe); };
  const std::unique_ptr<std::FILE, decltype(close)> pipe(::popen(whole.c_str(), "r"), close);
  std::string text;
  std::array<char, 4096> part{};
  while (pipe != nullptr) {
    const std::size_t count = std::fread(part.data(), 1, part.size(), pipe.get());
    if (count == 0) break;
    text.append(part.data(), count);
  }
  return text;
}

std::vector<std::byte> MediaMaker::make(const std::string& arguments,
                                        const std::string& name) const {
  const std::string said =
      output("ffmpeg -nostdin -v error -y " + arguments + " '" + name + "' 2>&1");
  const std::vector<std::byte> bytes = bytes_of(name);
  EXPECT_FALSE(bytes.empty()) << arguments << ": " << said;
  return bytes;
}

std::vector<std::byte> MediaMaker::bytes_of(const std::string& name) const {
  std::ifstream file(path_of(name), std::ios::binary);
  return test::bytes_of({std::istreambuf_iterator<char>(file), {}});
}

void MediaMaker::write(const std::string& name, const std::vector<std::byte>& bytes) const {
  std::ofstream(path_of(name), std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

std::vector<std::byte> with_xing_frames(std::vector<std::byte> mp3, std::uint32_t frames) {
  constexpr std::ptrdiff_t kCountAt = 8;
  for (const std::string name : {"Xing", "Info"}) {
    const std::vector<std::byte> mark = bytes_of(name);
    const auto at = std::search(mp3.begin(), mp3.end(), mark.begin(), mark.end());
    if (mp3.end() - at < kCountAt + 4) continue;
    for (int i = 0; i < 4; ++i) at[kCountAt + i] = static_cast<std::byte>(frames >> (24 - 8 * i));
    return mp3;
  }
  ADD_FAILURE() << "no Xing header";
  return mp3;
}

std::vector<std::vector<std::string>> MediaMaker::probe(
    const std::string& name, const std::string& stream, const std::string& what,
    const std::vector<std::string>& keys) const {
  std::string entries;
  for (const std::string& key : keys) entries += (entries.empty() ? "" : ",") + key;
  std::istringstream lines(
      output("ffprobe -v error -select_streams " + stream +
             " -of compact=nokey=0:print_section=0 -show_data_hash CRC32 -show_entries " + what +
             "=" + entries + " '" + name + "'"));
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    std::map<std::string, std::string> values;
    std::istringstream parts(line);
    for (std::string part; std::getline(parts, part, '|');) {
      const std::size_t equals = part.find('=');
      if (equals != std::string::npos) values[part.substr(0, equals)] = part.substr(equals + 1);
    }
    if (values.empty()) continue;
    // Side data breaks an entry into lines.
    if (rows.empty() || values.count(keys[0]) != 0) rows.emplace_back(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i)
      if (values.count(keys[i]) != 0) rows.back()[i] = values[keys[i]];
  }
  return rows;
}

}  // namespace spdld::media::test
