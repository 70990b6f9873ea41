// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "spec/yaml_node.h"

namespace spdld::spec {

// Puts `assignment`, "arena.budget=1GiB", into the map `root`: the key is dotted, the value YAML.
// What it puts there calls itself "--set arena.budget" in messages; its relative paths start from
// `directory`.
Status apply_override(Node& root, const std::string& assignment, const std::string& directory);

}  // namespace spdld::spec
