// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "op/registry.h"

namespace spdld::spec {

// The ops in Markdown, as docs/ops.md has them: of each what it does and a table of its parameters,
// made from what the parser checks by.
std::string ops_page(const Registry& registry);

}  // namespace spdld::spec
