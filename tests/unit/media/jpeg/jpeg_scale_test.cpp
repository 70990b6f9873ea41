// SPDX-License-Identifier: Apache-2.0
// What indexes of very many files take. SPDLD_FILES in the environment says how many.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>

#include "base/rng.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

#ifdef SPDLD_SANITIZED
constexpr std::uint64_t kUsualFiles = 1'000;
#else
constexpr std::uint64_t kUsualFiles = 20'000;
#endif

std::uint64_t files_wanted() {
  const char* const wanted = std::getenv("SPDLD_FILES");
  return wanted == nullptr ? kUsualFiles : std::strtoull(wanted, nullptr, 10);
}

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Distinct files: one, with another number in a comment that decoders skip.
Bytes file_of(const Bytes& jpeg, std::uint64_t number) {
  Bytes file(jpeg.begin(), jpeg.begin() + 2);
  for (const unsigned char byte : {0xFF, 0xFE, 0x00, 0x0A}) file.push_back(std::byte{byte});
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<std::byte>(number >> 8 * i));
  file.insert(file.end(), jpeg.begin() + 2, jpeg.end());
  return file;
}

TEST(JpegScale, IndexesOfManyFilesTakeWhatTheySayAndAreAllFound) {
  const std::uint64_t files = files_wanted();
  const auto indexes = std::make_shared<SeekIndexes>(std::uint64_t{4} << 30);
  const auto own = DecodeImage(ImageMode{}, true, {}, {.indexes = indexes}).make_decoder();
  const Bytes jpeg = make_jpeg({.width = 120, .height = 90, .luma_h = 2, .luma_v = 2});
  const Rect region{40, 30, 50, 40};
  const Picture expected =
      read_whole(*DecodeImage(ImageMode{}, true, {}).make_decoder(), jpeg)->cut(region);
  for (int i = 0; i < 100; ++i)
    (void)read_region(*own, file_of(jpeg, ~std::uint64_t{0} - i), region);
  const std::uint64_t before = resident_bytes();
  const std::uint64_t counted_before = indexes->snapshot().bytes;
  for (std::uint64_t round = 0; round < 2; ++round) {
    for (std::uint64_t file = 0; file < files; ++file) {
      const Result<Picture> found = read_region(*own, file_of(jpeg, file), region);
      ASSERT_TRUE(found);
      ASSERT_TRUE(*found == expected) << file;
    }
  }
  const SeekIndexes::Snapshot seen = indexes->snapshot();
  EXPECT_EQ(seen.files, files + 100);
  EXPECT_EQ(seen.refused, 0U);
  EXPECT_EQ(seen.images.indexed, files);
  const std::uint64_t counted = seen.bytes - counted_before;
  const std::uint64_t taken = resident_bytes() - before;
  std::cout << "  " << files << " files: indexes of " << counted / files << " bytes a file, "
            << counted << " in all; the process grew by " << taken << '\n';
#ifndef SPDLD_SANITIZED
  EXPECT_LE(taken, counted + counted / 10 + (std::uint64_t{8} << 20));
#endif
}

}  // namespace
}  // namespace spdld::media::test
