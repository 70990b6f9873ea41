// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stop_token>
#include <string>

#include "base/status.h"
#include "op/media.h"
#include "source/media_index/media_prober.h"

namespace spdld::engine {

// Lets sources, which know of no decoder, ask media/ what a file holds. Errors name the file.
// Any thread; the limits are media/'s own.
class FileProber final : public source::MediaProber {
 public:
  Result<MediaFile> probe(source::FileBytes& file, std::stop_token stop) const override;
  std::string version() const override;
};

}  // namespace spdld::engine
