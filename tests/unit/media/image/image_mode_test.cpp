// SPDX-License-Identifier: Apache-2.0
#include "media/image/image_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "media/image/pixels.h"
#include "media/ops.h"
#include "tests/unit/media/format/avif_maker.h"
#include "tests/unit/media/format/bmp_maker.h"
#include "tests/unit/media/format/gif_maker.h"
#include "tests/unit/media/format/png_maker.h"
#include "tests/unit/media/format/tiff_maker.h"
#include "tests/unit/media/format/webp_maker.h"
#include "tests/unit/media/image/exif_maker.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"
#include "tests/unit/media/pixels_of.h"

namespace spdld::media::test {
namespace {

using ::testing::HasSubstr;

const ImageMode kRgb = ImageMode::of(ColorMode::kRgb);
const ImageMode kGray = ImageMode::of(ColorMode::kGray);
const ImageMode kRgba = ImageMode::of(ColorMode::kRgba);
const ImageMode kGray16 = ImageMode::of(ColorMode::kGray16);
const ImageMode kIndex = ImageMode::of(ColorMode::kIndex);

ImageMode unchanged_bytes(int channels) { return ImageMode::unchanged(channels, DType::kUInt8); }
ImageMode wide_of(int channels) { return ImageMode::unchanged(channels, DType::kUInt16); }

// A pixel with samples of 16 bits, and its number in the file.
struct Meaning {
  unsigned red = 0;
  unsigned green = 0;
  unsigned blue = 0;
  unsigned alpha = 65535;
  unsigned number = 0;

  bool gray() const { return red == green && green == blue; }
};

// What a mode makes of it, as bytes.
std::vector<std::uint8_t> in_mode(const Meaning& pixel, const ImageMode& mode) {
  const auto byte = [](unsigned value) { return static_cast<std::uint8_t>(value >> 8); };
  if (mode.color == ColorMode::kIndex) return {static_cast<std::uint8_t>(pixel.number)};
  if (mode.bytes_per_value == 1) {
    switch (mode.channels) {
      case 1: return {luma(byte(pixel.red), byte(pixel.green), byte(pixel.blue))};
      case 2: return {byte(pixel.red), byte(pixel.alpha)};
      case 3: return {byte(pixel.red), byte(pixel.green), byte(pixel.blue)};
      default: return {byte(pixel.red), byte(pixel.green), byte(pixel.blue), byte(pixel.alpha)};
    }
  }
  std::vector<unsigned> values = {pixel.red};
  if (mode.channels >= 3) values.insert(values.end(), {pixel.green, pixel.blue});
  if (mode.has_alpha()) values.push_back(pixel.alpha);
  std::vector<std::uint8_t> bytes(values.size() * 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<std::uint16_t>(values[i]);
    std::memcpy(bytes.data() + 2 * i, &value, sizeof(value));
  }
  return bytes;
}

template <typename MeaningAt>
void expect_in_modes(const Bytes& file, Size size, const std::vector<ImageMode>& modes,
                     const MeaningAt& meaning_at) {
  for (const ImageMode& mode : modes) {
    SCOPED_TRACE(::testing::Message() << "mode " << static_cast<int>(mode.color) << ", "
                                      << mode.channels << " x " << mode.bytes_per_value);
    const Result<Picture> picture = read_as(mode, file);
    ASSERT_TRUE(picture.has_value()) << picture.error().message();
    ASSERT_EQ((Size{picture->width, picture->height}), size);
    for (int y = 0; y < size.height; ++y) {
      for (int x = 0; x < size.width; ++x) {
        const std::vector<std::uint8_t> expected = in_mode(meaning_at(x, y), mode);
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), picture->at(x, y)))
            << x << "," << y;
      }
    }
    const Rect region{size.width / 3, size.height / 2, size.width / 2, size.height / 3};
    EXPECT_EQ(*read_region(*decoder_of(mode), file, region, mode.pixel_bytes()),
              picture->cut(region));
  }
}

// A value of so many bits with 16.
unsigned wide(unsigned value, int bits) { return value * 65535 / ((1U << bits) - 1); }

Meaning png_meaning(const PngRecipe& recipe, int x, int y) {
  Meaning pixel;
  pixel.number = recipe.sample(x, y, 0);
  const std::vector<unsigned>& key = recipe.transparent;
  if (recipe.color_type == 3) {
    const std::uint8_t* color = recipe.palette.data() + std::size_t{pixel.number} * 3;
    pixel.red = color[0] * 257U;
    pixel.green = color[1] * 257U;
    pixel.blue = color[2] * 257U;
    if (pixel.number < key.size()) pixel.alpha = key[pixel.number] * 257;
    return pixel;
  }
  const bool colored = recipe.color_type == 2 || recipe.color_type == 6;
  const auto sample = [&](int c) { return wide(recipe.sample(x, y, c), recipe.bit_depth); };
  pixel.red = sample(0);
  pixel.green = sample(colored ? 1 : 0);
  pixel.blue = sample(colored ? 2 : 0);
  if (recipe.color_type >= 4) pixel.alpha = sample(colored ? 3 : 1);
  if (!key.empty()) {
    bool same = true;
    for (int c = 0; c < recipe.samples(); ++c)
      same = same && recipe.sample(x, y, c) == key[static_cast<std::size_t>(c)];
    if (same) pixel.alpha = 0;
  }
  return pixel;
}

TEST(ImageMode, OfPngsOfEveryKindGivesWhatTheyMean) {
  for (const int color_type : {0, 2, 3, 4, 6}) {
    for (const int depth : {1, 2, 4, 8, 16}) {
      for (const bool key : {false, true}) {
        if ((color_type != 0 && color_type != 3 && depth < 8) || (color_type == 3 && depth == 16) ||
            (color_type >= 4 && key))
          continue;
        SCOPED_TRACE(::testing::Message()
                     << "colour type " << color_type << ", " << depth << " bits, key " << key);
        PngRecipe recipe{.color_type = color_type, .bit_depth = depth};
        if (color_type == 3) {
          for (const PaletteColor& color : some_colors(1 << depth))
            recipe.palette.insert(recipe.palette.end(), {color.red, color.green, color.blue});
          if (key) recipe.transparent = {0, 100};
        } else if (key) {
          for (int c = 0; c < recipe.samples(); ++c)
            recipe.transparent.push_back(recipe.sample(7, 5, c));
        }
        const bool gray = color_type == 0 || color_type == 4;
        const int channels = (gray ? 1 : 3) + (color_type >= 4 || key ? 1 : 0);
        std::vector<ImageMode> modes = {kRgb, kGray, kRgba};
        modes.push_back(depth == 16 ? wide_of(channels) : unchanged_bytes(channels));
        if (gray) modes.push_back(kGray16);
        if (depth <= 8 && (color_type == 0 || color_type == 3)) modes.push_back(kIndex);
        expect_in_modes(make_png(recipe), {19, 13}, modes,
                        [&](int x, int y) { return png_meaning(recipe, x, y); });
      }
    }
  }
}

TEST(ImageMode, OfBmpsGivesNumbersAndAlpha) {
  for (const int bits : {1, 4, 8}) {
    const BmpRecipe recipe{.bits = bits, .palette = some_colors(1 << bits)};
    expect_in_modes(
        make_bmp(recipe), {19, 13}, {kRgb, kGray, kRgba, kIndex, unchanged_bytes(3)},
        [&](int x, int y) {
          const std::uint32_t number = recipe.pixel(x, y);
          const PaletteColor& color = recipe.palette[number];
          return Meaning{color.red * 257U, color.green * 257U, color.blue * 257U, 65535, number};
        });
  }
  const BmpRecipe recipe{
      .bits = 32, .header_bytes = 108, .masks = {0xFF0000, 0xFF00, 0xFF, 0xFF000000}};
  expect_in_modes(make_bmp(recipe), {19, 13}, {kRgb, kGray, kRgba, unchanged_bytes(4)},
                  [&](int x, int y) {
                    const std::uint32_t pixel = recipe.pixel(x, y);
                    return Meaning{(pixel >> 16 & 255) * 257, (pixel >> 8 & 255) * 257,
                                   (pixel & 255) * 257, (pixel >> 24) * 257};
                  });
}

TEST(ImageMode, OfABmpWhosePaletteIsGrayTakesItForGray) {
  BmpRecipe recipe{.bits = 8};
  for (int i = 0; i < 256; ++i) {
    const auto gray = static_cast<std::uint8_t>(i);
    recipe.palette.push_back({gray, gray, gray});
  }
  expect_in_modes(make_bmp(recipe), {19, 13},
                  {kRgb, kGray, kRgba, kGray16, kIndex, unchanged_bytes(1)}, [&](int x, int y) {
                    const unsigned gray = recipe.pixel(x, y);
                    return Meaning{gray * 257, gray * 257, gray * 257, 65535, gray};
                  });
}

TEST(ImageMode, OfGifsGivesNumbersAndTransparency) {
  const GifRecipe recipe{.canvas = {31, 22},
                         .palette = some_colors(16),
                         .images = {{.place = {5, 3, 19, 13}, .transparent = 7}}};
  const GifImage& image = recipe.images[0];
  expect_in_modes(make_gif(recipe), {31, 22}, {kRgb, kGray, kRgba, kIndex, unchanged_bytes(4)},
                  [&](int x, int y) {
                    const bool inside = x >= 5 && x < 24 && y >= 3 && y < 16;
                    const auto number =
                        static_cast<unsigned>(inside ? image.number(x - 5, y - 3) : 7);
                    const PaletteColor& color = recipe.palette[number];
                    return Meaning{color.red * 257U, color.green * 257U, color.blue * 257U,
                                   number == 7 ? 0U : 65535U, number};
                  });
}

TEST(ImageMode, OfTiffsGivesSamplesOfAnyDepth) {
  for (const unsigned bits : {1U, 2U, 4U, 8U, 16U}) {
    for (const unsigned photometric : {0U, 1U}) {
      const TiffRecipe recipe{.photometric = photometric, .samples = 1, .bits = bits};
      std::vector<ImageMode> modes = {kRgb, kGray, kRgba, kGray16};
      modes.push_back(bits == 16 ? wide_of(1) : unchanged_bytes(1));
      if (bits <= 8) modes.push_back(kIndex);
      expect_in_modes(make_tiff_file(recipe), {37, 29}, modes, [&](int x, int y) {
        const unsigned sample = recipe.sample(x, y, 0);
        const unsigned number = photometric == 0 ? ((1U << bits) - 1) - sample : sample;
        const unsigned gray = wide(number, static_cast<int>(bits));
        return Meaning{gray, gray, gray, 65535, number};
      });
    }
  }
  for (const unsigned bits : {8U, 16U}) {
    for (const unsigned samples : {2U, 4U}) {
      const TiffRecipe recipe{.photometric = samples == 2 ? 1U : 2U,
                              .samples = samples,
                              .bits = bits,
                              .compression = 5,
                              .big_endian = true};
      const int channels = static_cast<int>(samples);
      std::vector<ImageMode> modes = {kRgb, kGray, kRgba};
      modes.push_back(bits == 16 ? wide_of(channels) : unchanged_bytes(channels));
      if (samples == 2) modes.push_back(kGray16);
      expect_in_modes(make_tiff_file(recipe), {37, 29}, modes, [&](int x, int y) {
        const auto sample = [&](unsigned c) {
          return wide(recipe.sample(x, y, c), static_cast<int>(bits));
        };
        if (samples == 2) return Meaning{sample(0), sample(0), sample(0), sample(1)};
        return Meaning{sample(0), sample(1), sample(2), sample(3)};
      });
    }
  }
}

TEST(ImageMode, OfATiffWithAPaletteGivesItsNumbers) {
  for (const unsigned bits : {1U, 2U, 4U, 8U}) {
    const TiffRecipe recipe{.photometric = 3, .samples = 1, .bits = bits, .tile = {16, 16}};
    const std::vector<std::uint32_t> map = some_color_map(bits);
    expect_in_modes(make_tiff_file(recipe), {37, 29}, {kRgb, kRgba, kIndex, unchanged_bytes(3)},
                    [&](int x, int y) {
                      const unsigned number = recipe.sample(x, y, 0);
                      const unsigned count = 1U << bits;
                      return Meaning{(map[number] >> 8) * 257, (map[count + number] >> 8) * 257,
                                     (map[2 * count + number] >> 8) * 257, 65535, number};
                    });
  }
}

TEST(ImageMode, OfATiffDividesWideColoursByTheirAlpha) {
  const TiffRecipe recipe{.samples = 4, .bits = 16, .tags = {{338, {1}}}};
  expect_in_modes(make_tiff_file(recipe), {37, 29}, {wide_of(4)}, [&](int x, int y) {
    const unsigned alpha = recipe.sample(x, y, 3);
    const auto color = [&](unsigned c) {
      return alpha == 0 ? 0 : std::min(65535U, recipe.sample(x, y, c) * 65535 / alpha);
    };
    return Meaning{color(0), color(1), color(2), alpha};
  });
}

TEST(ImageMode, OfWebpsHasAlphaWhereTheFileHas) {
  for (const bool alpha : {false, true}) {
    for (const bool lossless : {false, true}) {
      const Bytes webp = make_webp({.alpha = alpha, .lossless = lossless});
      const std::vector<std::uint8_t> bare = bare_decode_webp(webp, 4);
      std::vector<ImageMode> modes = {kRgb, kGray, kRgba};
      modes.push_back(unchanged_bytes(alpha ? 4 : 3));
      expect_in_modes(webp, {61, 43}, modes, [&](int x, int y) {
        const std::uint8_t* pixel = bare.data() + static_cast<std::size_t>(y * 61 + x) * 4;
        return Meaning{pixel[0] * 257U, pixel[1] * 257U, pixel[2] * 257U, pixel[3] * 257U};
      });
    }
  }
}

TEST(ImageMode, OfAnAnimatedWebpIsTransparentBesideItsFirstFrame) {
  const Bytes frame = webp_chunks_of(make_webp({.width = 20, .height = 14, .lossless = true}));
  for (const bool alpha : {false, true}) {
    const Bytes webp = make_webp_of(
        {61, 43}, alpha ? 0x12 : 0x02,
        {webp_chunk("ANIM", Bytes(6, std::byte{77})), webp_frame({10, 6, 20, 14}, frame)});
    const Result<Picture> picture = read_as(kRgba, webp);
    ASSERT_TRUE(picture.has_value()) << picture.error().message();
    EXPECT_EQ(picture->at(3, 3)[3], alpha ? 0 : 255);
    EXPECT_EQ(picture->at(15, 10)[3], 255);
  }
}

TEST(ImageMode, OfAvifsHasTheBitsThatLibavifMakes) {
  for (const int depth : {8, 10, 12}) {
    for (const bool alpha : {false, true}) {
      for (const int chroma : {400, 420, 444}) {
        const Bytes avif = make_avif({.depth = depth, .chroma = chroma, .alpha = alpha});
        const int bits = depth == 8 ? 8 : 16;
        const std::vector<std::uint8_t> bare = bare_decode_avif(avif, alpha ? 4 : 3, bits);
        const int channels = (chroma == 400 ? 1 : 3) + (alpha ? 1 : 0);
        const ImageMode mode = bits == 16 ? wide_of(channels) : unchanged_bytes(channels);
        const Result<Picture> picture = read_as(mode, avif);
        ASSERT_TRUE(picture.has_value()) << picture.error().message();
        const auto value = static_cast<std::size_t>(bits / 8);
        const std::size_t step = (alpha ? 4 : 3) * value;
        for (std::size_t i = 0; i < std::size_t{61} * 43; ++i) {
          const std::uint8_t* pixel = bare.data() + i * step;
          const std::uint8_t* read =
              picture->pixels.data() + i * static_cast<std::size_t>(mode.pixel_bytes());
          const std::size_t colors = (chroma == 400 ? 1 : 3) * value;
          ASSERT_EQ(std::memcmp(read, pixel, colors), 0) << i;
          if (alpha) {
            ASSERT_EQ(std::memcmp(read + colors, pixel + 3 * value, value), 0) << i;
          }
        }
        if (chroma == 400) {
          const Result<Picture> gray = read_as(kGray16, avif);
          ASSERT_TRUE(gray.has_value()) << gray.error().message();
          std::uint16_t first = 0;
          std::memcpy(&first, gray->pixels.data(), sizeof(first));
          std::uint16_t expected = bare[0];
          if (bits == 16) std::memcpy(&expected, bare.data(), sizeof(expected));
          EXPECT_EQ(first, bits == 16 ? expected : expected * 257);
        }
      }
    }
  }
}

TEST(ImageMode, OfJpegsFollowsTheirComponents) {
  using Kind = JpegRecipe::Kind;
  const Bytes gray = make_jpeg({.kind = Kind::kGray});
  const std::vector<std::uint8_t> levels = bare_decode(gray, 1);
  expect_in_modes(gray, {64, 48}, {kRgb, kGray, kRgba, kGray16, kIndex, unchanged_bytes(1)},
                  [&](int x, int y) {
                    const unsigned level = levels[static_cast<std::size_t>(y * 64 + x)];
                    return Meaning{level * 257, level * 257, level * 257, 65535, level};
                  });
  const Bytes color = make_jpeg({.luma_h = 2, .luma_v = 2});
  const std::vector<std::uint8_t> pixels = bare_decode(color, 3);
  expect_in_modes(color, {64, 48}, {kRgb, kRgba, unchanged_bytes(3)}, [&](int x, int y) {
    const std::uint8_t* pixel = pixels.data() + static_cast<std::size_t>(y * 64 + x) * 3;
    return Meaning{pixel[0] * 257U, pixel[1] * 257U, pixel[2] * 257U};
  });
  for (const Kind kind : {Kind::kCmyk, Kind::kYcck}) {
    const Bytes cmyk = make_jpeg({.kind = kind});
    const Picture rgb = *read_as(kRgb, cmyk);
    const Result<Picture> rgba = read_as(kRgba, cmyk);
    ASSERT_TRUE(rgba.has_value()) << rgba.error().message();
    for (int x = 0; x < 64; ++x) {
      EXPECT_EQ(std::memcmp(rgba->at(x, 9), rgb.at(x, 9), 3), 0);
      EXPECT_EQ(rgba->at(x, 9)[3], 255);
    }
  }
}

TEST(ImageMode, TurnsPixelsOfAnySize) {
  for (const int color_type : {0, 2, 4, 6}) {
    for (const int depth : {8, 16}) {
      const PngRecipe lying{
          .color_type = color_type, .bit_depth = depth, .exif = make_tiff(6, true)};
      PngRecipe plain = lying;
      plain.exif = {};
      const int channels = plain.samples();
      const ImageMode mode = depth == 16 ? wide_of(channels) : unchanged_bytes(channels);
      const Picture stored = *read_as(mode, make_png(plain));
      const Result<Picture> upright = read_as(mode, make_png(lying));
      ASSERT_TRUE(upright.has_value()) << upright.error().message();
      ASSERT_EQ((Size{upright->width, upright->height}), (Size{13, 19}));
      for (int y = 0; y < 13; ++y) {
        for (int x = 0; x < 19; ++x)
          ASSERT_EQ(std::memcmp(upright->at(12 - y, x), stored.at(x, y),
                                static_cast<std::size_t>(mode.pixel_bytes())),
                    0);
      }
    }
  }
}

std::string refusal(const ImageMode& mode, const Bytes& file) {
  const auto decoder = decoder_of(mode);
  const Result<Size> opened = decoder->open(file);
  EXPECT_FALSE(opened.has_value());
  if (opened) return {};
  EXPECT_EQ(opened.error().code(), Code::kInvalidArgument);
  return opened.error().message();
}

TEST(ImageModeRefusal, SaysWhatTheImageIs) {
  const Bytes rgb = make_png({});
  const Bytes rgba16 = make_png({.color_type = 6, .bit_depth = 16});
  const Bytes gray_alpha = make_png({.color_type = 4});
  const Bytes gray16 = make_png({.color_type = 0, .bit_depth = 16});
  const Bytes numbers = make_gif({.palette = some_colors(16)});
  const Bytes cmyk = make_jpeg({.kind = JpegRecipe::Kind::kCmyk});
  EXPECT_EQ(refusal(kGray16, rgb),
            "decode_image with 'mode: gray16' reads gray alone, and this image is RGB, 8 bits");
  EXPECT_EQ(
      refusal(kGray16, numbers),
      "decode_image with 'mode: gray16' reads gray alone, and this image is RGB by a palette, "
      "4 bits");
  EXPECT_EQ(refusal(kIndex, rgb),
            "decode_image with 'mode: index' reads palettes, and gray without alpha, and this "
            "image is RGB, 8 bits");
  EXPECT_THAT(refusal(kIndex, gray16), HasSubstr("and this image is gray, 16 bits"));
  EXPECT_THAT(refusal(kIndex, gray_alpha), HasSubstr("and this image is gray with alpha, 8 bits"));
  EXPECT_EQ(refusal(unchanged_bytes(3), rgba16),
            "decode_image with 'mode: unchanged' reads 3 channels of uint8, as declared, and this "
            "image has 4 channels of uint16: RGB with alpha, 16 bits");
  EXPECT_EQ(refusal(wide_of(1), rgb),
            "decode_image with 'mode: unchanged' reads 1 channel of uint16, as declared, and this "
            "image has 3 channels of uint8: RGB, 8 bits");
  EXPECT_EQ(refusal(unchanged_bytes(4), cmyk),
            "decode_image with 'mode: unchanged' reads gray and RGB; 'mode: rgb' converts others, "
            "and this image is CMYK, 8 bits");
}

TEST(ImageModeRefusal, LeavesTheDecoderReadyForTheNextImage) {
  const auto decoder = decoder_of(kIndex);
  const Bytes good = make_gif({.palette = some_colors(16)});
  const Result<Picture> before = read_whole(*decoder, good, 1);
  for (const Bytes& bad : {make_png({}), make_jpeg({}), make_webp({}), make_avif({})}) {
    EXPECT_FALSE(decoder->open(bad).has_value());
    const Result<Picture> after = read_whole(*decoder, good, 1);
    ASSERT_TRUE(before.has_value() && after.has_value());
    EXPECT_EQ(*before, *after);
  }
}

Result<std::unique_ptr<Op>> made(const std::map<std::string, ParamValue>& changes) {
  const OpInfo op = ops(nullptr).front();
  std::map<std::string, ParamValue> values;
  for (const ParamInfo& param : op.params)
    if (param.default_value) values[param.name] = *param.default_value;
  for (const auto& [name, value] : changes) values[name] = value;
  return op.make(Params(values));
}

TEST(ImageModeParams, DecideWhatAnOpGives) {
  struct Case {
    std::string mode;
    int channels;
    DType dtype;
    bool is_index;
  };
  for (const Case& expected :
       {Case{"rgb", 3, DType::kUInt8, false}, Case{"gray", 1, DType::kUInt8, false},
        Case{"rgba", 4, DType::kUInt8, false}, Case{"gray16", 1, DType::kUInt16, false},
        Case{"index", 1, DType::kUInt8, true}}) {
    const auto op = made({{"mode", expected.mode}});
    ASSERT_TRUE(op.has_value()) << expected.mode;
    const auto& decode = dynamic_cast<const DecodeImageOp&>(**op);
    EXPECT_EQ(decode.channels(), expected.channels) << expected.mode;
    EXPECT_EQ(decode.dtype(), expected.dtype) << expected.mode;
    EXPECT_EQ(decode.is_index(), expected.is_index) << expected.mode;
  }
  for (int channels = 1; channels <= 4; ++channels) {
    for (const auto& [name, dtype] :
         {std::pair{"uint8", DType::kUInt8}, {"uint16", DType::kUInt16}}) {
      const auto op = made({{"mode", std::string("unchanged")},
                            {"channels", std::int64_t{channels}},
                            {"dtype", std::string(name)}});
      ASSERT_TRUE(op.has_value());
      const auto& decode = dynamic_cast<const DecodeImageOp&>(**op);
      EXPECT_EQ(decode.channels(), channels);
      EXPECT_EQ(decode.dtype(), dtype);
      EXPECT_FALSE(decode.is_index());
    }
  }
}

TEST(ImageModeParams, ThatDoNotFitAreRefused) {
  const std::string alone =
      "decode_image: 'mode: unchanged' needs channels and dtype, which all "
      "images must have: for example 'channels: 3, dtype: uint8'";
  const ParamValue unchanged = std::string("unchanged");
  EXPECT_EQ(made({{"mode", unchanged}}).error().message(), alone);
  EXPECT_EQ(made({{"mode", unchanged}, {"channels", std::int64_t{3}}}).error().message(), alone);
  EXPECT_EQ(made({{"mode", unchanged}, {"dtype", std::string("uint8")}}).error().message(), alone);
  EXPECT_EQ(
      made({{"channels", std::int64_t{3}}}).error().message(),
      "decode_image: channels and dtype say what images are that 'mode: unchanged' leaves so, "
      "and mode is rgb; remove them, or change the mode");
  EXPECT_THAT(
      made({{"mode", std::string("gray16")}, {"dtype", std::string("uint16")}}).error().message(),
      HasSubstr("and mode is gray16; remove them"));
}

}  // namespace
}  // namespace spdld::media::test
