// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/status.h"
#include "base/users/listing_memory.h"
#include "op/select_spec.h"
#include "source/item/source.h"
#include "source/select/where.h"

namespace spdld::source {

// Those of `from`'s items that `select` selects, in their order, by what the listing knows of them
// and by their uris. An error says what is wrong with the selection, or that nothing is left.
// `unknown`: of names that a condition cannot use, those that are no part of `from`'s, and what to
// write instead. What selecting takes counts in `memory`, which is asked before.
Result<std::unique_ptr<Source>> select_from(std::unique_ptr<Source> from, const SelectSpec& select,
                                            UnknownNames unknown, ListingMemory::SharePtr memory);

}  // namespace spdld::source
