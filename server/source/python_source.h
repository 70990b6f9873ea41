// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/status.h"
#include "op/row_call.h"
#include "source/file/source_options.h"
#include "source/item/source.h"

namespace spdld::source {

// A dataset of the user's own. The processes that have it say how many items there are and what is
// known of each (CallRow::description: Columns::write(), then a u64 and so many names of classes,
// each a u32 of bytes and these). It has no parts: the plan's first call brings what an item is,
// and is given the values `index` and `items`, the number of the item and how many there are, so
// that those processes notice when the dataset is another one by now. Blocks until the processes
// have answered, or what was applied (options.dataset) is opened.
Result<std::unique_ptr<Source>> open_python(const DatasetSpec& spec, SourceOptions options);

}  // namespace spdld::source
