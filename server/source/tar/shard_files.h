// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

#include <string>
#include <vector>

#include "source/file/access.h"
#include "source/file/root_disk.h"
#include "source/item/item_bytes.h"
#include "source/tar/tar_index.h"

namespace spdld::source {

// How shards are opened: without waiting for a lease that another process holds on the file.
inline constexpr int kShardFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

// Where the shards of an index lie, as a FileFetcher knows files.
struct ShardFiles {
  std::vector<RootDiskOptions> roots;  // as few as the access rules allow
  std::vector<FileRange> shards;       // of each: below which root, and what it must be
};

// `indexed` numbers the shards as `shards` does; `key` is the pipeline's that names them.
ShardFiles find_shards(const std::vector<ShardIndex>& shards, IndexedFiles* indexed,
                       const std::string& key, const AccessRules& access);

}  // namespace spdld::source
