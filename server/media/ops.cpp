// SPDX-License-Identifier: Apache-2.0
#include "media/ops.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "media/audio/decode_audio.h"
#include "media/audio/resample_op.h"
#include "media/decode_image.h"
#include "media/record/decode_json.h"
#include "media/record/decode_npy.h"
#include "media/video/decode_video.h"

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
  const bool of_numbers = name == "index" && !params.has("channels");
  if (of_numbers && params.has("dtype")) {
    SPDLD_ASSIGN(const DType dtype, parse_dtype(params.get<std::string>("dtype")));
    return ImageMode::index(dtype);
  }
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

// N of "1/N".
Result<std::uint32_t> one_in(const std::string& text) {
  constexpr std::string_view kHead = "1/";
  std::uint32_t count = 0;
  const char* const end = text.data() + text.size();
  const bool has_head = std::string_view(text).substr(0, kHead.size()) == kHead;
  const auto [rest, failed] =
      std::from_chars(text.data() + (has_head ? kHead.size() : text.size()), end, count);
  if (failed == std::errc() && rest == end && count > 0) return count;
  return error(Code::kInvalidArgument,
               "decode_image: verify is '" + text +
                   "'; write 1/N, such as 1/1000, with an N of at most 4294967295");
}

Result<std::unique_ptr<Op>> make_decode_image(const Params& params,
                                              const std::shared_ptr<SeekIndexes>& indexes) {
  ImageLimits limits;
  limits.max_pixels = params.get<std::int64_t>("max_pixels");
  limits.max_scans = static_cast<int>(params.get<std::int64_t>("max_scans"));
  SPDLD_ASSIGN(const ImageMode mode, mode_of(params));
  JpegOptions jpeg{.indexes = indexes};
  if (params.has("verify")) {
    SPDLD_ASSIGN(jpeg.verify_one_in, one_in(params.get<std::string>("verify")));
  }
  return std::make_unique<DecodeImage>(mode, params.get<bool>("exif"), limits, std::move(jpeg),
                                       params.get<std::string>("field"));
}

OpInfo decode_image(const std::shared_ptr<SeekIndexes>& indexes) {
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
                   "bits, else uint8; with mode: index, uint16 for masks whose numbers have up to "
                   "16 bits",
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
            .max = 100000},
           {.name = "verify",
            .type = ParamType::kString,
            .doc =
                "1/N: one JPEG in N that our own decoder reads, drawn anew each time, is read by "
                "libjpeg-turbo, too, whose pixels are taken; `spdlctl status` counts them and "
                "those that differ",
            .nullable = true}},
      .make = [indexes](const Params& params) { return make_decode_image(params, indexes); },
  };
}

}  // namespace

std::vector<OpInfo> ops(const std::shared_ptr<SeekIndexes>& indexes) {
  return {decode_image(indexes), decode_audio_op(), resample_op(),
          decode_json_op(),      decode_npy_op(),   decode_video_op()};
}

}  // namespace spdld::media
