// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "source/item/source.h"

namespace spdld::source {

// Sources of the same fields and classes, one behind the other: the items of the first, then those
// of the second. `sources` holds at least one, and none of null. `prefixes`, one for each or none,
// stand before the uris that messages name items by.
std::unique_ptr<Source> join_sources(std::vector<std::unique_ptr<Source>> sources,
                                     std::vector<std::string> prefixes = {});

}  // namespace spdld::source
