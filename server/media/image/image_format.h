// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace spdld::media {

enum class ImageFormat { kJpeg, kPng, kWebp, kGif, kBmp, kTiff, kAvif };
inline constexpr std::size_t kImageFormats = 7;

// By the first bytes alone, never by a name. A file that ends inside a signature counts as that
// format: its decoder then says that it is truncated. Anything else is kInvalidArgument and names
// what it looks like; an empty file is kDataLoss.
Result<ImageFormat> sniff_image(std::span<const std::byte> bytes);

}  // namespace spdld::media
