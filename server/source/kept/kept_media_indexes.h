// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
#include <string>

#include "base/status.h"
#include "source/kept/kept_kind.h"
#include "source/kept/open_values.h"
#include "source/media_index/media_index.h"

namespace spdld::source {

// The indexes of media files that clips were cut by, as open_media_index() writes them to
// directory() (source/media_index/media_index_build.h). Sources with the same index share it in
// memory.
//
// Owned by KeptDatasets; thread-safe. A file that cannot be read is an error of that call alone.
class KeptMediaIndexes final : public KeptKind {
 public:
  static constexpr const char* kBelow = "media";  // in DIRECTORY

  explicit KeptMediaIndexes(const std::string& directory);

  const std::string& directory() const { return directory_; }
  // The index of that name, as load_media_index().
  Result<std::shared_ptr<const MediaIndex>> open(const std::string& name);
  // The same of one that was just made and lies in directory(); an empty name: it is not kept.
  std::shared_ptr<const MediaIndex> share(const std::string& name,
                                          std::shared_ptr<const MediaIndex> index);

  // The ids are those of clips of nothing.
  void add_open(std::set<std::string>& ids) override;
  void add_files(const std::string& id, std::set<std::string>& files) const override;

 private:
  const std::string directory_;
  OpenValues<MediaIndex> indexes_;
};

}  // namespace spdld::source
