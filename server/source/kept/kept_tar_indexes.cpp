// SPDX-License-Identifier: Apache-2.0
#include "source/kept/kept_tar_indexes.h"

#include <algorithm>
#include <utility>

#include "source/file/disk.h"
#include "source/kept/dataset_id.h"
#include "source/tar/tar_index_build.h"

namespace spdld::source {

namespace {

bool same_stamps(const TarIndex& a, const TarIndex& b) {
  return std::equal(a.shards().begin(), a.shards().end(), b.shards().begin(), b.shards().end(),
                    [](const ShardIndex& one, const ShardIndex& other) {
                      return one.path == other.path && is_as_indexed(one.stamp, other.stamp);
                    });
}

}  // namespace

KeptTarIndexes::KeptTarIndexes(const std::string& directory)
    : directory_(directory + "/" + kBelow) {}

ShardsDatasetPtr KeptTarIndexes::add(const std::string& name, std::shared_ptr<const TarIndex> index,
                                     ListingMemory::SharePtr memory) {
  const std::string id = name.empty() ? std::string() : shards_id(name);
  // One that was made of other files has these files' names and places, but not their stamps.
  if (ShardsDatasetPtr known = id.empty() ? nullptr : datasets_.find(id);
      known && same_stamps(*known->index, *index))
    return known;
  auto dataset = std::make_shared<const ShardsDataset>(
      ShardsDataset{.id = id, .index = std::move(index), .memory = std::move(memory)});
  return id.empty() ? dataset : datasets_.put(id, std::move(dataset));
}

Result<ShardsDatasetPtr> KeptTarIndexes::open(const std::string& id, const WebdatasetSpec& spec,
                                              ListingMemory::SharePtr memory) {
  const auto name = shards_name(id);
  if (!name || id.find('/') != std::string::npos)
    return error(Code::kDataLoss, "'" + id + "' names no index of shards");
  if (ShardsDatasetPtr known = datasets_.find(id)) return known;
  SPDLD_ASSIGN(std::shared_ptr<const TarIndex> index, load_tar_index(spec, directory_, *name));
  SPDLD_TRY(memory->resize(index->memory_bytes()).with_context("the index of its shards"));
  return add(*name, std::move(index), std::move(memory));
}

void KeptTarIndexes::add_files(const std::string& id, std::set<std::string>& files) const {
  if (const auto name = shards_name(split_clips_dataset(id).items))
    files.insert(std::string(kBelow) + "/" + tar_index_file_name(*name));
}

}  // namespace spdld::source
