// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "spec/shape.h"

namespace spdld::spec {

// The keys of spdld.yaml.
Shape daemon_shape();

}  // namespace spdld::spec
