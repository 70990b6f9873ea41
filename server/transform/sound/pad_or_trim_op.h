// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/registry.h"

namespace spdld::transform {

OpInfo pad_or_trim_op();

}  // namespace spdld::transform
