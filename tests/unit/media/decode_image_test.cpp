// SPDX-License-Identifier: Apache-2.0
#include "media/decode_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "media/ops.h"
#include "tests/unit/media/format/png_maker.h"
#include "tests/unit/media/image/exif_maker.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

std::map<std::string, ParamValue> defaults_of(const OpInfo& op) {
  std::map<std::string, ParamValue> values;
  for (const ParamInfo& param : op.params) {
    if (param.default_value) values[param.name] = *param.default_value;
  }
  return values;
}

std::unique_ptr<Op> make(const std::map<std::string, ParamValue>& changes) {
  const Registry registry(ops(nullptr));
  const OpInfo* op = registry.find("decode_image");
  EXPECT_NE(op, nullptr);
  std::map<std::string, ParamValue> values = defaults_of(*op);
  for (const auto& [name, value] : changes) values[name] = value;
  Result<std::unique_ptr<Op>> made = op->make(Params(values));
  EXPECT_TRUE(made.has_value());
  return std::move(made).value();
}

const DecodeImageOp& as_decode(const Op& op) { return dynamic_cast<const DecodeImageOp&>(op); }

TEST(DecodeImage, IsInTheRegistryAndWorksWithItsDefaults) {
  const std::unique_ptr<Op> op = make({});
  EXPECT_EQ(op->fields(), std::vector<std::string>{"image"});
  EXPECT_EQ(as_decode(*op).channels(), 3);
  const auto decoder = as_decode(*op).make_decoder();
  EXPECT_TRUE(read_whole(*decoder, make_jpeg({})).has_value());
}

TEST(DecodeImage, GivesOneChannelInGrayMode) {
  const std::unique_ptr<Op> op = make({{"mode", std::string("gray")}});
  EXPECT_EQ(as_decode(*op).channels(), 1);
  const auto decoder = as_decode(*op).make_decoder();
  const Bytes jpeg = make_jpeg({});
  const Result<Picture> picture = read_whole(*decoder, jpeg, 1);
  ASSERT_TRUE(picture.has_value());
  EXPECT_EQ(picture->pixels, bare_decode(jpeg, 1));
}

TEST(DecodeImage, HandsItsParametersOn) {
  const std::unique_ptr<Op> op = make(
      {{"exif", false}, {"max_pixels", std::int64_t{64 * 48}}, {"max_scans", std::int64_t{2}}});
  const auto decoder = as_decode(*op).make_decoder();
  const Result<Size> lying = decoder->open(make_jpeg({.exif = make_tiff(6, true)}));
  ASSERT_TRUE(lying.has_value());
  EXPECT_EQ(*lying, (Size{64, 48}));
  EXPECT_EQ(decoder->open(make_jpeg({.width = 65})).error().code(), Code::kResourceExhausted);
  EXPECT_EQ(decoder->open(make_jpeg({.progressive = true})).error().code(),
            Code::kResourceExhausted);
}

TEST(DecodeImage, ReadsJpegAndPngInTurnWithOneDecoder) {
  const auto decoder = make_decoder();
  const Bytes jpeg = make_jpeg({});
  const Bytes png = make_png({});
  const Result<Picture> first_jpeg = read_whole(*decoder, jpeg);
  const Result<Picture> first_png = read_whole(*decoder, png);
  ASSERT_TRUE(first_jpeg.has_value() && first_png.has_value());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(*read_whole(*decoder, jpeg), *first_jpeg);
    EXPECT_EQ(*read_whole(*decoder, png), *first_png);
    EXPECT_FALSE(decoder->open(Bytes(10, std::byte{1})).has_value());
  }
}

TEST(DecodeImage, MayOpenAnImageThatIsNeverRead) {
  const auto decoder = make_decoder();
  const Bytes first = make_jpeg({.width = 640, .progressive = true});
  const Bytes second = make_jpeg({});
  ASSERT_TRUE(decoder->open(first).has_value());
  const Result<Picture> picture = read_whole(*decoder, second);
  ASSERT_TRUE(picture.has_value());
  EXPECT_EQ(picture->pixels, bare_decode(second, 3));
}

TEST(DecodeImageDeathTest, ReadingTwiceIsTheCallersBug) {
  const auto decoder = make_decoder();
  const Bytes jpeg = make_jpeg({});
  ASSERT_TRUE(read_whole(*decoder, jpeg).has_value());
  PictureSink sink({0, 0, 1, 1}, 3);
  EXPECT_DEATH((void)decoder->read({0, 0, 1, 1}, sink), "current_");
}

TEST(DecodeImageDeathTest, ReadingBeyondTheImageIsTheCallersBug) {
  const auto decoder = make_decoder();
  const Bytes jpeg = make_jpeg({});
  ASSERT_TRUE(decoder->open(jpeg).has_value());
  PictureSink sink({0, 0, 1, 1}, 3);
  EXPECT_DEATH((void)decoder->read({60, 0, 5, 1}, sink), "region");
}

}  // namespace
}  // namespace spdld::media::test
