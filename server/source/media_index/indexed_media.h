// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "source/item/indexed_files.h"
#include "source/media_index/media_index.h"
#include "source/media_index/media_prober.h"

namespace spdld::source {

// The media files of an index, numbered as its entries. Comparing one probes it.
class IndexedMedia final : public IndexedFiles {
 public:
  // `prober` outlives all reads.
  IndexedMedia(std::shared_ptr<const MediaIndex> index, const MediaProber& prober)
      : index_(std::move(index)), prober_(prober) {}

  Status compare(std::uint64_t number, FileBytes& file) const override;

 private:
  const std::shared_ptr<const MediaIndex> index_;
  const MediaProber& prober_;
};

}  // namespace spdld::source
