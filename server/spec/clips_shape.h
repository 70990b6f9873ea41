// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spec/shape.h"

namespace spdld::spec {

// What stands below `source.clips` and `source.windows`.
Shape clips_shape();
Shape windows_shape();

}  // namespace spdld::spec
