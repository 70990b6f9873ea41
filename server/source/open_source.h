// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "op/source_spec.h"
#include "source/file/source_options.h"
#include "source/item/source.h"

namespace spdld::source {

// The source that `spec` names, listed or opened as it was (options.dataset). Blocks until that is
// done.
Result<std::unique_ptr<Source>> open_source(const SourceSpec& spec, SourceOptions options);

// The classes that the source's text asks for; null: it has none.
const ClassesSpec* classes_of(const SourceSpec& spec);

// What is listed, for messages: a directory, a file, or a dataset of the user's own.
const std::string& place_of(const SourceSpec& spec);

}  // namespace spdld::source
