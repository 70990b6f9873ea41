// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/rng.h"
#include "media/video/video_decoder.h"
#include "tests/unit/media/video/clip_maker.h"

namespace spdld::media::test {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

// Files that are there already: those of the folder in SPDLD_VIDEO_FILES.
std::vector<fs::path> given_files() {
  std::vector<fs::path> files;
  const char* folder = std::getenv("SPDLD_VIDEO_FILES");
  if (folder == nullptr) return files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string end = entry.path().extension();
    if (end == ".mp4" || end == ".mkv" || end == ".webm" || end == ".mov" || end == ".avi")
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

struct Close {
  void operator()(std::FILE* file) const { pclose(file); }
};
using Output = std::unique_ptr<std::FILE, Close>;

Output run(const std::string& command) { return Output(popen(command.c_str(), "r")); }

std::string text_of(const std::string& command) {
  const Output output = run(command);
  std::string text;
  for (int c = 0; (c = std::fgetc(output.get())) != EOF;) text += static_cast<char>(c);
  return text;
}

class VideoFiles : public testing::TestWithParam<fs::path> {
 protected:
  VideoFiles() : bytes_(read(GetParam())), clips_(bytes_) {}

  static Bytes read(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return bytes_of({std::istreambuf_iterator<char>(in), {}});
  }
  static std::string quoted() { return "'" + GetParam().string() + "'"; }

  // Where chroma lies, which FFmpeg's scaler must be told.
  static std::string places() {
    const std::string place = text_of(
        "ffprobe -v error -select_streams v:0 -show_entries stream=chroma_location -of "
        "default=nk=1:nw=1 " +
        quoted());
    return place.starts_with("left")      ? ":in_h_chr_pos=0:in_v_chr_pos=128"
           : place.starts_with("topleft") ? ":in_h_chr_pos=0:in_v_chr_pos=0"
                                          : "";
  }

  Result<Frames> frames(const std::vector<std::int64_t>& times) {
    const ClipMaker::Cut cut = clips_.cut(times);
    return frames_of(decoder_, cut.clip, cut.bytes);
  }

  Bytes bytes_;
  ClipMaker clips_;
  ClipDecoder decoder_{3, {}};
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(VideoFiles);

TEST_P(VideoFiles, HaveTheTimesThatFFmpegTells) {
  std::istringstream told(text_of(
      "ffprobe -v error -select_streams v:0 -show_entries frame=pts -of csv=p=0 " + quoted()));
  std::vector<std::int64_t> times;
  for (std::string line; std::getline(told, line);) {
    if (!line.empty()) times.push_back(std::stoll(line));
  }
  std::printf("%zu frames\n", times.size());
  EXPECT_EQ(times, clips_.times());
}

TEST_P(VideoFiles, GiveFFmpegsFramesWithinOneLevel) {
  const Output reference = run(
      "ffmpeg -v error -i " + quoted() +
      " -map 0:v:0 -vsync passthrough -vf scale=sws_flags=bilinear+accurate_rnd+full_chroma_int+"
      "full_chroma_inp" +
      places() + ",format=rgb24 -f rawvideo -");
  std::size_t differ = 0;
  std::size_t all = 0;
  constexpr std::size_t kAtOnce = 16;
  for (std::size_t i = 0; i < clips_.times().size(); i += kAtOnce) {
    const auto begin = clips_.times().begin() + static_cast<std::ptrdiff_t>(i);
    const auto count = std::min(kAtOnce, clips_.times().size() - i);
    const Result<Frames> made = frames({begin, begin + static_cast<std::ptrdiff_t>(count)});
    ASSERT_TRUE(made) << made.error().message();
    for (std::size_t n = 0; n < count; ++n) {
      const std::vector<std::uint8_t>& pixels = made->pixels[n];
      Bytes expected(pixels.size());
      ASSERT_EQ(std::fread(expected.data(), 1, expected.size(), reference.get()), expected.size());
      const Difference found = difference(pixels, expected);
      ASSERT_LE(found.most, 1) << "frame " << i + n;
      differ += found.values;
      all += pixels.size();
    }
  }
  EXPECT_EQ(std::fgetc(reference.get()), EOF);
  std::printf("%.4f %% of %zu values differ, by one level\n",
              100.0 * static_cast<double>(differ) / static_cast<double>(all), all);
}

TEST_P(VideoFiles, GiveTheSameFramesInAnyOrder) {
  const std::vector<std::int64_t>& times = clips_.times();
  const Result<Frames> all = frames(times);
  ASSERT_TRUE(all) << all.error().message();
  KeyedRng rng(11);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::size_t> numbers;
    std::vector<std::int64_t> wanted;
    const std::size_t count = 1 + rng.below(6);
    for (std::size_t i = 0; i < count; ++i) numbers.push_back(rng.below(times.size()));
    for (const std::size_t number : numbers) wanted.push_back(times[number]);
    const Result<Frames> some = frames(wanted);
    ASSERT_TRUE(some) << some.error().message();
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(some->pixels[i], all->pixels[numbers[i]]) << "frame " << numbers[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Given, VideoFiles, testing::ValuesIn(given_files()),
                         [](const testing::TestParamInfo<fs::path>& info) {
                           std::string name = info.param.filename();
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace spdld::media::test
