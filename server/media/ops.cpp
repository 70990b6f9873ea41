// SPDX-License-Identifier: Apache-2.0
#include "media/ops.h"

#include <cstdint>
#include <memory>
#include <string>

#include "media/decode_image.h"

namespace spdld::media {
namespace {

// The largest image that two formats together can name: JPEG's sides end at 65500 in libjpeg.
constexpr double kMostPixels = 65500.0 * 65500.0;

Result<std::unique_ptr<Op>> make_decode_image(const Params& params) {
  ImageLimits limits;
  limits.max_pixels = params.get<std::int64_t>("max_pixels");
  limits.max_scans = static_cast<int>(params.get<std::int64_t>("max_scans"));
  const ColorMode mode =
      params.get<std::string>("mode") == "gray" ? ColorMode::kGray : ColorMode::kRgb;
  return std::make_unique<DecodeImage>(ImageMode::of(mode), params.get<bool>("exif"), limits,
                                       params.get<std::string>("field"));
}

OpInfo decode_image() {
  const ImageLimits defaults;
  return {
      .name = "decode_image",
      .doc = "Decodes JPEG and PNG to 8-bit pixels; of a crop, only what it needs.",
      .params =
          {{.name = "field",
            .type = ParamType::kString,
            .doc = "the field whose bytes are images",
            .default_value = std::string("image")},
           {.name = "mode",
            .type = ParamType::kString,
            .doc = "rgb or gray; alpha is dropped, gray of a colour JPEG is its luma",
            .default_value = std::string("rgb"),
            .choices = {"rgb", "gray"}},
           {.name = "exif",
            .type = ParamType::kBool,
            .doc = "turn the image upright as its EXIF orientation says",
            .default_value = true},
           {.name = "max_pixels",
            .type = ParamType::kInt,
            .doc = "an image of more pixels is an error of the item",
            .default_value = defaults.max_pixels,
            .min = 1,
            .max = kMostPixels},
           {.name = "max_scans",
            .type = ParamType::kInt,
            .doc = "a JPEG of more scans is an error of the item: each costs a pass over the image",
            .default_value = std::int64_t{defaults.max_scans},
            .min = 1,
            .max = 100000}},
      .make = make_decode_image,
  };
}

}  // namespace

std::vector<OpInfo> ops() { return {decode_image()}; }

}  // namespace spdld::media
