// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "media/video/video_decoder.h"
#include "op/registry.h"
#include "op/video.h"

namespace spdld::media {

// decode_video: clips of the codecs in codecs.h. Immutable and shared by all workers; each worker's
// decoder is its own.
class DecodeVideo final : public DecodeVideoOp {
 public:
  struct Options {
    int channels = 3;
    VideoLayout layout = VideoLayout::kTchw;
    VideoLimits limits;
    std::string pts_field;
    std::string duration_field;
  };

  DecodeVideo(std::string field, Options options)
      : DecodeVideoOp(std::move(field)), options_(std::move(options)) {}

  std::unique_ptr<VideoDecoder> make_decoder() const override {
    return std::make_unique<ClipDecoder>(options_.channels, options_.limits);
  }
  int channels() const override { return options_.channels; }
  VideoLayout layout() const override { return options_.layout; }
  std::int64_t max_pixels() const override { return options_.limits.max_pixels; }
  std::int64_t max_frames() const override { return options_.limits.max_frames; }
  const std::string& pts_field() const override { return options_.pts_field; }
  const std::string& duration_field() const override { return options_.duration_field; }

 private:
  Options options_;
};

OpInfo decode_video_op();

}  // namespace spdld::media
