// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "op/clips_spec.h"
#include "source/file/source_options.h"
#include "source/item/source.h"

namespace spdld::source {

// The clips of `from`'s media files as items, in the order of the files; other parts and values of
// a file are those of each of its clips. `media` names the index that was applied; empty: the files
// are indexed now, which blocks.
//
// The index tells what the files hold and how many clips there are, so that the order of
// items is what it is without clips. Where a random clip begins is drawn from the epoch's key and
// the file's name.
Result<std::unique_ptr<Source>> open_clips(std::unique_ptr<Source> from, const ClipsSpec& spec,
                                           const std::string& media, const SourceOptions& options);

}  // namespace spdld::source
