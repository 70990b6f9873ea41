// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "op/source_spec.h"
#include "spec/yaml_node.h"

namespace spdld::spec {

// The source that `value`, which check() made of `node`, describes. Paths in `value` become
// absolute on the way, so that the canonical text has them.
Result<SourceSpec> read_source(const Node& node, nlohmann::json& value);

}  // namespace spdld::spec
