// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "op/registry.h"

namespace spdld::transform {

// The ops on decoded samples. Names, parameters and defaults are those of
// torchvision.transforms.v2, or of torchaudio, where these have the op.
std::vector<OpInfo> ops();

}  // namespace spdld::transform
