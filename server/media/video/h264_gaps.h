// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace spdld::media {

// Whether the sequence parameters of an H.264 stream allow that numbers of pictures that others
// refer to are left out; `extradata` is that of mp4 and Matroska files. Nothing: it does not tell.
std::optional<bool> h264_allows_gaps(std::span<const std::byte> extradata);

}  // namespace spdld::media
