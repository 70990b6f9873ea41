// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/status.h"
#include "op/webdataset_spec.h"
#include "source/file/source_options.h"
#include "source/item/source.h"

namespace spdld::source {

// The samples of tar shards, in the order of the shards and of their members. The parts of a sample
// are read with one pread where they lie side by side. The reader must be allowed to read all
// shards. Blocks until their index is made, or what was applied (options.dataset) is opened.
Result<std::unique_ptr<Source>> open_webdataset(const WebdatasetSpec& spec, SourceOptions options);

}  // namespace spdld::source
