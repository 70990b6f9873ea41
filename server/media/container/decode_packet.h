// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "media/container/ffmpeg.h"

namespace spdld::media {

// Decodes one packet by itself, to see what such packets become. Null: it does not decode, has
// more pixels than `max_pixels`, or its codec is none that is decoded. An error is kNoMemory.
Result<AvPtr<AVFrame>> decode_packet(const AVCodecParameters& codec,
                                     std::span<const std::byte> packet,
                                     std::int64_t max_pixels = INT32_MAX);

}  // namespace spdld::media
