// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/status.h"
#include "source/file/source_options.h"
#include "source/item/source.h"
#include "source/table/item_file.h"

namespace spdld::source {

// The rows of a table, or the images of an annotation file: their parts are the files that columns
// name, their values other columns. The reader must be allowed to read the table; each file is
// asked for when it is opened. Blocks until the table is read, or what was applied
// (options.dataset) is opened.
Result<std::unique_ptr<Source>> open_table(ItemFile file, SourceOptions options);

}  // namespace spdld::source
