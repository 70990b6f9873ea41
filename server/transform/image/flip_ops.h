// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/registry.h"

namespace spdld::transform {

OpInfo random_horizontal_flip_op();

}  // namespace spdld::transform
