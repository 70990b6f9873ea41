// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <span>
#include <string>

#include "media/format/avif_decoder.h"
#include "media/format/bmp_decoder.h"
#include "media/format/gif_decoder.h"
#include "media/format/png_decoder.h"
#include "media/format/tiff_decoder.h"
#include "media/format/webp_decoder.h"
#include "media/jpeg/coefficient_decoder.h"
#include "media/jpeg/jpeg_decoder.h"
#include "tests/conformance/raster_decoder_suite.h"
#include "tests/unit/media/format/avif_maker.h"
#include "tests/unit/media/format/bmp_maker.h"
#include "tests/unit/media/format/gif_maker.h"
#include "tests/unit/media/format/png_maker.h"
#include "tests/unit/media/format/tiff_maker.h"
#include "tests/unit/media/format/webp_maker.h"
#include "tests/unit/media/jpeg/jpeg_maker.h"

namespace spdld::media::test {
namespace {

template <typename Decoder>
std::unique_ptr<RasterDecoder> plain(const ImageMode& mode, const ImageLimits& limits) {
  return std::make_unique<Decoder>(mode, limits);
}
template <typename Decoder>
std::unique_ptr<RasterDecoder> with_own_indexes(const ImageMode& mode, const ImageLimits& limits) {
  return std::make_unique<Decoder>(
      mode, limits, JpegOptions{.indexes = std::make_shared<SeekIndexes>(std::uint64_t{1} << 20)});
}
std::unique_ptr<RasterDecoder> by_libjpeg(const ImageMode& mode, const ImageLimits& limits) {
  return std::make_unique<JpegDecoder>(mode, limits, JpegOptions{});
}

Bytes jpeg_file(Size size, std::uint64_t seed) {
  return make_jpeg(
      {.width = size.width, .height = size.height, .luma_h = 2, .luma_v = 2, .seed = seed});
}

// What JpegDecoder makes of a baseline file, for CoefficientDecoder.
Bytes recoded_jpeg(Size size, std::uint64_t seed) {
  const Bytes jpeg = jpeg_file(size, seed);
  const auto decoder = with_own_indexes<JpegDecoder>(ImageMode::of(ColorMode::kRgb), {});
  EXPECT_TRUE(decoder->open(jpeg).has_value());
  const std::span<const std::byte> recoded = decoder->recode();
  return Bytes(recoded.begin(), recoded.end());
}

const RasterKind kKinds[] = {
    {"Jpeg", with_own_indexes<JpegDecoder>, jpeg_file},
    {"JpegByLibjpeg", by_libjpeg, jpeg_file},
    {"ProgressiveJpeg", with_own_indexes<JpegDecoder>,
     [](Size size, std::uint64_t seed) {
       return make_jpeg({.width = size.width,
                         .height = size.height,
                         .luma_h = 2,
                         .progressive = true,
                         .seed = seed});
     }},
    {"RecodedJpeg", with_own_indexes<CoefficientDecoder>, recoded_jpeg},
    {"Png", plain<PngDecoder>,
     [](Size size, std::uint64_t seed) {
       return make_png({.width = size.width, .height = size.height, .seed = seed});
     }},
    {"InterlacedPng", plain<PngDecoder>,
     [](Size size, std::uint64_t seed) {
       return make_png(
           {.width = size.width, .height = size.height, .interlaced = true, .seed = seed});
     }},
    {"Gif", plain<GifDecoder>,
     [](Size size, std::uint64_t seed) {
       return make_gif({.canvas = size,
                        .palette = some_colors(16),
                        .images = {{.place = {0, 0, size.width, size.height}, .seed = seed}}});
     }},
    {"Bmp", plain<BmpDecoder>,
     [](Size size, std::uint64_t seed) {
       return make_bmp({.width = size.width, .height = size.height, .seed = seed});
     },
     1},
    {"PaletteBmp", plain<BmpDecoder>,
     [](Size size, std::uint64_t seed) {
       return make_bmp({.width = size.width,
                        .height = size.height,
                        .bits = 4,
                        .palette = some_colors(16),
                        .seed = seed});
     },
     1},
    {"Tiff", plain<TiffDecoder>,
     [](Size size, std::uint64_t seed) {
       return make_tiff_file(
           {.width = size.width, .height = size.height, .rows_per_strip = 7, .seed = seed});
     }},
    {"TiledTiff", plain<TiffDecoder>,
     [](Size size, std::uint64_t seed) {
       return make_tiff_file({.width = size.width,
                              .height = size.height,
                              .compression = 8,
                              .tile = {16, 16},
                              .seed = seed});
     }},
    {"Webp", plain<WebpDecoder>,
     [](Size size, std::uint64_t seed) {
       return make_webp({.width = size.width, .height = size.height, .seed = seed});
     }},
    {"LosslessWebp", plain<WebpDecoder>,
     [](Size size, std::uint64_t seed) {
       return make_webp(
           {.width = size.width, .height = size.height, .lossless = true, .seed = seed});
     }},
    {"Avif", plain<AvifDecoder>,
     [](Size size, std::uint64_t seed) {
       return make_avif({.width = size.width, .height = size.height, .chroma = 420, .seed = seed});
     }},
};

INSTANTIATE_TEST_SUITE_P(Kinds, RasterDecoderSuite, ::testing::ValuesIn(kKinds),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace spdld::media::test
