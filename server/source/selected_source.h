// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "op/select_spec.h"
#include "source/source.h"

namespace spdld::source {

// Those of `from`'s items that `select` selects, in their order, by what the listing knows of them
// and by their uris. An error says what is wrong with the selection, or that nothing is left.
// `part_hint`: what to write where a condition names a part; may be empty.
Result<std::unique_ptr<Source>> select_from(std::unique_ptr<Source> from, const SelectSpec& select,
                                            std::string part_hint = {});

}  // namespace spdld::source
