// SPDX-License-Identifier: Apache-2.0
#include "media/video/decode_video.h"

#include <cstdint>

namespace spdld::media {
namespace {

Result<std::unique_ptr<Op>> make_decode_video(const Params& params) {
  DecodeVideo::Options options;
  options.channels = params.get<std::string>("mode") == "gray" ? 1 : 3;
  const auto& layout = params.get<std::string>("layout");
  options.layout = layout == "cthw"   ? VideoLayout::kCthw
                   : layout == "thwc" ? VideoLayout::kThwc
                                      : VideoLayout::kTchw;
  options.limits.max_pixels = params.get<std::int64_t>("max_pixels");
  options.limits.max_frames = params.get<std::int64_t>("max_frames");
  if (params.has("pts")) options.pts_field = params.get<std::string>("pts");
  if (params.has("duration")) options.duration_field = params.get<std::string>("duration");
  return std::make_unique<DecodeVideo>(params.get<std::string>("field"), std::move(options));
}

}  // namespace

OpInfo decode_video_op() {
  const VideoLimits defaults;
  return {
      .name = "decode_video",
      .doc =
          "Decodes the frames of clips, which a source gives with 'clips:', by their exact times; "
          "no more pictures than they need.",
      .params =
          {{.name = "field",
            .type = ParamType::kString,
            .doc = "the field whose bytes are clips of video",
            .default_value = std::string("video")},
           {.name = "mode",
            .type = ParamType::kString,
            .doc = "rgb; gray, the luma of a picture",
            .default_value = std::string("rgb"),
            .choices = {"rgb", "gray"}},
           {.name = "layout",
            .type = ParamType::kString,
            .doc = "how frames lie in a row: t is the frame, c the channel; repeated clips of one "
                   "item stand before that",
            .default_value = std::string("tchw"),
            .choices = {"tchw", "cthw", "thwc"}},
           {.name = "max_pixels",
            .type = ParamType::kInt,
            .doc = "a video whose pictures have more pixels is an error of the item",
            .default_value = defaults.max_pixels,
            .min = 1,
            .max = 65535.0 * 65535.0},
           {.name = "max_frames",
            .type = ParamType::kInt,
            .doc = "a clip for which more pictures must be decoded, from the key frame before it "
                   "on, is an error of the item",
            .default_value = defaults.max_frames,
            .min = 1,
            .max = 1e9},
           {.name = "pts",
            .type = ParamType::kString,
            .doc = "a new field with the time of each frame in seconds, as the file has it",
            .new_field = true,
            .nullable = true},
           {.name = "duration",
            .type = ParamType::kString,
            .doc = "a new field that tells for how many seconds each frame is shown; 0 where the "
                   "file does not tell",
            .new_field = true,
            .nullable = true}},
      .make = make_decode_video,
  };
}

}  // namespace spdld::media
