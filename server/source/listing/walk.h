// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "source/file/access.h"
#include "source/listing/glob.h"
#include "source/listing/listing.h"

namespace spdld::source {

struct WalkOptions {
  std::string root;  // after symlinks; for messages
  Access::Links links = Access::Links::kFollow;
  std::vector<Glob> exclude = {};  // of relative paths of files that count as not there
  int threads = 8;
  std::uint64_t max_items = 0;
  std::uint64_t max_directories = 0;         // one that several symlinks lead to counts for each
  ListingMemory::SharePtr memory = nullptr;  // asked while the listing grows; null: nobody is
  std::function<void(std::uint64_t)> progress;
  std::stop_token stop;
};

struct Walk {
  Listing listing;
  std::uint64_t files_seen = 0;  // matching or not
  std::string a_file;            // one of those that do not match
  std::vector<std::string> warnings;
};

// Reads the directory `root_fd` and what is below it, with several threads, for the files that
// match `glob`. progress() is called by the calling thread. A symlink to a directory above itself
// is left out with a warning; one to nothing that `glob` asks for is an error, as is whatever may
// not be read: a listing without it would be another dataset. A directory of which `exclude` leaves
// no file that `glob` may ask for is not read at all.
//
// `root_fd` was opened by `access`, and only what its reader may list is read. A directory that
// nobody may read below (Denial::reserved) is left out with a warning.
Result<Walk> walk(int root_fd, const Glob& glob, const Access& access, const WalkOptions& options);

}  // namespace spdld::source
