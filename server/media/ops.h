// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "media/jpeg_scan/seek_indexes.h"
#include "op/registry.h"

namespace spdld::media {

// The ops that turn encoded bytes into samples. They all share `indexes`, which may be null.
std::vector<OpInfo> ops(const std::shared_ptr<SeekIndexes>& indexes);

}  // namespace spdld::media
