// SPDX-License-Identifier: Apache-2.0
#include "transform/ops.h"

#include "transform/box_ops.h"
#include "transform/crop_ops.h"
#include "transform/flip_ops.h"
#include "transform/pixel_ops.h"
#include "transform/resize_ops.h"

namespace spdld::transform {

std::vector<OpInfo> ops() {
  return {bounding_boxes_op(),      resize_op(),
          center_crop_op(),         random_crop_op(),
          random_resized_crop_op(), random_horizontal_flip_op(),
          normalize_op(),           to_dtype_op()};
}

}  // namespace spdld::transform
