// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "op/image.h"
#include "op/op.h"
#include "source/item/source.h"

namespace spdld::engine {

// Sizes of a field's pictures, as far as they are known before its rows are made.
struct PictureSizes {
  std::optional<Size> one = std::nullopt;  // of all that were looked at
  std::string differing = {};              // two of them that differ: "a.jpg has 32x32 pixels, …"
};

// Of the images that `op` decodes of a part of the source, as some items show them. Blocks for some
// seconds at most. Those that are absent, cannot be decoded or come late tell nothing.
PictureSizes look_at_images(source::Source& source, std::size_t part, const DecodeImageOp& op);

// The same for a field, as compile() asks.
using SizesOfImages = std::function<PictureSizes(const std::string& field, std::size_t part,
                                                 const DecodeImageOp& op)>;

}  // namespace spdld::engine
