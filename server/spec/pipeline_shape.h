// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "op/registry.h"
#include "spec/shape.h"

namespace spdld::spec {

// The keys of a pipeline. Without `vars` and `extends`, which are gone by the time that a text is
// held against it: surface_keys() has them.
Shape pipeline_shape(const Registry& registry);

// What only the text as its author writes it may have.
std::vector<Key> surface_keys();

}  // namespace spdld::spec
