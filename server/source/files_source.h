// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/status.h"
#include "op/order_spec.h"
#include "source/file/source_options.h"
#include "source/item/source.h"

namespace spdld::source {

// The pipeline's key that names them.
inline constexpr const char* kFilesRootKey = "source.files.root";

// The files below a directory whose relative path matches spec.pattern (source/listing/glob.h says
// how), in the bytewise order of these paths. With label: parent_dir, an item's class is the
// top-level directory it lies in. Blocks until the listing is done, or the one that is kept is
// found to be as things are. What was applied (options.dataset) is opened without a look at what is
// in the directories by now. Either way the reader must be allowed to list each directory.
Result<std::unique_ptr<Source>> open_files(const FilesSpec& spec, SourceOptions options);

}  // namespace spdld::source
