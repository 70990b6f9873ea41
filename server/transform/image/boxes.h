// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "op/geometry.h"
#include "op/value.h"

namespace spdld::transform {

// What the four numbers of a box are, by torchvision's names.
enum class BoxFormat {
  kXyxy,    // left, top, right, bottom
  kXywh,    // left, top, width, height
  kCxcywh,  // the center, width, height
};

// The edges of a box, in pixels from the image's left and top.
struct Box {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
};

// Reads the list of numbers, four a box, that the field `name` holds of an image of this size into
// `boxes`. `normalized`: they are shares of the image's width and height. An error is the data's
// and names the box.
Status read_boxes(const Value& value, BoxFormat format, bool normalized, Size image,
                  const std::string& name, std::vector<Box>& boxes);

// Moves boxes of an image of size `from` as `step`, which one op made for it, moves the pixels, and
// clips them where it crops: as torchvision.transforms.v2 moves its bounding boxes.
void move_boxes(const Geometry& step, Size from, std::span<Box> boxes);

// Clips boxes to an image of this size; one that lies beside it is left without area, at the edge.
void clip_boxes(Size image, std::span<Box> boxes);

}  // namespace spdld::transform
