// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/media/format/avif_maker.h"

#include <avif/avif.h>

#include <memory>

#include "base/check.h"
#include "base/rng.h"

namespace spdld::media::test {
namespace {

using Bytes = std::vector<std::byte>;
using Image = std::unique_ptr<avifImage, void (*)(avifImage*)>;

avifPixelFormat format_of(int chroma) {
  switch (chroma) {
    case 400: return AVIF_PIXEL_FORMAT_YUV400;
    case 420: return AVIF_PIXEL_FORMAT_YUV420;
    case 422: return AVIF_PIXEL_FORMAT_YUV422;
    default: return AVIF_PIXEL_FORMAT_YUV444;
  }
}

Image make_image(const AvifRecipe& recipe, int number) {
  Image image(avifImageCreate(static_cast<std::uint32_t>(recipe.width),
                              static_cast<std::uint32_t>(recipe.height),
                              static_cast<std::uint32_t>(recipe.depth), format_of(recipe.chroma)),
              avifImageDestroy);
  image->yuvRange = recipe.full_range ? AVIF_RANGE_FULL : AVIF_RANGE_LIMITED;
  if (!recipe.exif.empty()) {
    avifImageSetMetadataExif(image.get(), reinterpret_cast<const std::uint8_t*>(recipe.exif.data()),
                             recipe.exif.size());
    image->transformFlags = 0;  // which libavif took from the Exif
  }
  if (recipe.irot) {
    image->transformFlags |= AVIF_TRANSFORM_IROT;
    image->irot.angle = static_cast<std::uint8_t>(*recipe.irot);
  }
  if (recipe.imir) {
    image->transformFlags |= AVIF_TRANSFORM_IMIR;
    image->imir.mode = static_cast<std::uint8_t>(*recipe.imir);
  }

  avifRGBImage rgb;
  avifRGBImageSetDefaults(&rgb, image.get());
  rgb.depth = 8;
  rgb.format = recipe.alpha ? AVIF_RGB_FORMAT_RGBA : AVIF_RGB_FORMAT_RGB;
  const int channels = recipe.alpha ? 4 : 3;
  std::vector<std::uint8_t> pixels;
  KeyedRng rng(mix64(recipe.seed, static_cast<std::uint64_t>(number)));
  for (int y = 0; y < recipe.height; ++y) {
    for (int x = 0; x < recipe.width; ++x) {
      for (int c = 0; c < channels; ++c) {
        pixels.push_back(static_cast<std::uint8_t>((x * (c + 2) + y * 3 + c * 70) % 200 +
                                                   static_cast<int>(rng.below(56))));
      }
    }
  }
  rgb.pixels = pixels.data();
  rgb.rowBytes = static_cast<std::uint32_t>(recipe.width * channels);
  SPDLD_CHECK(avifImageRGBToYUV(image.get(), &rgb) == AVIF_RESULT_OK);
  return image;
}

}  // namespace

Bytes make_avif(const AvifRecipe& recipe) {
  const std::unique_ptr<avifEncoder, void (*)(avifEncoder*)> encoder(avifEncoderCreate(),
                                                                     avifEncoderDestroy);
  encoder->speed = AVIF_SPEED_FASTEST;
  encoder->minQuantizer = encoder->maxQuantizer = 20;
  std::vector<Image> images;
  for (int i = 0; i < recipe.columns * recipe.images; ++i) images.push_back(make_image(recipe, i));
  if (recipe.columns > 1) {
    std::vector<const avifImage*> cells;
    for (const Image& image : images) cells.push_back(image.get());
    SPDLD_CHECK(avifEncoderAddImageGrid(encoder.get(), static_cast<std::uint32_t>(recipe.columns),
                                        1, cells.data(),
                                        AVIF_ADD_IMAGE_FLAG_SINGLE) == AVIF_RESULT_OK);
  } else {
    for (const Image& image : images) {
      SPDLD_CHECK(avifEncoderAddImage(
                      encoder.get(), image.get(), 1,
                      recipe.images == 1 ? AVIF_ADD_IMAGE_FLAG_SINGLE : AVIF_ADD_IMAGE_FLAG_NONE) ==
                  AVIF_RESULT_OK);
    }
  }
  avifRWData out = AVIF_DATA_EMPTY;
  SPDLD_CHECK(avifEncoderFinish(encoder.get(), &out) == AVIF_RESULT_OK);
  const auto* begin = reinterpret_cast<const std::byte*>(out.data);
  Bytes avif(begin, begin + out.size);
  avifRWDataFree(&out);
  return avif;
}

std::vector<std::uint8_t> bare_decode_avif(const Bytes& avif, int channels, int bits) {
  const std::unique_ptr<avifDecoder, void (*)(avifDecoder*)> decoder(avifDecoderCreate(),
                                                                     avifDecoderDestroy);
  const Image image(avifImageCreateEmpty(), avifImageDestroy);
  SPDLD_CHECK(avifDecoderReadMemory(decoder.get(), image.get(),
                                    reinterpret_cast<const std::uint8_t*>(avif.data()),
                                    avif.size()) == AVIF_RESULT_OK);
  avifRGBImage rgb;
  avifRGBImageSetDefaults(&rgb, image.get());
  rgb.depth = static_cast<std::uint32_t>(bits);
  rgb.format = channels == 4 ? AVIF_RGB_FORMAT_RGBA : AVIF_RGB_FORMAT_RGB;
  rgb.rowBytes = rgb.width * static_cast<std::uint32_t>(channels * bits / 8);
  std::vector<std::uint8_t> pixels(std::size_t{rgb.rowBytes} * rgb.height);
  rgb.pixels = pixels.data();
  SPDLD_CHECK(avifImageYUVToRGB(image.get(), &rgb) == AVIF_RESULT_OK);
  return pixels;
}

}  // namespace spdld::media::test
