// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "op/registry.h"

namespace spdld::media {

// The ops that turn encoded bytes into samples.
std::vector<OpInfo> ops();

}  // namespace spdld::media
