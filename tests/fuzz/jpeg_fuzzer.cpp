// SPDX-License-Identifier: Apache-2.0
// For libFuzzer: bytes that may be a JPEG come to the same by libjpeg-turbo, by our decoder at
// first sight, by the index that this made, and by the coefficients that a cache would keep. An
// empty corpus is filled with small sound files.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/fuzz/image_outcome.h"
#include "tests/unit/media/image/exif_maker.h"
#include "tests/unit/media/jpeg/coded_jpeg_maker.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"

namespace spdld::media::test {
namespace {

constexpr ImageLimits kLimits{.max_pixels = 200'000};

void demand(const Outcome& found, const Outcome& expected, const char* what) {
  if (found == expected) return;
  std::fprintf(stderr, "%s: %s; by libjpeg-turbo: %s%s\n", what, found.reason.c_str(),
               expected.reason.c_str(),
               found.reason == expected.reason ? ", with other pixels" : "");
  std::abort();
}

void try_all_ways(const Bytes& bytes, std::uint64_t seed) {
  const ImageMode mode = ImageMode::of(seed % 4 == 0 ? ColorMode::kGray : ColorMode::kRgb);
  const KeyedRng rng(seed);
  const JpegOptions jpeg{.indexes = std::make_shared<SeekIndexes>(std::uint64_t{1} << 20)};
  const auto libjpeg = DecodeImage(mode, true, kLimits).make_decoder();
  const auto own = DecodeImage(mode, true, kLimits, jpeg).make_decoder();
  const Outcome expected = outcome_of(*libjpeg, mode, bytes, rng);
  demand(outcome_of(*own, mode, bytes, rng), expected, "at first sight");
  demand(outcome_of(*own, mode, bytes, rng), expected, "when it comes again");
  if (const auto recoded = recoded_outcome_of(*own, mode, bytes, rng))
    demand(*recoded, expected, "by its coefficients");
}

std::vector<Bytes> seeds() {
  using Kind = JpegRecipe::Kind;
  std::vector<Bytes> files;
  for (const auto& [h, v] : {std::pair(1, 1), std::pair(2, 1), std::pair(2, 2)}) {
    for (const int quality : {30, 75, 98})
      files.push_back(
          make_jpeg({.width = 41, .height = 35, .luma_h = h, .luma_v = v, .quality = quality}));
  }
  files.push_back(make_jpeg({.width = 40, .height = 24, .kind = Kind::kGray}));
  files.push_back(make_jpeg({.width = 24, .height = 40, .exif = make_tiff(6, true)}));
  files.push_back(make_jpeg({.width = 24, .height = 24, .restart_interval = 2}));
  files.push_back(make_jpeg({.width = 24, .height = 24, .progressive = true}));
  // Scans that are long enough to be read from many places at once.
  files.push_back(
      make_jpeg({.width = 112, .height = 104, .luma_h = 2, .luma_v = 2, .quality = 99}));
  files.push_back(make_jpeg({.width = 112, .height = 112, .kind = Kind::kGray, .quality = 98}));
  KeyedRng rng(24);
  files.push_back(drawn_jpeg(rng, 1200));
  return files;
}

}  // namespace
}  // namespace spdld::media::test

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const auto is_directory = [](const char* each) { return std::filesystem::is_directory(each); };
  char** const end = *argv + *argc;
  char** const corpus = std::find_if(*argv + 1, end, is_directory);
  if (corpus == end || !std::filesystem::is_empty(*corpus)) return 0;
  int number = 0;
  for (const auto& file : spdld::media::test::seeds()) {
    std::ofstream out(std::string(*corpus) + "/seed" + std::to_string(number++), std::ios::binary);
    out.write(reinterpret_cast<const char*>(file.data()),
              static_cast<std::streamsize>(file.size()));
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  // JPEG alone: other formats' decoders have fuzzers of their own.
  if (size < 4 || data[0] != 0xFF || data[1] != 0xD8) return -1;
  std::uint64_t seed = size;
  for (std::size_t i = 0; i < size; ++i) seed = spdld::mix64(seed, data[i]);
  spdld::media::test::try_all_ways({bytes, bytes + size}, seed);
  return 0;
}
