// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/users/listing_memory.h"
#include "op/webdataset_spec.h"
#include "source/file/access.h"
#include "source/tar/tar_index.h"

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
  // The index counts in it, and asks it as it grows: kResourceExhausted. Null: it asks nobody.
  ListingMemory::SharePtr memory = nullptr;
  // So much work of a thread may be lost if the process dies.
  std::chrono::nanoseconds keep_each = std::chrono::seconds(2);
  // The wall clock in ns, in place of the system's; for tests.
  std::function<std::int64_t()> now_ns = {};
};

struct OpenedTarIndex {
  std::shared_ptr<const TarIndex> index;
  std::string name;  // of the file that keeps it, without its ending; empty: it is not kept
};

// The index of the shards that spec.shards name, read with the rights of the reader of `access`,
// who must be allowed to read each of them. What is kept of an earlier index is taken where the
// shards' sizes and times still are the same; the others are read, several at once. Blocks.
//
// An index is kept as options.directory/QUERY-SHARDS-DATA.tarindex: hashes of what was asked, of
// the shards' names as they were given, and of the samples with what is known of them.
// While it is made, what is done so far is kept as QUERY-SHARDS-HASH.part, also when it is stopped
// or fails. Indexes for the same query under other names share what they have of the same shards.
Result<OpenedTarIndex> open_tar_index(const WebdatasetSpec& spec, const Access& access,
                                      const TarIndexOptions& options);

// The index of that name as it was kept, whatever the shards are by now. kNotFound: there is none;
// kDataLoss: there is something else, or `spec` asks for other things.
Result<std::shared_ptr<const TarIndex>> load_tar_index(const WebdatasetSpec& spec,
                                                       const std::string& directory,
                                                       const std::string& name);

// Whether both names mean the same samples in shards of the same sizes and times, wherever those
// lie.
bool same_tar_data(const std::string& name, const std::string& other);

// The file that an index of that name is kept in.
std::string tar_index_file_name(const std::string& name);

}  // namespace spdld::source
