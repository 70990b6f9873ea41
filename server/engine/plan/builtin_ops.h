// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "op/registry.h"

namespace spdld::media {
class SeekIndexes;
}

namespace spdld::engine {

// Every op that this build knows: the one list there is. Those that decode JPEG share `indexes`,
// which may be null (media/jpeg/jpeg_options.h).
Registry builtin_ops(const std::shared_ptr<media::SeekIndexes>& indexes = nullptr);

}  // namespace spdld::engine
