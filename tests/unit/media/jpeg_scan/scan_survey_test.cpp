// SPDX-License-Identifier: Apache-2.0
// A survey, which reads a scan from many places at once, finds the index that one reader finds, and
// none where that finds the scan unsound.
#include "media/jpeg_scan/scan_survey.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "media/jpeg_scan/scan_pass.h"
#include "tests/fuzz/mutations.h"
#include "tests/unit/media/jpeg/coded_jpeg_maker.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

constexpr int kStep = 8;

using Entries = std::vector<std::uint64_t>;

class ScanSurveyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!ScanSurvey::is_available()) GTEST_SKIP() << "this machine has no AVX-512";
  }

  // Of a file that BaselineDecoder would read.
  void open(const Bytes& jpeg) {
    const auto frame = read_baseline_frame(jpeg);
    ASSERT_TRUE(frame);
    tables_.build(*frame);
    file_ = jpeg;
    scan_at_ = frame->scan;
  }
  std::span<std::byte> scan() { return std::span(file_).subspan(scan_at_); }

  Entries of_survey() {
    if (!whole_.begin(scan())) return {};
    const auto found = survey_.run(tables_, whole_, kStep);
    return {found.begin(), found.end()};
  }
  Entries of_one_reader() {
    if (!whole_.begin(scan())) return {};
    pass_.begin(tables_, whole_, kStep);
    for (int row = 0; row < tables_.mcus_down(); ++row) {
      if (!pass_.read_row({})) return {};
    }
    const auto found = pass_.end();
    return {found.begin(), found.end()};
  }

  Bytes file_;
  std::size_t scan_at_ = 0;
  ScanTables tables_;
  WholeScan whole_;
  ScanSurvey survey_;
  ScanPass pass_;
};

TEST_F(ScanSurveyTest, FindsTheIndexOfPicturesOfEverySampling) {
  for (const auto& [h, v] : {std::pair(1, 1), std::pair(2, 1), std::pair(2, 2)}) {
    for (const int quality : {30, 75, 100}) {
      SCOPED_TRACE("sampling " + std::to_string(h) + "x" + std::to_string(v) + ", quality " +
                   std::to_string(quality));
      open(make_jpeg({.width = 813, .height = 601, .luma_h = h, .luma_v = v, .quality = quality}));
      const Entries found = of_survey();
      EXPECT_FALSE(found.empty());
      EXPECT_EQ(found, of_one_reader());
    }
  }
}

TEST_F(ScanSurveyTest, FindsTheIndexOfOtherCodesOrNone) {
  KeyedRng rng(21);
  int found_any = 0;
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE("file " + std::to_string(i));
    open(drawn_jpeg(rng, 400));
    const Entries found = of_survey();
    if (found.empty()) continue;
    ++found_any;
    ASSERT_EQ(found, of_one_reader());
  }
  EXPECT_GT(found_any, 0);
}

TEST_F(ScanSurveyTest, LeavesShortScansToOneReader) {
  open(make_jpeg({.width = 40, .height = 30}));
  ASSERT_LT(scan().size(), ScanSurvey::kLeastBytes);
  EXPECT_TRUE(of_survey().empty());
}

TEST_F(ScanSurveyTest, FindsNoIndexThatOneReaderDoesNotFindInDamagedScans) {
  const int files = mutations_wanted(400);
  KeyedRng rng(22);
  int sound = 0;
  for (int i = 0; i < files; ++i) {
    SCOPED_TRACE("file " + std::to_string(i));
    const bool is_drawn = i % 4 == 0;
    open(is_drawn ? drawn_jpeg(rng, 400)
                  : make_jpeg({.width = 413, .height = 301, .luma_h = 1 + i % 2, .quality = 95}));
    const std::span<std::byte> bytes = scan();
    for (std::size_t n = 1 + rng.below(3); n > 0; --n) {
      std::byte& byte = bytes[rng.below(bytes.size())];
      byte ^= static_cast<std::byte>(1u << rng.below(8));
    }
    const Entries found = of_survey();
    if (found.empty()) continue;
    ++sound;
    ASSERT_EQ(found, of_one_reader());
  }
  EXPECT_GT(sound, 0);
  EXPECT_LT(sound, files);
}

TEST_F(ScanSurveyTest, FindsNoIndexOfAScanOfTooFewOrTooManyMcus) {
  open(make_jpeg({.width = 413, .height = 301, .quality = 95}));
  ASSERT_FALSE(of_survey().empty());
  for (const int change : {-8, 8}) {
    auto frame = read_baseline_frame(file_);
    ASSERT_TRUE(frame);
    frame->size.height += change;
    tables_.build(*frame);
    EXPECT_TRUE(of_survey().empty());
    EXPECT_TRUE(of_one_reader().empty());
  }
}

}  // namespace
}  // namespace spdld::media::test
