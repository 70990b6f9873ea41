// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "source/access.h"
#include "source/glob.h"
#include "source/listing.h"

namespace spdld::source {

struct WalkOptions {
  std::string root;  // after symlinks; for messages
  bool follow_symlinks = true;
  int threads = 8;
  std::uint64_t max_items = 0;
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
// not be read: a listing without it would be another dataset.
Result<Walk> walk(int root_fd, const Glob& glob, const Roots& roots, const WalkOptions& options);

// Whether every directory of `listing` still is as it was when its entries were read. Directories
// that changed just before the listing began count as changed: their time stamp is too coarse to
// tell.
bool is_unchanged(int root_fd, const Listing& listing, int threads);

}  // namespace spdld::source
