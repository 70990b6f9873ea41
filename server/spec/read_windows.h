// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "op/clips_spec.h"
#include "spec/yaml_node.h"

namespace spdld::spec {

// `source.windows`; `json` came out of check(). An error is that of keys that contradict each
// other.
Result<ClipsSpec> read_windows(const Node& node, const nlohmann::json& json);

}  // namespace spdld::spec
