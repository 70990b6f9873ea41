// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "media/container/ffmpeg.h"
#include "media/video/yuv_rows.h"

namespace spdld::media {

// A decoded frame as YuvRows takes it, for as long as the frame lives. kInvalidArgument: pixels of
// this format are not read.
Result<VideoPicture> picture_of(const AVFrame& frame);

}  // namespace spdld::media
