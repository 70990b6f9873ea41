// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/registry.h"

namespace spdld::transform {

OpInfo speed_perturbation_op();

}  // namespace spdld::transform
