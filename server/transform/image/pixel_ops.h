// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/registry.h"

namespace spdld::transform {

OpInfo normalize_op();
OpInfo to_dtype_op();

}  // namespace spdld::transform
