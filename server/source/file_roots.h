// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/status.h"
#include "op/order_spec.h"
#include "source/file/source_options.h"
#include "source/item/source.h"

namespace spdld::source {

// The files below each of spec's roots, one root behind the other, as open_files() has them.
// In messages, items are named with as much of their root's path as tells the roots apart.
// kInvalidArgument: files of one root may be another's, too, by what is listed now. Where
// directories are the classes, those of all roots are, sorted.
Result<std::unique_ptr<Source>> open_file_roots(const FilesSpec& spec, SourceOptions options);

}  // namespace spdld::source
