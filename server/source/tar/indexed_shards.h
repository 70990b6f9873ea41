// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "op/webdataset_spec.h"
#include "source/item/indexed_files.h"
#include "source/tar/tar_index.h"

namespace spdld::source {

// The shards of an index, numbered as there. Comparing one reads all of its headers.
class IndexedShards final : public IndexedFiles {
 public:
  // `spec`: what the index was made for.
  IndexedShards(WebdatasetSpec spec, std::shared_ptr<const TarIndex> index)
      : spec_(std::move(spec)), index_(std::move(index)) {}

  Status compare(std::uint64_t number, FileBytes& file) const override;

 private:
  const WebdatasetSpec spec_;
  const std::shared_ptr<const TarIndex> index_;
};

}  // namespace spdld::source
