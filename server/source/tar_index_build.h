// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "op/webdataset_spec.h"
#include "source/access.h"
#include "source/tar_index.h"

namespace spdld::source {

struct TarIndexProgress {
  std::uint64_t shards = 0;
  std::uint64_t shards_kept = 0;  // taken from what was kept of an earlier index
  std::uint64_t shards_done = 0;  // with these
  std::uint64_t samples = 0;
  // Of all shards; those read or passed over so far.
  std::uint64_t bytes = 0;
  std::uint64_t bytes_done = 0;
};

struct TarIndexOptions {
  // Where indexes are kept; made when it is needed. Empty: nothing is kept.
  std::string directory = {};
  // The names in index order that spec.classes stands for.
  std::vector<std::string> classes = {};
  int threads = 2;
  std::uint64_t max_samples = std::uint64_t{1} << 32;
  std::uint64_t max_shards = 1'000'000;
  // Called while the index is made, by the thread that asked for it; at least once.
  std::function<void(const TarIndexProgress&)> progress = {};
  std::stop_token stop = {};  // ends it with kCancelled
  // Gets what the user should know though nothing failed.
  std::vector<std::string>* warnings = nullptr;
  // So much work of a thread may be lost if the process dies.
  std::chrono::nanoseconds keep_each = std::chrono::seconds(2);
  // The wall clock in ns, in place of the system's; for tests.
  std::function<std::int64_t()> now_ns = {};
};

// The index of the shards that spec.shards name, read with the rights of the reader of `access`,
// who must be allowed to read each of them. What is kept of an earlier index is taken where the
// shards' sizes and times still are the same; the others are read, several at once. Blocks.
//
// An index is kept as options.directory/QUERY-SHARDS.tarindex: hashes of what was asked, and of the
// shards' names as they were given. While it is made, what is done so far is kept as
// QUERY-SHARDS-HASH.part, also when it is stopped or fails. Indexes for the same query under other
// names share what they have of the same shards.
Result<std::shared_ptr<const TarIndex>> open_tar_index(const WebdatasetSpec& spec,
                                                       const Access& access,
                                                       const TarIndexOptions& options);

// The file name of the index that open_tar_index() keeps.
std::string tar_index_file_name(const WebdatasetSpec& spec,
                                const std::vector<std::string>& classes);

// Removes from `directory` what is kept of indexes other than the `used` file names and was last
// used `grace` ago.
Status collect_tar_indexes(const std::string& directory, const std::set<std::string>& used,
                           std::filesystem::file_time_type::duration grace);

}  // namespace spdld::source
