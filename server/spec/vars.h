// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "spec/parse.h"
#include "spec/yaml_node.h"

namespace spdld::spec {

// All texts that came out of variables together may be so long.
inline constexpr std::size_t kMaxExpandedBytes = 4 << 20;
// So many variables may refer to one another in a chain.
inline constexpr std::size_t kMaxVarDepth = 32;

// Replaces ${name} and ${env:NAME} in every scalar below `root`, a map, by what its `vars` (which
// are taken out), the overrides and the environment say; $$ becomes $. A scalar that is a variable
// and nothing else takes on its type, so that a number stays one. Variables may refer to each other
// in any order. Gives their values.
//
// Below a key `companions`, ${stem} and the other names of op/item_parts.h are the item's, and left
// as they are; what is said there of an item can be written $${stem} in a variable's value, too. A
// variable with such a name is an error where it could be meant.
Result<std::map<std::string, std::string>> resolve_vars(
    Node& root, const std::map<std::string, std::string>& overrides, const EnvLookup& env);

}  // namespace spdld::spec
