// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"

namespace spdld::media {

// What the marker structure of a whole JPEG file tells without decoding it.
struct JpegMarkers {
  int scans = 0;
  std::span<const std::byte> exif;  // the TIFF block of the first Exif segment, or empty
};

// The TIFF block that an APP1 segment of this body holds; empty if it is none of Exif.
std::span<const std::byte> exif_of_app1(std::span<const std::byte> body);

// Walks from SOI to EOI, segment by segment; entropy-coded data is searched for markers only, so
// that this costs little beside a decode. It is how a truncated file is known by every reader of
// it, even by one that needs the top rows alone: whether an item is good must not depend on the
// crop that was drawn. kDataLoss when the frame, a scan or the end is missing.
Result<JpegMarkers> survey_jpeg(std::span<const std::byte> bytes);

// Whether each component that a frame header in `bytes` names has a scan, which may hold one or
// several images one behind the other, of a video without their ends, too.
bool has_all_components(std::span<const std::byte> bytes);

}  // namespace spdld::media
