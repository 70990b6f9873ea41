// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/registry.h"

namespace spdld::transform {

OpInfo add_noise_op();

}  // namespace spdld::transform
