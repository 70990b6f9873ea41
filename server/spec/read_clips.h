// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "op/clips_spec.h"
#include "spec/yaml_node.h"

namespace spdld::spec {

// `source.clips` or `source.windows`, which `name` says; `json` came out of check(). An error is
// that of keys that contradict each other.
Result<ClipsSpec> read_clips(const Node& node, const nlohmann::json& json, const std::string& name);

}  // namespace spdld::spec
