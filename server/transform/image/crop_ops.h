// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/registry.h"

namespace spdld::transform {

OpInfo center_crop_op();
OpInfo random_crop_op();
OpInfo random_resized_crop_op();

}  // namespace spdld::transform
