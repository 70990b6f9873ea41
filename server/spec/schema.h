// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "op/registry.h"

namespace spdld::spec {

// JSON Schema (draft 2020-12) for editors, made from the tables that the parser checks by. It is
// what a schema can say: variables, extends and what an op checks itself remain the parser's.
nlohmann::json pipeline_schema(const Registry& registry);
nlohmann::json daemon_schema();

}  // namespace spdld::spec
