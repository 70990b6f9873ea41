// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "base/status.h"
#include "source/file/access.h"
#include "source/listing/listing.h"

namespace spdld::source {

// What has become of the directories that a listing was made of. Each call looks at all of them,
// from several threads, and may block; `root_fd` is the root that was listed, opened by an Access.

// Whether every directory of `listing` still is as it was when its entries were read. Directories
// that changed just before the listing began count as changed: their time stamp is too coarse to
// tell.
bool is_unchanged(int root_fd, const Listing& listing, int threads);
// Whether a directory of `listing` is gone, or may have had entries come or go since.
bool has_changed(int root_fd, const Listing& listing, int threads);

// Whether the reader of `access` may list every directory of `listing`, which another one may have
// made. An error names the first one that was found; `root` is the root's path, for that message.
Status may_list(int root_fd, const std::string& root, const Listing& listing, const Access& access,
                Access::Links links, int threads);

// Of a directory at this path as it is now.
DirectoryStamp directory_stamp(std::string path, const struct stat& info);

}  // namespace spdld::source
