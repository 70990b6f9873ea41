// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "source/file/access.h"

namespace spdld::source {

struct ShardNameOptions {
  std::size_t max_shards = 1'000'000;
  std::uint64_t max_directories = std::uint64_t{1} << 22;  // to be read for one pattern
  int threads = 8;
  std::stop_token stop = {};
  std::vector<std::string>* warnings = nullptr;  // gets what a look for files has left out
};

// The paths of the shards that `patterns` name, in their order. Each pattern is one absolute path
// or several with '::' between them; braces stand for what source/tar/brace_expansion.h says, each
// of which names one file, or, with '*', '?' or '[', all regular files that it matches as
// source/listing/glob.h says, bytewise sorted. '\x' is the character x. Blocks while directories
// are read, with the rights of the reader of `access`; whether a file that is named is there is not
// looked at.
//
// An error: a pattern that matches nothing, an address, a path that comes twice, no shard at all.
Result<std::vector<std::string>> shard_paths(const std::vector<std::string>& patterns,
                                             const Access& access, const ShardNameOptions& options);

}  // namespace spdld::source
