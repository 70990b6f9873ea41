// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
#include <string>

#include "base/status.h"
#include "base/users/listing_memory.h"
#include "op/source_spec.h"
#include "source/kept/kept_kind.h"
#include "source/kept/open_values.h"
#include "source/tar/tar_index.h"

namespace spdld::source {

// The samples of shards, with their classes. Immutable.
struct ShardsDataset {
  std::string id = {};  // names it to KeptTarIndexes::open(); empty: it is not kept
  std::shared_ptr<const TarIndex> index = nullptr;
  ListingMemory::SharePtr memory = nullptr;  // that it counts in
};
using ShardsDatasetPtr = std::shared_ptr<const ShardsDataset>;

// The indexes of shards that were applied, as open_tar_index() writes them to directory()
// (source/tar/tar_index_build.h). Sources with the same index share it in memory.
//
// Owned by KeptDatasets; thread-safe. A file that cannot be read is an error of that call alone.
class KeptTarIndexes final : public KeptKind {
 public:
  static constexpr const char* kBelow = "tar";  // in DIRECTORY

  explicit KeptTarIndexes(const std::string& directory);

  const std::string& directory() const { return directory_; }
  // The dataset of an index that lies in directory() under that name; empty: it is not kept.
  ShardsDatasetPtr add(const std::string& name, std::shared_ptr<const TarIndex> index,
                       ListingMemory::SharePtr memory);
  // The index that was applied; `spec` as it was then. One that is not open counts in `memory`.
  // kNotFound, there is none; kDataLoss, it is damaged; kResourceExhausted, the share has no room.
  Result<ShardsDatasetPtr> open(const std::string& id, const WebdatasetSpec& spec,
                                ListingMemory::SharePtr memory);

  void add_open(std::set<std::string>& ids) override { datasets_.add_names(ids); }
  void add_files(const std::string& id, std::set<std::string>& files) const override;

 private:
  const std::string directory_;
  OpenValues<ShardsDataset> datasets_;
};

}  // namespace spdld::source
