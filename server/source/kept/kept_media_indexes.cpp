// SPDX-License-Identifier: Apache-2.0
#include "source/kept/kept_media_indexes.h"

#include <utility>

#include "source/kept/dataset_id.h"
#include "source/media_index/media_index_build.h"

namespace spdld::source {

KeptMediaIndexes::KeptMediaIndexes(const std::string& directory)
    : directory_(directory + "/" + kBelow) {}

Result<std::shared_ptr<const MediaIndex>> KeptMediaIndexes::open(const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos)
    return error(Code::kDataLoss, "'" + name + "' names no index of media files");
  if (auto known = indexes_.find(name)) return known;
  SPDLD_ASSIGN(std::shared_ptr<const MediaIndex> index, load_media_index(directory_, name));
  return share(name, std::move(index));
}

std::shared_ptr<const MediaIndex> KeptMediaIndexes::share(const std::string& name,
                                                          std::shared_ptr<const MediaIndex> index) {
  // The one that was made last has the files' stamps as they are now.
  return name.empty() ? index : indexes_.put(name, std::move(index));
}

void KeptMediaIndexes::add_open(std::set<std::string>& ids) {
  std::set<std::string> names;
  indexes_.add_names(names);
  for (const std::string& name : names) ids.insert(media_dataset(name));
}

void KeptMediaIndexes::add_files(const std::string& id, std::set<std::string>& files) const {
  const std::string name = split_clips_dataset(id).media;
  if (!name.empty()) files.insert(std::string(kBelow) + "/" + media_index_file_name(name));
}

}  // namespace spdld::source
