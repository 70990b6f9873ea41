// SPDX-License-Identifier: Apache-2.0
#include "base/text/foreign_names.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace spdld {
namespace {

using std::string_view_literals::operator""sv;

std::string_view content(std::string_view head) {
  const ForeignFormat* const format = foreign_content(head);
  return format == nullptr ? "" : format->name;
}

std::string_view file(std::string_view path) {
  const ForeignFormat* const format = foreign_file(path);
  return format == nullptr ? "" : format->name;
}

TEST(ForeignNames, KnowFormatsByTheirFirstBytes) {
  EXPECT_EQ(content("PAR1\x15\x04"), "Parquet");
  EXPECT_EQ(content("\x89HDF\r\n\x1a\n"), "HDF5");
  EXPECT_EQ(content(std::string(128, '\0') + "DICM"), "DICOM");
  EXPECT_EQ(content(std::string(344, '\1') + "n+1" + '\0'), "NIfTI");
  EXPECT_EQ(content("\0\0\0\x18"
                    "ftypheix"sv),
            "HEIF");
  EXPECT_EQ(content("\0\0\0\x18"
                    "ftypisom"sv),
            "MP4");
  EXPECT_EQ(content("version https://git-lfs.github.com/spec/v1\noid"), kLfsPointer);
  EXPECT_EQ(content("<svg xmlns="), "SVG");
  EXPECT_EQ(content("<!DOCTYPE html>"), "HTML or XML");
}

TEST(ForeignNames, KnowNothingOfAHeadThatEndsInASignature) {
  for (const std::string_view head : {""sv, "PAR"sv,
                                      "\0\0\0\x18"
                                      "ftyp"
                                      "hei"sv.substr(0, 7),
                                      "plain text"sv})
    EXPECT_EQ(content(head), "") << head;
  EXPECT_EQ(content(std::string(128, '\1') + "DIC"), "");
}

TEST(ForeignNames, KnowFilesByTheLongestEnding) {
  EXPECT_EQ(file("a/train-0.parquet"), "Parquet");
  EXPECT_EQ(file("b/T1.NII.GZ"), "NIfTI");
  EXPECT_EQ(file("b/a.tar.gz"), "gzip");
  EXPECT_EQ(file("data.mdb"), "LMDB");
  EXPECT_EQ(file(".parquet"), "");
  EXPECT_EQ(file("a.parquet/b.jpg"), "");
  EXPECT_EQ(file(""), "");
  EXPECT_EQ(described(*foreign_file("a.heic")),
            "HEIF, which is not read: convert it to PNG, TIFF or JPEG");
}

TEST(ForeignNames, AreOpsNamesInSmallLetters) {
  const std::pair<std::string_view, std::string_view> kNames[] = {
      {"RandomResizedCrop", "random_resized_crop"},
      {"v2.RandomResizedCrop(224)", "random_resized_crop"},
      {"MFCC", "mfcc"},
      {"AmplitudeToDB", "amplitude_to_db"},
      {"ToTensorV2", "to_tensor_v2"},
      {"RandomCrop", "random_crop"},
      {"random-crop", "random_crop"},
      {"RGB", "rgb"},
      {"resize", "resize"},
      {"", ""},
      {"(", ""},
  };
  for (const auto& [theirs, ours] : kNames) EXPECT_EQ(op_name_of(theirs), ours);
}

TEST(ForeignNames, SayWhatToDoInPlaceOfATransform) {
  EXPECT_EQ(instead_of_transform("to_tensor"),
            "leave it out: images come as tensors, channels first");
  EXPECT_NE(instead_of_transform(op_name_of("ColorJitter(0.4)")).find("map="),
            std::string_view::npos);
  EXPECT_EQ(instead_of_transform("resize"), "");
}

}  // namespace
}  // namespace spdld
