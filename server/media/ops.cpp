// SPDX-License-Identifier: Apache-2.0
#include "media/ops.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "media/decode_audio.h"
#include "media/decode_image.h"
#include "media/decode_json.h"
#include "media/decode_npy.h"
#include "media/decode_video.h"
#include "media/resample_op.h"

namespace spdld::media {
namespace {

// The largest image that is worth naming: JPEG's sides end at 65500 in libjpeg.
constexpr double kMostPixels = 65500.0 * 65500.0;

Result<ImageMode> mode_of(const Params& params) {
  constexpr std::array<std::pair<std::string_view, ColorMode>, 5> kModes{{
      {"rgb", ColorMode::kRgb},
      {"gray", ColorMode::kGray},
      {"rgba", ColorMode::kRgba},
      {"gray16", ColorMode::kGray16},
      {"index", ColorMode::kIndex},
  }};
  const auto& name = params.get<std::string>("mode");
  const bool declared = params.has("channels") || params.has("dtype");
  for (const auto& [known, color] : kModes) {
    if (known != name) continue;
    if (declared)
      return error(Code::kInvalidArgument,
                   "decode_image: channels and dtype say what images are that 'mode: unchanged' "
                   "leaves so, and mode is " +
                       name + "; remove them, or change the mode");
    return ImageMode::of(color);
  }
  if (!params.has("channels") || !params.has("dtype"))
    return error(Code::kInvalidArgument,
                 "decode_image: 'mode: unchanged' needs channels and dtype, which all images must "
                 "have: for example 'channels: 3, dtype: uint8'");
  SPDLD_ASSIGN(const DType dtype, parse_dtype(params.get<std::string>("dtype")));
  return ImageMode::unchanged(static_cast<int>(params.get<std::int64_t>("channels")), dtype);
}

Result<std::unique_ptr<Op>> make_decode_image(const Params& params) {
  ImageLimits limits;
  limits.max_pixels = params.get<std::int64_t>("max_pixels");
  limits.max_scans = static_cast<int>(params.get<std::int64_t>("max_scans"));
  SPDLD_ASSIGN(const ImageMode mode, mode_of(params));
  return std::make_unique<DecodeImage>(mode, params.get<bool>("exif"), limits,
                                       params.get<std::string>("field"));
}

OpInfo decode_image() {
  const ImageLimits defaults;
  return {
      .name = "decode_image",
      .doc =
          "Decodes JPEG, PNG, WebP, GIF, BMP, TIFF and AVIF, told apart by their content; of a "
          "crop, only what it needs where the format allows that.",
      .params =
          {{.name = "field",
            .type = ParamType::kString,
            .doc = "the field whose bytes are images",
            .default_value = std::string("image")},
           {.name = "mode",
            .type = ParamType::kString,
            .doc =
                "rgb; gray, of a colour its luma; rgba; gray16, of gray images of up to 16 bits; "
                "index, the numbers of a palette or gray as stored, for masks; unchanged, with "
                "channels and dtype; where a mode has no alpha it is dropped",
            .default_value = std::string("rgb"),
            .choices = {"rgb", "gray", "rgba", "gray16", "index", "unchanged"}},
           {.name = "channels",
            .type = ParamType::kInt,
            .doc = "with mode: unchanged, what all images have: 1 gray, 2 and alpha, 3 RGB, 4 and "
                   "alpha",
            .min = 1,
            .max = 4,
            .nullable = true},
           {.name = "dtype",
            .type = ParamType::kString,
            .doc = "with mode: unchanged, what all images have: uint16 for samples of more than 8 "
                   "bits, else uint8",
            .choices = {"uint8", "uint16"},
            .nullable = true},
           {.name = "exif",
            .type = ParamType::kBool,
            .doc =
                "turn the image upright as its EXIF orientation says, or an AVIF's irot and imir",
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

std::vector<OpInfo> ops() {
  return {decode_image(),   decode_audio_op(), resample_op(),
          decode_json_op(), decode_npy_op(),   decode_video_op()};
}

}  // namespace spdld::media
