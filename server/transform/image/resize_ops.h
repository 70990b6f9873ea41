// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/registry.h"

namespace spdld::transform {

OpInfo resize_op();

}  // namespace spdld::transform
