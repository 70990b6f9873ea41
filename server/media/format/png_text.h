// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "media/format/png_chunks.h"

namespace spdld::media {

// What a tEXt, zTXt or iTXt chunk says, decompressed. Nothing for other chunks, and for what is
// broken or has more than 1 MiB, which is Pillow's limit too. Throws bad_alloc, as any string may.
std::optional<std::string> png_text(const PngChunk& chunk);

// Which way an image is to be turned, 1 to 8, as Pillow's exif_transpose finds it: by eXIf, else by
// the text "Raw profile type exif" that ImageMagick writes, and where these have no orientation by
// the XMP text. Whatever is wrong with them makes it 1, upright.
int png_orientation(const PngLayout& layout);

}  // namespace spdld::media
