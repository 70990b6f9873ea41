// SPDX-License-Identifier: Apache-2.0
#include "media/image/image_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using std::string_view_literals::operator""sv;

Status refusal(std::string_view text) {
  const Result<ImageFormat> format = sniff_image(std::as_bytes(std::span(text)));
  EXPECT_FALSE(format.has_value()) << text;
  return format ? Status() : format.error();
}

TEST(ImageFormat, NamesWhatItDoesNotRead) {
  const std::initializer_list<std::pair<std::string_view, std::string_view>> kCases = {
      {"\0\0\0\x1C"
       "ftypheic\0\0\0\0"sv,
       "HEIF"},
      {"\0\0\0\x0CJXL \r\n"sv, "JPEG XL"},
      {"\xFF\x0A\x00\x00"sv, "JPEG XL"},
      {"8BPS\0\1"sv, "a Photoshop document (PSD)"},
      {"version https://git-lfs.github.com/spec/v1\n"sv, "a pointer of Git LFS"},
      {"<html>404"sv, "HTML or XML"}};
  for (const auto& [bytes, name] : kCases) {
    const Status status = refusal(bytes);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("this is " + std::string(name) + " (first bytes "));
    EXPECT_THAT(status.message(),
                HasSubstr("decode_image reads JPEG, PNG, WebP, GIF, BMP, TIFF and AVIF"));
  }
}

TEST(ImageFormat, SaysWhatToDoWithOneThatIsNotRead) {
  EXPECT_THAT(refusal(std::string(128, '\0') + "DICM").message(),
              AllOf(HasSubstr("this is DICOM (first bytes "),
                    HasSubstr("; the file is not read: convert it to .npy for decode_npy")));
}

TEST(ImageFormat, ShowsTheFirstBytesOfWhatItDoesNotKnow) {
  EXPECT_EQ(refusal("\x01 text \xAB"sv).message(),
            "not an image (first bytes \"\\x01 text \\xab\"); decode_image reads JPEG, PNG, WebP, "
            "GIF, BMP, "
            "TIFF and AVIF");
}

TEST(ImageFormat, OfAvifIsKnownByAnyOfItsBrands) {
  for (const std::string_view head : {"\0\0\0\x14"
                                      "ftypavif\0\0\0\0mif1"sv,
                                      "\0\0\0\x14"
                                      "ftypavis\0\0\0\0mif1"sv,
                                      "\0\0\0\x18"
                                      "ftypmif1\0\0\0\0miafavif"sv}) {
    const Result<ImageFormat> format = sniff_image(std::as_bytes(std::span(head)));
    ASSERT_TRUE(format.has_value());
    EXPECT_EQ(*format, ImageFormat::kAvif);
  }
  EXPECT_THAT(refusal("\0\0\0\x14"
                      "ftypheic\0\0\0\0mif1avif"sv)
                  .message(),
              HasSubstr("this is HEIF"));
  EXPECT_THAT(refusal("\0\0\0\x14"
                      "ftypisomavifmp42"sv)
                  .message(),
              HasSubstr("this is MP4"));
}

TEST(ImageFormat, OfASoundIsNotWebp) {
  EXPECT_THAT(refusal("RIFF\x10\0\0\0WAVEfmt "sv).message(), HasSubstr("not an image (first"));
}

TEST(ImageFormat, OfAnEmptyFileIsDataLoss) {
  const Status status = refusal("");
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.message(), "the file is empty: 0 bytes");
}

TEST(ImageFormat, OfAFileCutInsideItsSignatureIsThatFormatAndTruncated) {
  for (const std::string_view head : {"\xFF"sv, "\xFF\xD8"sv, "\x89PNG"sv, "R"sv, "RIFF\1\1"sv,
                                      "RIFF\1\1\1\1WEB"sv, "G"sv, "B"sv, "I"sv, "MM\0"sv,
                                      "\0\0\0\x1C"
                                      "ftypav"sv}) {
    const auto bytes = std::as_bytes(std::span(head));
    const Status status = failure_of(Bytes(bytes.begin(), bytes.end()));
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("truncated"));
  }
}

}  // namespace
}  // namespace spdld::media::test
