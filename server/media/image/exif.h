// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace spdld::media {

// The orientation, 1 to 8, that a TIFF block (the body of a JPEG's Exif segment or of a PNG's eXIf
// chunk) names in its first directory. Whatever is wrong with the block makes it 1, upright: a
// broken tag must not cost the image.
int exif_orientation(std::span<const std::byte> tiff);
// The same; nothing where it names none.
std::optional<int> find_exif_orientation(std::span<const std::byte> tiff);

}  // namespace spdld::media
