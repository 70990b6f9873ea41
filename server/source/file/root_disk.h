// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "posix/unique_fd.h"
#include "source/file/access.h"
#include "source/file/reopening_disk.h"

namespace spdld::source {

// The directory that a source's files lie in, as it was found.
struct Root {
  std::string path;  // after symlinks
  UniqueFd fd;       // no more than a place: O_PATH
  dev_t device = 0;
  ino_t inode = 0;
};

// `path` is what the pipeline says under `key`, such as "source.files.root".
Result<Root> open_root(const std::string& path, const Access& access, const std::string& key);

// In place of a root that is looked for with the first file.
Result<Root> not_looked_at(const std::string& path);

struct RootDiskOptions {
  std::string root;  // as the pipeline names it
  std::string key;   // under which
  Access::Links links = Access::Links::kFollow;
  AccessRules access;
  bool remote = false;  // a part of what was listed lies on a network
};

// The files below a root, with the rights of the reader of `access`. `root`: as it is now; an
// error: it is looked for again with the first file.
std::unique_ptr<ReopeningDisk> make_root_disk(const RootDiskOptions& options,
                                              const std::shared_ptr<const Access>& access,
                                              Result<Root> root);

}  // namespace spdld::source
