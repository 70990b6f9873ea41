// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "op/source_spec.h"
#include "spec/yaml_node.h"

namespace spdld::spec {

// The source that `value`, which check() made of `node`, describes. Paths in `value` become
// absolute on the way, so that the canonical text has them.
Result<SourceSpec> read_source(const Node& node, nlohmann::json& value);

// A function's file is looked for beside the text that names it: `call`, if it is there, gets the
// whole path.
Status complete_call(const Node& node, nlohmann::json& params);

// The text at `key`, which check() has seen there.
inline std::string text_of(const nlohmann::json& map, const char* key) {
  return map.at(key).get<std::string>();
}

}  // namespace spdld::spec
